"""A map of 5 elements, normalized over a batch of four images, or not normalized at all."""

from dataclasses import replace

import pytest

from reports.swap2018.scaling import scaling_figure
from tests.toy import TOY_LIMITS, TOY_SERVER, toy_chain, toy_costs, toy_workload
from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode
from vdnnsim.hardware.server import Origin
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Resident
from vdnnsim.policies.interface import Policy
from vdnnsim.report.caveats import kernel_times, part_statistics, peaks_note
from vdnnsim.report.plots.iteration.timeline import timeline_figure
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.plots.policy_points import comparison_figure
from vdnnsim.report.run.folder import run_facts
from vdnnsim.report.run.page import page_text, result_table
from vdnnsim.scenario.simulator import Simulator

PEAKS = "Kernel times: 2 of 2 from datasheet peaks, which no kernel reaches; copies weigh more here than on the card"


def kernels(*origins: Origin) -> KernelOrigins:
    return KernelOrigins({(layer, Phase.FORWARD, "only", 1): origin for layer, origin in enumerate(origins)})


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        ((Origin.DATASHEET, Origin.DATASHEET), PEAKS),
        ((Origin.FITTED,), "Kernel times: 1 of 1 fitted to measurements"),
        ((Origin.MEASURED,), "Kernel times: 1 of 1 measured"),
        ((Origin.FITTED, Origin.MEASURED), "Kernel times: 1 measured, 1 fitted to measurements"),
        (
            (Origin.DATASHEET, Origin.FITTED, Origin.MEASURED, Origin.MEASURED),
            PEAKS.replace("2 of 2", "2 measured, 1 fitted to measurements, 1"),
        ),
    ],
)
def test_kernel_times_by_origin_the_best_known_first(origins: tuple[Origin, ...], said: str) -> None:
    assert kernel_times(kernels(*origins)) == (said,)


def test_a_table_without_the_element_type_is_named() -> None:
    lacking = replace(kernels(Origin.FITTED), gap="toy.csv times no kernel in bfloat16")
    assert kernel_times(lacking)[1:] == ("Kernels: toy.csv times no kernel in bfloat16",)
    assert kernel_times(KernelOrigins()) == ()


def test_terminal_report_and_manifest_state_origins(result: ScenarioResult) -> None:
    stated = replace(result, kernels=kernels(Origin.DATASHEET, Origin.DATASHEET))
    assert f"- {PEAKS}" in printed(result_table(stated), width=400)
    assert f"{PEAKS}." in page_text(stated, {}, ()).splitlines()
    manifest = run_facts(stated)
    assert (manifest["kernel_times"], manifest["kernel_table_gap"]) == ({"datasheet": 2}, None)


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
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1, relu=False))


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
