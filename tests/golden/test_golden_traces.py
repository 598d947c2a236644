"""Whole iterations as text, one event a line, so that a change of a prediction shows as a diff.

Rewritten only with `pytest --update-golden`; CHANGELOG.md then says why the numbers moved.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.toy import replay, toy_costs, toy_graph, toy_setting, toy_workload
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.trace import IterationTrace, Span, Stall
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.simulator import Simulator

HERE = Path(__file__).parent
SCENARIOS = HERE.parents[1] / "scenarios"


def as_text(trace: IterationTrace) -> str:
    """Return time, place and name of each event, durations in brackets, and the memory in use after each change."""
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
    text = "conv1 conv relu; left conv 3 relu; right pool conv1; join concat left right; conv2 conv relu"
    workload = toy_workload(toy_graph(text))
    costs = toy_costs(workload, {}, default_s=8.0)
    return replay(VdnnAll().plan(toy_setting(workload, costs)), costs)


def alexnet(policy: Policy) -> IterationTrace:
    """AlexNet (128) on the Titan X."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    simulator = Simulator.of(scenario.workload, scenario.server, scenario.memory_model, scenario.pinned_memory)
    return simulator.run(policy, simulator.oracle())[0].trace


CASES: dict[str, Callable[[], IterationTrace]] = {
    "toy_fork": toy_fork,
    "alexnet_all_m": partial(alexnet, VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL)),
    "alexnet_conv_p": partial(alexnet, VdnnConv()),
}


@pytest.mark.parametrize("case", CASES)
def test_a_replay_matches_its_golden_trace(case: str, *, update_golden: bool) -> None:
    golden, text = HERE / f"{case}.txt", as_text(CASES[case]())
    if update_golden:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
