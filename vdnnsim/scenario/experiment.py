"""Experiments: a scenario replayed under its policies, or under others to compare, against the oracular baseline."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.kernel_origins import kernel_origins
from vdnnsim.analysis.results import Declined, PolicyResult, ScenarioResult, Setup
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.errors import PolicyError
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator


def run_scenario(
    scenario: Scenario,
    progress: Callable[[str], object] = str,
    done: Callable[[str], object] = str,
    *,
    all_may_decline: bool = False,
) -> ScenarioResult:
    """Replay every policy of a scenario and compare each with the oracular base(p).

    `progress` gets lines on the progress of searches, `done` the label of each finished policy. With `all_may_decline`
    there is a result even if no policy has a plan.

    Raises:
        PolicyError: no policy has a plan.
    """
    simulator = replace(simulator_of(scenario), progress=progress)
    oracle = simulator.oracle()
    rows: list[PolicyResult] = []
    refusals: list[tuple[str, PolicyError]] = []
    for number, policy in enumerate(scenario.policies):
        progress(f"{number} of {len(scenario.policies)} policies, {policy.label}")
        try:
            rows += simulator.run(policy, oracle)
        except PolicyError as refusal:
            refusals.append((policy.label, refusal))
        done(policy.label)
    if refusals and not rows and not all_may_decline:
        raise refusals[0][1]
    return ScenarioResult(
        **{each.name: getattr(scenario, each.name) for each in fields(Setup)},
        oracle=oracle,
        # Every algorithm of every convolution kernel once.
        algorithm_profiling_s=sum(
            kernel.seconds
            for layer in scenario.workload.graph.layers
            if layer.kind is LayerKind.CONV
            for phase in scenario.workload.phases(layer)
            for kernel in simulator.costs.options(layer.index, phase)
        ),
        results=tuple(rows),
        kernels=kernel_origins((row.trace.plan for row in rows), simulator.cost_model),
        declined=tuple(Declined.by(*each) for each in refusals),
    )


def compare_policies(scenario: Scenario, policies: Sequence[Policy], done: Callable[[str], object]) -> Comparison:
    """Replay other policies than a scenario's on its workload and machine; some or all may have no plan.

    `done` gets the label of each finished policy.
    """
    asked = replace(scenario, policies=tuple(policies))
    return Comparison(run_scenario(asked, done=done, all_may_decline=True))


def simulator_of(scenario: Scenario, cost_model: CostModel | None = None) -> Simulator:
    """Return the simulator of a scenario, with another cost model than its machine's if one is given."""
    return Simulator.of(
        scenario.workload,
        scenario.server,
        scenario.memory_model,
        scenario.pinned_memory,
        gpus=scenario.gpus,
        gradients=scenario.gradients,
        execution=scenario.execution,
        cost_model=cost_model,
    )
