"""A map of 5 elements, normalized over a batch of four images, or not normalized at all."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from reports.swap2018.scaling import scaling_figure
from tests.captured_ranks import sharded
from tests.captured_steps import checkpointed
from tests.machines import shipped_profile
from tests.toy import TOY_LIMITS, TOY_SERVER, server_with, toy_chain, toy_costs, toy_workload, with_fc
from tests.two_gpus import PEERED
from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import RecordEvent
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, part_statistics, peaks_note, profile_gaps
from vdnnsim.report.plots.iteration.timeline import timeline_figure
from vdnnsim.report.plots.policies import comparison_figure, policies_figure
from vdnnsim.report.run.folder import run_facts
from vdnnsim.report.run.page import page_text, result_table
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import ElementType

PEAKS = (
    "Kernel times: all 2.00 s from datasheet peaks, which no kernel reaches; copies weigh more here than on the card"
)


def kernels(*origins: Origin) -> KernelOrigins:
    """Kernels of 1 s each in one iteration."""
    return KernelOrigins({origin: float(origins.count(origin)) for origin in origins}, 1)


@pytest.mark.parametrize(
    ("origins", "fragments"),
    [
        ((Origin.DATASHEET, Origin.DATASHEET), (PEAKS,)),
        ((Origin.FITTED,), ("all 1.00 s from rates fitted",)),
        ((Origin.MEASURED,), ("all 1.00 s measured",)),
        (
            (Origin.ASSUMED, Origin.FITTED, Origin.ASSUMED, Origin.MEASURED),
            (
                "of 4.00 s ",
                "1.00 s (25 %) measured, ",
                "1.00 s (25 %) from rates fitted",
                "2.00 s (50 %) from rates carried",
            ),
        ),
    ],
)
def test_seconds_of_kernels_by_origin_best_known_first(origins: tuple[Origin, ...], fragments: Sequence[str]) -> None:
    (said,) = kernel_times(kernels(*origins))
    places = [said.index(each) for each in fragments]
    assert places == sorted(places)


def test_what_next_to_no_second_rests_on_is_not_told() -> None:
    (said,) = kernel_times(KernelOrigins({Origin.FITTED: 0.001, Origin.ASSUMED: 1.999}, 3))
    assert said.startswith("Kernel times: all 2.00 s of 3 iterations from rates carried over")
    # A table without the element type is named.
    lacking = replace(kernels(Origin.FITTED), gap="toy.csv times no kernel in bfloat16")
    assert kernel_times(lacking)[1:] == ("Kernels: toy.csv times no kernel in bfloat16",)
    assert kernel_times(KernelOrigins()) == ()


def test_terminal_report_and_manifest_state_origins(result: ScenarioResult) -> None:
    stated = replace(result, kernels=kernels(Origin.DATASHEET, Origin.DATASHEET))
    assert f"- {PEAKS}" in printed(result_table(stated), width=400)
    assert f"{PEAKS}." in page_text(stated, {}, ()).splitlines()
    manifest = run_facts(stated)
    assert (manifest["kernel_seconds"], manifest["kernel_table_gap"]) == ({"datasheet": 2.0}, None)


def test_pictures_of_times_note_datasheet_peaks(result: ScenarioResult, move: PolicyResult) -> None:
    mixed, peaks = kernels(Origin.DATASHEET, Origin.FITTED), kernels(Origin.DATASHEET)
    assert peaks_note(mixed) == "; some kernel times are datasheet peaks"
    assert peaks_note(kernels(Origin.FITTED, Origin.MEASURED)) == ""
    stated = replace(result, kernels=peaks)
    figures = (
        policies_figure(stated),
        timeline_figure(stated, move),
        scaling_figure([stated]),
        comparison_figure(Comparison(stated), "title"),
    )
    assert all(each.texts[1].get_text().endswith("; kernel times are datasheet peaks") for each in figures)


def normalized() -> LayerGraph:
    net = GraphBuilder("toy", MapShape(5, 1, 1))
    y = net.batch_norm("bn", net.conv("conv", 0, 5, 1, relu=False), relu=False)
    return with_fc(net, y)


def run(result: ScenarioResult, graph: LayerGraph, *policies: Policy, mode: Mode = Mode.TRAINING) -> ScenarioResult:
    """The result of policies for four images of a network."""
    workload = replace(toy_workload(graph), batch_size=4, mode=mode)
    simulator = Simulator(workload, TOY_SERVER, toy_costs(workload, {}), TOY_LIMITS, PinnedMemory.ARENA)
    oracle = simulator.oracle()
    rows = tuple(row for policy in policies for row in simulator.run(policy, oracle))
    return replace(result, workload=workload, oracle=oracle, results=rows)


@pytest.mark.parametrize(("steps", "part"), [(2, "2 images"), (4, "1 image")])
def test_batch_norm_over_parts_is_reported(result: ScenarioResult, steps: int, part: str) -> None:
    found = run(result, normalized(), Accumulate(steps=1), Accumulate(steps=steps), Resident())
    (line,) = part_statistics(found)
    assert line.startswith(f"accumulate(p, steps={steps}): ")
    assert f"over parts of {part}, not over all 4" in line


def test_no_note_without_batch_statistics(result: ScenarioResult) -> None:
    parts = Accumulate(steps=2)
    assert part_statistics(run(result, toy_chain(1), parts)) == ()
    assert part_statistics(run(result, normalized(), parts, mode=Mode.INFERENCE)) == ()


@pytest.mark.parametrize(("network", "has_some"), [("gpt2_small", False), ("alexnet", True)])
def test_letters_behind_policies_are_explained_also_without_convolutions(network: str, has_some: bool) -> None:  # noqa: FBT001
    """They stand behind every policy by rule; vdnn_dyn has none."""
    workload = Workload(build_network(network), batch_size=1)
    _, meant = glossary(("base(p)", "vdnn_all(m)"), workload)
    assert ("(p): " in meant, "(m): " in meant, meant.endswith("has none")) == (True, True, not has_some)
    assert glossary(("vdnn_dyn",), workload, of_speed=False) == ()


def test_why_a_rank_that_fits_is_slower_than_with_unlimited_memory() -> None:
    """Where memory of collectives is freed, their stream waits for an event first; base(p) frees nothing."""
    server = replace(server_with({"launch_overhead_s": 1.0}), topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(sharded()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    events = [
        sum(isinstance(each, RecordEvent) for each in row.trace.plan.operations)
        for policy in (PyTorch(), Base())
        for row in simulator.run(policy, None)
    ]
    assert events[0] > events[1]
    for ranks in (1, 2):
        workload = CapturedWorkload.of(msgspec.structs.replace(sharded(), ranks=ranks))
        assert ("events" in glossary((), workload)[0]) is (ranks > 1)


@pytest.mark.parametrize(
    ("columns", "element_type", "is_compiled", "card", "said"),
    [
        (50257, "float16", False, "rtx_4090", "50257 elements (head)"),
        (50257, "float16", True, "rtx_4090", ""),
        (50257, "float32", False, "rtx_4090", ""),
        (50264, "float16", False, "rtx_4090", ""),
        (1, "float16", False, "rtx_4090", ""),
        (50257, "float16", False, "p100", ""),
    ],
)
def test_large_products_of_unaligned_rows_are_named(
    columns: int, element_type: str, card: str, said: str, *, is_compiled: bool
) -> None:
    """16 B are 8 elements of 16 bits: 50264 = 6283 x 8; the product with one column is too small.

    A P100 has no tensor cores, for which rows matter.
    """
    step = checkpointed()
    work = {0: ProductWork(1, 2, 4096, 4096), 2: ProductWork(1, 2, columns, 4096)}
    operations = (
        msgspec.structs.replace(
            each, element_type=element_type, work=work[at], flop={Arithmetic.PRODUCT: work[at].flop}
        )
        if at in work
        else each
        for at, each in enumerate(step.operations)
    )
    step = msgspec.structs.replace(step, operations=tuple(operations), compiled=is_compiled)
    model = CapturedModel(step)
    _, *lines = capture_lines(scenario_of(model, "x", shipped_profile(card), ()))
    assert said in "".join(lines)
    assert bool(said) is any("16 B" in each for each in lines)


def test_what_the_profile_of_an_old_card_lacks_is_said(result: ScenarioResult) -> None:
    """A Titan X (Maxwell) computes bfloat16 by assumption alone, and states no context, which no ideal memory has."""
    workload = replace(result.workload, element_type=ElementType.BFLOAT16)
    old = replace(result, workload=workload, server=shipped_profile("titan_x_maxwell").server)
    (assumed,) = profile_gaps(old)
    assert assumed.startswith("gpu.peak.bfloat16 of titan_x_maxwell is assumed: as float16; no library of its time")
    _, context = profile_gaps(replace(old, memory_model=MemoryModel.PYTORCH))
    assert context == "titan_x_maxwell states no context of CUDA, so a process takes that more than is said here"
    assert not list(profile_gaps(replace(old, server=shipped_profile("rtx_4090").server)))
