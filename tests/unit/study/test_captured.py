"""Studies and what-ifs over captured steps: their batch, and which step it is."""

from pathlib import Path

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.captured_steps import chain, residual, sequences
from tests.command_line import csv_rows
from tests.refusals import refusal
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import InputError, StudyError
from vdnnsim.files.atomic import replace_file
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.read import read_scenario
from vdnnsim.study.read import read_study
from vdnnsim.study.results import results_csv
from vdnnsim.study.store import writing
from vdnnsim.study.sweep import local_workers, sweep
from vdnnsim.study.what_if import what_if

STUDY = """\
schema_version: 1
scenario:
  schema_version: 1
  workload: {workload}
  hardware: rtx_4090
  policies: [pytorch]
axes:
  {axes}
"""
TWO = "{step: [chain2.step.json, chain4.step.json]}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for n in (2, 4):
        write_captured_step(chain(n), tmp_path / f"chain{n}.step.json")
    write_captured_step(residual(), tmp_path / "residual.step.json")
    return tmp_path


def rows(folder: Path, workload: str, axes: str, workers: int = 1) -> list[dict[str, str]]:
    (folder / "s.yaml").write_text(STUDY.format(workload=workload, axes=axes))
    study = read_study(Path("s.yaml"))
    with writing(folder / "out") as store:
        sweep(study, store, local_workers(workers))
        replace_file(folder / "results.csv", results_csv(study, store))
    return csv_rows(folder / "results.csv")


def test_the_tokens_of_several_captures_are_an_axis(folder: Path) -> None:
    for tokens in (8, 4096):
        write_captured_step(sequences(tokens), folder / f"t{tokens}.step.json")
    table = rows(folder, "{step: [t8.step.json, t4096.step.json]}", "workload.tokens: [8, 4096, 9]")
    assert [each["tokens"] for each in table] == ["8", "4096", "9"]
    used = [int(each["allocated_bytes"]) for each in table[:2]]
    assert used[1] - used[0] > 7 * 4096**2
    assert "was captured on sequences of 8 and 4096 tokens, found 9" in table[2]["error"]


def test_the_batch_of_two_captures_is_an_axis(folder: Path) -> None:
    """Computed in two processes; a row of a batch that was captured is that of a study of the capture alone."""
    table = rows(folder, TWO, "workload.batch_size: [2, 3, 4]", workers=2)
    assert [(each["network"], each["batch_size"]) for each in table] == [("chain", n) for n in "234"]
    used = [int(each["allocated_bytes"]) for each in table]
    assert used == sorted(used)
    (alone,) = rows(folder, "{step: chain4.step.json}", "gpus: [1]")
    for key in ("error", "batch_size", "iteration_s", "reserved_bytes"):
        assert alone[key] == table[2][key]


def test_a_batch_that_does_not_follow_fails_alone(folder: Path) -> None:
    first, second = rows(folder, "{step: chain2.step.json}", "workload.batch_size: [2, 3]")
    assert first["error"] == ""
    assert second["error"].startswith("chain: was captured at a batch of 2, so 3 is not known; expected")


@pytest.mark.parametrize("scenario", [TWO, "{network: alexnet, batch_size: 4}"])
def test_the_captured_step_is_an_axis(folder: Path, scenario: str) -> None:
    """Each with its own batch, whatever the scenario's is: 2, 4 and 1."""
    table = rows(folder, scenario, "workload.step: [chain2.step.json, chain4.step.json, residual.step.json]")
    found = [(each["network"], each["batch_size"], each["error"]) for each in table]
    assert found == [("chain", "2", ""), ("chain", "4", ""), ("residual", "1", "")]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ("workload.precision: [float32]", "axes: 'workload.precision': chain was captured"),
        ("{workload.step: [chain2.step.json], workload.mode: [inference]}", "axes: 'workload.mode' is given beside"),
        ("hosts: [4]", "axes: 'hosts' says how many ranks"),
        ("workload.step: [nothing.step.json]", "axes.workload.step[0]: nothing.step.json: cannot be read"),
    ],
)
def test_facts_of_a_capture_are_no_axes(axes: str, message: str, folder: Path) -> None:
    (folder / "s.yaml").write_text(STUDY.format(workload=TWO, axes=axes))
    assert refusal(InputError, read_study, Path("s.yaml")).startswith(f"s.yaml: {message}")


