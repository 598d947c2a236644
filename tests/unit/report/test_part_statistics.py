"""A map of 5 elements, normalized over a batch of four images, or not normalized at all."""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, toy_chain, toy_costs, toy_workload
from tests.unit.report.test_table import printed
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.bench import Bench
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.port import Policy
from vdnnsim.policies.resident import Resident
from vdnnsim.report.markdown import markdown_text
from vdnnsim.report.part_statistics import part_statistics
from vdnnsim.report.table import comparison_table, result_table

LINE = (
    "accumulate(p, steps=2): batch normalization takes its statistics over parts of 2 images, not over all 4: what is "
    "trained is not quite what the other rows train"
)


def normalized() -> LayerGraph:
    net = GraphBuilder("toy", MapShape(5, 1, 1))
    y = net.batch_norm("bn", net.conv("conv", 0, 5, 1, relu=False), relu=False)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1, relu=False))


def run(result: ScenarioResult, graph: LayerGraph, *policies: Policy, mode: Mode = Mode.TRAINING) -> ScenarioResult:
    """The result of policies for four images of a network."""
    workload = replace(toy_workload(graph), batch_size=4, mode=mode)
    bench = Bench(workload, TOY_SERVER, toy_costs(workload, {}), TOY_LIMITS, PinnedMemory.ARENA)
    oracle = bench.oracle()
    rows = tuple(row for policy in policies for row in bench.run(policy, oracle))
    return replace(result, workload=workload, oracle=oracle, results=rows)


@pytest.mark.parametrize(("steps", "part"), [(2, "2 images"), (4, "1 image")])
def test_parts_that_are_normalized_apart_are_named(result: ScenarioResult, steps: int, part: str) -> None:
    found = run(result, normalized(), Accumulate(steps=1), Accumulate(steps=steps), Resident())
    (line,) = part_statistics(found)
    assert line.startswith(
        f"accumulate(p, steps={steps}): batch normalization takes its statistics over parts of {part}, "
    )


def test_nothing_is_said_without_statistics_of_a_batch(result: ScenarioResult) -> None:
    """A network without such layers has none, and inference takes those that training left."""
    parts = Accumulate(steps=2)
    assert part_statistics(run(result, toy_chain(1), parts)) == ()
    assert part_statistics(run(result, normalized(), parts, mode=Mode.INFERENCE)) == ()


def test_terminal_report_and_comparison_say_it(result: ScenarioResult) -> None:
    found = run(result, normalized(), Accumulate(steps=2))
    assert f"- {LINE}" in printed(result_table(found), width=400)
    assert f"- {LINE}" in printed(comparison_table(Comparison(found, ())), width=400)
    assert f"{LINE}." in markdown_text(found, {}, ()).splitlines()
