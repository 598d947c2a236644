"""`vdnnsim read` on the traces of `tests.recorded_traces`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.recorded_traces import execution_trace, new_trace, write
from vdnnsim.cli import cli
from vdnnsim.cli.recordings import read_trace
from vdnnsim.errors import InputError, PolicyError
from vdnnsim.report.findings import conclusions
from vdnnsim.scenario.experiment import run_scenario, simulator_of
from vdnnsim.scenario.read import read_scenario


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