def test_what_if_varies_the_batch_and_refuses_the_rest(folder: Path) -> None:
    text = STUDY.format(workload=TWO, axes="").partition("scenario:\n")[2].partition("axes")[0]
    (folder / "x.yaml").write_text("\n".join(line[2:] for line in text.splitlines()))
    base, types = read_scenario(Path("x.yaml")), known_policies()
    (change,) = what_if(base, folder, ["workload.batch_size=50"], types)
    assert change.before.number("allocated_bytes") < change.after.number("allocated_bytes")
    with pytest.raises(StudyError, match=r"^--set: 'workload\.optimizer': chain was captured, and its file states it"):
        what_if(base, folder, ["workload.optimizer=adam"], types)


def test_the_way_of_execution_is_an_axis(folder: Path) -> None:
    """Of captures of both kinds each way takes its own: that of torch.compile has 1 MiB of weights more.

    Without it operators are fused by rule. A CUDA graph is one call of the host, and changes no kernel.
    """
    step = chain(2)
    larger = msgspec.structs.replace(step.storages[0], nbytes=step.storages[0].nbytes + 2**20)
    made_step = msgspec.structs.replace(step, compiled=True, storages=(larger, *step.storages[1:]))
    write_captured_step(made_step, folder / "made.step.json")
    axis = "execution: [eager, cuda_graphs, compiled]"
    by_rule = rows(folder, "{step: chain2.step.json}", axis)
    eager, graph, made = rows(folder, "{step: [chain2.step.json, made.step.json]}", axis, workers=2)
    assert [eager, graph] == by_rule[:2]
    assert [each["execution"] for each in (eager, graph, made)] == ["eager", "cuda_graphs", "compiled"]
    assert float(graph["stall_s"]) < float(eager["stall_s"])
    used = [int(each["allocated_bytes"]) for each in (*by_rule, made)]
    assert [each - used[0] for each in used] == [0, 0, 0, 2**20]
    (alone,) = rows(folder, "{step: chain2.step.json}", "{workload.step: [made.step.json], execution: [compiled]}")
    assert alone["iteration_s"] == made["iteration_s"]


def test_what_was_captured_compiled_cannot_be_run_eagerly(folder: Path) -> None:
    write_captured_step(msgspec.structs.replace(chain(2), compiled=True), folder / "made.step.json")
    eager, made = rows(folder, "{step: chain2.step.json}", "{workload.step: [chain2.step.json, made.step.json]}")
    assert eager["error"] == ""
    assert "found 'eager', expected 'compiled'" in made["error"]


def test_links_between_ranks_decide_what_they_wait_for(folder: Path) -> None:
    """NVLink moves what two ranks reduce in a fraction of the time of the host's memory.

    They reduce 1 GiB twice, half of it over each link: at 200 GB/s in 2.7 ms each, over 16 lanes of PCIe, of at most
    32 GB/s, in at least 16 ms.
    """
    step = sharded()
    reduced = tuple(
        each
        if each.collective is None or each.phase is Phase.FORWARD
        else msgspec.structs.replace(each, collective=msgspec.structs.replace(each.collective, nbytes=2**30))
        for each in step.operations
    )
    write_captured_step(
        msgspec.structs.replace(step, operations=reduced, ranks=2, parallel="fsdp=2"), folder / "rank.step.json"
    )
    text = "schema_version: 1\nworkload: {step: rank.step.json}\nhardware: rtx_4090_x4\npolicies: [pytorch]\n"
    (folder / "s.yaml").write_text(text)
    scenario = read_scenario(folder / "s.yaml", known_policies())
    (change,) = what_if(scenario, folder, ["link.nvlink=200GB/s"], known_policies())
    assert change.before.number("iteration_s") > 0.032
    assert change.after.number("iteration_s") < 0.02
