"""`vdnnsim read` on the traces of `tests.recorded_traces`, and on snapshots."""

import csv
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.recorded_traces import execution_trace, new_trace, write
from tests.refusals import refusal
from tests.unit.recordings.snapshots import HIGH, LOW, WHOLE, block, event, freed, segment, snapshot, written
from vdnnsim.cli import cli
from vdnnsim.cli.recordings import read, read_snapshot, read_trace
from vdnnsim.errors import InputError, PolicyError, VdnnsimError
from vdnnsim.report.findings import conclusions
from vdnnsim.report.tables.snapshots import CSV_COLUMNS
from vdnnsim.scenario.experiment import run_scenario, simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.units import MIB


def invoke(*arguments: object) -> str:
    """Return what the command prints; raise what it raises."""
    result = CliRunner().invoke(cli, ["read", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a trace and its execution trace."""
    monkeypatch.chdir(tmp_path)
    write(new_trace(), tmp_path / "trace.json.gz")
    write(execution_trace(), tmp_path / "et.json")
    return tmp_path


def test_the_options_for_a_trace_are_frozen() -> None:
    assert {name for each in read_trace.params for name in each.opts if name.startswith("--")} == {
        *("--execution-trace", "--batch", "--out", "--profile", "--hardware", "--csv", "--json")
    }


def test_the_time_of_a_trace_is_attributed(folder: Path) -> None:
    """Of 215 us of kernels 205 are attributed, 10 are not; the GPU is busy 215 of 1000 us; half is the convolution."""
    text = invoke("trace.json.gz", "--csv", folder / "table.csv")
    for part in (
        "ProfilerStep#6 of trace.json.gz on Tesla T4: 1.00 ms, kernels ran for 215 us of it (21%)",
        "attributed to operators: 95.3% of 215 us of kernels",
        "not attributed: 4.7%, 1 kernel launched by autograd between its operators",
        "the GPU waits for the next batch: 10.0 us (1.0% of the step)",
        "backward matched to its forward: 100.0% of its time",
        "convolutions with sizes and phase: 2 of 2",
        "copies between host and GPU: 1, 1.50 KiB in 20.0 us",
        "by module",
    ):
        assert part in text
    assert (folder / "table.csv").read_text().splitlines()[1].startswith("convolution,1,1,")


def test_short_operators_share_a_row(folder: Path) -> None:
    """Twenty more operators of 1 us: 23, of which 16 are shown, and 7 others."""
    trace = new_trace()
    host = {"ph": "X", "pid": 1, "tid": 1, "dur": 4}
    for number in range(20):
        begin = {**host, "ts": 8e6 - 1e6 + 1700 + 10 * number}
        found = {"correlation": 9000 + number, "device": 0, "stream": 7}
        trace["traceEvents"] += [
            {**begin, "cat": "cpu_op", "name": f"own::kernel_{number}", "args": {}},
            {**begin, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 1, "args": found},
            {**begin, "cat": "kernel", "name": "k", "tid": 7, "dur": 1, "args": found},
        ]
    write(trace, folder / "many.json")
    assert "7 others 7 7" in invoke("many.json")


def test_it_writes_a_workload_and_a_profile_that_run(folder: Path) -> None:
    """On its own card the recorded step takes what its kernels took, and waits for its host as it did.

    An operation is issued every 988 / 3 = 329.3 us, from 0 on; the last begins after three of them and takes 5 us.
    Only times can be asked for, and not whether another policy fits; with an execution trace every policy can.
    """
    text = invoke("trace.json.gz", "--out", "m.step.json", "--profile", "card")
    assert "wrote m.step.json" in text
    assert "hardware: card" in text
    scenario = folder / "s.yaml"
    scenario.write_text("schema_version: 1\nworkload: {step: m.step.json}\nhardware: card\npolicies: [base(p)]\n")
    found = run_scenario(read_scenario(scenario))
    [result] = found.results
    assert result.metrics.iteration_s == pytest.approx(988e-6 + 5e-6, rel=1e-3)
    assert conclusions(found) == ("It takes 993 us per iteration, 2014 images/s; a trace does not say what fits.",)
    scenario.write_text(scenario.read_text().replace("base(p)", "vdnn_all(p)"))
    moving = read_scenario(scenario)
    with pytest.raises(PolicyError, match="was recorded as a trace"):
        run_scenario(moving)
    with pytest.raises(PolicyError, match="was recorded as a trace"):
        simulator_of(moving).planned(moving.policies[0])
    invoke("trace.json.gz", "--execution-trace", "et.json", "--out", "m.step.json")
    [result] = run_scenario(read_scenario(scenario)).results
    assert result.fits


def test_without_sizes_nothing_is_written(folder: Path) -> None:
    write(new_trace(shapes=True), folder / "bare.json")
    assert "no sizes of tensors were recorded" in invoke("bare.json")
    with pytest.raises(InputError, match="has no sizes of tensors, expected record_shapes=True"):
        invoke("bare.json", "--out", "x.step.json")
    assert not (folder / "x.step.json").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--batch", "0"], "--batch: found 0, expected an integer from 1 to 1000000"),
        (["--profile", "a/b"], "--profile: found 'a/b', expected a name"),
        (["--profile", "x", "--hardware", "nowhere"], "'nowhere' is not a hardware profile"),
        (["--execution-trace", "et.json"], "--execution-trace: found without --out, which it is for"),
        (["--hardware", "x"], "--hardware: found without --profile, which it is for"),
    ],
)
def test_wrong_options_are_refused(options: list[str], message: str, folder: Path) -> None:
    with pytest.raises(InputError, match=message):
        invoke("trace.json.gz", *options)
    assert not (folder / "hw_profiles" / "x.yaml").exists()


@pytest.mark.usefixtures("folder")
def test_the_batch_may_be_given() -> None:
    assert "batch: 5" in invoke("trace.json.gz", "--batch", "5")


def called(path: Path, *options: str) -> str:
    done = CliRunner().invoke(read_snapshot, [str(path), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return " ".join(done.stdout.split())


def refused(path: Path, *options: str) -> str:
    return refusal(VdnnsimError, CliRunner().invoke, read_snapshot, [str(path), *options], catch_exceptions=False)


def test_a_recording_beside_other_settings(tmp_path: Path) -> None:
    """20 and 30 in segments; 8, 9 and 30 in growing ones fill three pages, for the 30 do not go where the 8 were."""
    text = called(written(tmp_path, WHOLE))
    assert "as recorded 0 39.0 MiB 50.0 MiB 11.0 MiB" in text
    assert "pytorch 0 39.0 MiB 50.0 MiB 11.0 MiB" in text
    assert "expandable_segments:True 0 39.0 MiB 60.0 MiB 21.0 MiB" in text
    assert "GPU 0: at your peak 39.0 MiB of 50.0 MiB reserved are used; with pytorch the same run reserves 50.0" in text
    assert "the model puts 3 of 3 requests where PyTorch put them, and takes segments 2 of 2 times when" in text


def test_sizes_shortage_and_settings_are_stated(tmp_path: Path) -> None:
    """2048.5 MiB in a segment of 2050."""
    events = [event("segment_alloc", LOW, 2050), event("alloc", LOW, 2048.5)]
    content = snapshot([segment(LOW, block(2048.5), block(1.5, "inactive"))], events)
    assert "GPU 0: at your peak 2.00 of 2.00 GiB reserved are used" in called(written(tmp_path, content))
    # Of 40 MiB, 50 lack 10, as the 20 with 9 in use and the 30 both stay; 47 lack 7, which is known to 8.
    path = written(tmp_path, WHOLE)
    text = called(path, "--memory", "40 MiB", "--memory-model", "best_fit", "--memory-model", "pytorch")
    assert "best_fit 0 39.0 MiB 47.0 MiB 8.00 MiB NO, short by up to 8.00 MiB" in text
    assert (
        "it would not fit the 40.0 MiB that there are: with best_fit by up to 8.00 MiB; with pytorch by up to 10.0 MiB"
        in text
    )
    assert "it would fit the 12.0 GiB there are" in called(path, "--hardware", "titan_x_maxwell")
    # Settings that are not modelled are named.
    content = {**WHOLE, "allocator_settings": {"PYTORCH_ALLOC_CONF": "backend:cudaMallocAsync"}}
    assert "how its allocator was set is not modelled, and taken for the default: 'backend' is not" in called(
        written(tmp_path, content)
    )


def test_the_table_is_written_for_machines(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    path = written(tmp_path, WHOLE)
    called(path, "--csv", str(table), "--allocator", "max_split_size_mb:20", "--memory", "1GiB")
    with table.open(newline="") as file:
        header, first, second = csv.reader(file)
    assert tuple(header) == CSV_COLUMNS
    assert first == ["as recorded", "0", str(39 * 2**20), str(50 * 2**20), ""]
    assert second == ["max_split_size_mb:20", "0", str(39 * 2**20), str(50 * 2**20), "0"]
    called(path, "--csv", str(table), "--memory-model", "ideal")
    assert table.read_text().splitlines()[-1] == f"ideal,0,{39 * 2**20},{39 * 2**20},"


def test_particulars_of_a_recording_are_listed(tmp_path: Path) -> None:
    """Two GPUs: one that began in the middle, one whose segments grow, in a pool of a graph; and settings."""
    content = snapshot(
        [
            segment(HIGH, block(15, "inactive"), block(5)),
            segment(LOW, block(20), gpu=1, segment_pool_id=(0, 1), is_expandable=True),
        ],
        [*freed(HIGH, 8), event("oom", 0, 99), event("what", 0, 0)],
        [*freed(LOW + 5 * MIB, 1), event("alloc", LOW, 20, pool_id=(0, 1))],
        allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.5"},
    )
    text = called(written(tmp_path, content))
    for line in (
        "it was recorded with PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.5",
        "its history begins with 13.0 MiB in use, in 2 blocks: replays ask for them first, from the lowest address on",
        "its segments could grow and its history begins in the middle: replays are not compared by address",
        "PyTorch found no room 1 times; replays do not ask for that",
        "pools of CUDA graphs or of one's own are replayed as if each were a stream",
        "1 entries of an unknown kind are left out: 'what'",
        "garbage_collection_threshold does nothing without per_process_memory_fraction below 1",
    ):
        assert line in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--allocator", "expandable"), "--allocator: found 'expandable', expected settings"),
        (("--allocator", "cudnn_benchmark:True"), "cudnn_benchmark: found for a snapshot, which has its searches"),
        (("--memory-model", "mine"), "--memory-model: 'mine' is not a memory model"),
        (("--memory", "much"), "--memory: found 'much', expected a number with one of the units"),
        (("--memory", "1GB", "--hardware", "h200"), "--memory: found beside --hardware, expected one of the two"),
        (("--hardware", "mine"), "'mine' is not a hardware profile"),
    ],
)
def test_wrong_options_are_refused_in_one_line(tmp_path: Path, options: tuple[str, ...], message: str) -> None:
    assert refused(written(tmp_path, WHOLE), *options).startswith(message)


def test_a_snapshot_without_a_history_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, snapshot([segment(LOW, block(20))], []))
    assert "has no history of requests, expected a snapshot that was taken after torch.cuda.memory._record" in refused(
        path
    )
    # A snapshot is recognized by its content.
    path = written(tmp_path, WHOLE).rename(tmp_path / "whatever.json")
    assert "at your peak" in " ".join(read_command(path).stdout.split())


def read_command(path: Path) -> Result:
    return CliRunner().invoke(read, [str(path)])
