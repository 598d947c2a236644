"""Pictures and traces of a captured rank, one of two."""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_ranks import counted, offloading, sharded, staged
from tests.captured_steps import chain
from tests.machines import shipped_profile
from tests.toy import server_with
from tests.two_gpus import PEERED
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Communicate, Stream
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.caveats import contention_lines
from vdnnsim.report.findings import budgets, caption
from vdnnsim.report.palette import kind_of
from vdnnsim.report.plots.iteration.memory import memory_figure
from vdnnsim.report.plots.iteration.timeline import timeline_figure, trace_bars
from vdnnsim.report.plots.style import house_style
from vdnnsim.report.run.perfetto import operation_text, perfetto_text
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import ElementType

ROWS: dict[Stream | None, float] = {Stream.COMPUTE: 2.0, Stream.MEMORY: 0.0, Stream.COMMUNICATION: 1.0, None: 3.0}


@pytest.fixture(scope="module")
def row() -> PolicyResult:
    server = replace(server_with({"launch_overhead_s": 1.0}), topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(sharded()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    (result,) = simulator.run(PyTorch(), simulator.oracle())
    return result


def test_the_communication_stream_shows_collectives_and_their_copies(row: PolicyResult) -> None:
    """Two gathers, each behind a copy into its buffer, and two reductions; what waits for them has their colour."""
    bars = trace_bars(row.trace, ROWS)

    communication = [each for each in bars if each.row == ROWS[Stream.COMMUNICATION]]
    texts = [each.text for each in communication]
    assert texts == ["copy", "all gather", "copy", "all gather", "reduce scatter", "reduce scatter"]
    stalls = {each.look.color for each in bars if each.row == ROWS[None]}
    assert stalls == {communication[0].look.color}


def test_a_timeline_magnifies_what_waits_for_collectives() -> None:
    profile = shipped_profile("h100_x8")
    result = run_scenario(scenario_of(CapturedModel(sharded()), "sharded", profile, (PyTorch(),)))
    with house_style():
        _, part = timeline_figure(result, result.subject).axes
    assert part.get_xlabel().endswith(", where collectives are waited for most")


def test_a_rank_has_its_share_of_the_host() -> None:
    """Two ranks on a server with 2 TiB for eight GPUs."""
    step = msgspec.structs.replace(sharded(), ranks=2, parallel="fsdp=2")
    result = run_scenario(scenario_of(CapturedModel(step), "sharded", shipped_profile("h100_x8"), (PyTorch(),)))
    assert "of 1024 GiB; of the host that is the share of one of 2 ranks." in budgets(result)


def test_a_collective_is_named_with_its_ranks(row: PolicyResult) -> None:
    plan = row.trace.plan
    found = [operation_text(plan, span.operation) for span in row.trace.spans_on(Stream.COMMUNICATION)]

    assert found[:2] == ["copy for communication in forward of fc1", "all_gather of 2 ranks in forward of fc1"]


def test_a_rank_says_what_its_kernels_take_and_wait_for() -> None:
    """Ten kernels of 1 s, the first 1.8 s behind a copy into the buffer and a gather, the update 0.8 s behind its own.

    Where shards are on the host, three: a copy of 1.6 s is before the first, and 3.6 s are behind the last. Of the
    first 42e6 FLOPs in forward count thrice, 126e6 of 12.6e9 at the peak; a product of the second has 2.
    """
    profile = shipped_profile("h100_x8")
    gpu = replace(server_with({}).gpu, dram_bytes_per_s=1e9, flop_per_s={ElementType.FLOAT32: 1e9})
    server = replace(server_with({"launch_overhead_s": 1.0}), gpu=gpu, topology=PEERED)
    lines = list[str]()
    for step in (msgspec.structs.replace(counted(sharded(), {"fc1": 42_000_000, "fc2": 0}), ranks=2), offloading()):
        simulator = Simulator.of(CapturedWorkload.of(step), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
        rows = simulator.run(PyTorch(), simulator.oracle())
        result = run_scenario(scenario_of(CapturedModel(step), "a rank", profile, (PyTorch(),)))
        lines += contention_lines(replace(result, results=rows, server=server))
    gathered, on_host = lines
    waits = "they wait 1.80 s for all-gather and 800 ms for reduce-scatter"
    assert gathered == f"pytorch(p): kernels take 10.0 s of 12.6 s; {waits}; MFU 1 %"
    waits = "they wait 3.60 s for the update on the host and 1.60 s for a prefetch"
    assert on_host == f"pytorch(p): kernels take 3.00 s of 8.20 s; {waits}; MFU 0 %"


def test_a_report_of_a_pipeline_states_its_micro_batches_and_its_bubble() -> None:
    """Both stages train the same two samples."""
    first, last = staged()
    model = CapturedModel(first, others=[CapturedModel(last)])
    asked = scenario_of(model, "staged", shipped_profile("h100_x8"), (PyTorch(),))
    result = run_scenario(asked)
    assert (asked.gpus, asked.batches, len(result.results)) == (2, 1, 2)
    (line,) = contention_lines(result)
    assert "stages wait for each other" in line
    assert "; kernels take " in line
    assert line.endswith("; MFU 0 %")
    # Of ranks that split layers, and of a layout by hand, what several compute counts each time; and in inference none.
    layouts = {"tp=2": "MFU at most 0 %", "ranks=2": "MFU at most 0 %", "fsdp=2": "; MFU 0 %"}
    for layout, end in layouts.items():
        step = msgspec.structs.replace(sharded(), ranks=2, parallel=layout)
        asked = scenario_of(CapturedModel(step), "a rank", shipped_profile("h100_x8"), (PyTorch(),))
        (line,) = contention_lines(run_scenario(asked))
        assert line.endswith(end)
    assert {(each.metrics.iteration_s, each.performance_ratio) for each in result.results} == {
        (result.oracle.iteration_s, 1.0)
    }
    assert "batch 2 in 2 micro-batches, float32" in caption(result)
    exchanges = [each for each in result.subject.trace.plan.operations if isinstance(each, Communicate)]
    assert set(map(kind_of, exchanges)) == {"send or receive"}


def test_a_report_of_shards_on_the_host() -> None:
    """What is copied is no buffer, so the picture of memory has no host; the update is a bar on a stream of its own."""
    profile = shipped_profile("h100_x8")
    result = run_scenario(scenario_of(CapturedModel(offloading()), "offloading", profile, (PyTorch(),)))
    with house_style():
        assert len(memory_figure(result, result.subject).axes) == 1
        assert timeline_figure(result, result.subject).axes
    assert "to host" in perfetto_text(result, result.results)


def test_a_policy_that_recomputes_with_gathered_weights_says_that_it_keeps_them() -> None:
    """The chain with its first operation called as FSDP's; its checkpoint runs the first of two segments again."""
    step = chain()
    first = msgspec.structs.replace(step.operations[0], name="fsdp.all_gather_copy_in")
    step = msgspec.structs.replace(step, operations=(first, *step.operations[1:]), ranks=2, parallel="fsdp=2")
    asked = scenario_of(CapturedModel(step), "a rank", shipped_profile("h100_x8"), (PyTorch(), Checkpoint()))
    lines = contention_lines(run_scenario(asked))
    assert [each.partition(": ")[0] for each in lines] == ["pytorch(p)", "checkpoint(p)", "checkpoint(p)"]
    assert "keeps for its recomputation weights that forward gathered" in lines[-1]
