"""Whole iterations as text, one event a line: a change of a prediction shows as a story.

Rewritten only with `pytest --update-golden`; CHANGELOG.md then says why the numbers moved.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.toy import replay, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.plans.operations import describe
from vdnnsim.plans.trace import IterationTrace, Span, Stall
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.simulator import Simulator

HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "scenarios"


def story(trace: IterationTrace) -> str:
    """Tell a trace: when, where, what; durations in brackets, memory in use behind every change."""
    plan = trace.plan

    def name(operation: int) -> str:
        return describe(plan.operations[operation], plan.buffer_names, plan.layers)

    def lasts(interval: Span | Stall) -> str:
        return f"[{_clock(interval.end_s - interval.start_s)}]"

    events = [(s.start_s, s.operation, f"{s.stream.value}: {name(s.operation)} {lasts(s)}") for s in trace.spans]
    events += [(s.start_s, s.blocked, f"stall: {s.cause.value} {lasts(s)}") for s in trace.stalls]
    in_use = 0
    for change in trace.memory:
        in_use += change.delta_bytes
        events.append((change.time_s, change.operation, f"pool: {name(change.operation)} -> {in_use} B"))
    lines = [f"{_clock(time_s)}  {text}" for time_s, _, text in sorted(events)]
    return "\n".join([*lines, f"{_clock(trace.iteration_s)}  end", ""])


def _clock(seconds: float) -> str:
    return f"{seconds:.6f} s"


def toy_fork() -> IterationTrace:
    """A fork and a join on the toy machine, under vdnn_all."""
    net = GraphBuilder("fork", MapShape(5, 1, 1))
    x = net.conv("conv1", 0, 5, 1)
    a = net.conv("left", x, 3, 1)
    b = net.pool("right", x, 1, stride=1)
    y = net.conv("conv2", net.concat("join", (a, b)), 5, 1)
    net.begin_classifier()
    workload = toy_workload(net.build(net.fc("fc", y, 1, relu=False)))
    costs = toy_costs(workload, {}, default_s=8.0)
    return replay(VdnnAll().plan(toy_setting(workload, costs)), costs)


def alexnet_all_m() -> IterationTrace:
    """AlexNet (128) on the Titan X under vdnn_all(m)."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    simulator = Simulator.of(scenario.workload, scenario.server, scenario.memory_model, scenario.pinned_memory)
    return simulator.run(VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL), simulator.oracle())[0].trace


def alexnet_conv_p() -> IterationTrace:
    """AlexNet (128) on the Titan X under vdnn_conv(p)."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    simulator = Simulator.of(scenario.workload, scenario.server, scenario.memory_model, scenario.pinned_memory)
    return simulator.run(VdnnConv(), simulator.oracle())[0].trace


@pytest.mark.parametrize("case", [toy_fork, alexnet_all_m, alexnet_conv_p])
def test_a_replay_tells_the_same_story(case: Callable[[], IterationTrace], *, update_golden: bool) -> None:
    golden = HERE / f"{case.__name__}.txt"
    told = story(case())
    if update_golden:
        golden.write_text(told, encoding="utf-8")
    assert told == golden.read_text(encoding="utf-8")
