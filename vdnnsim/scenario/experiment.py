"""One scenario, all parts together: each of its policies in the simulator, against the oracular baseline."""

from collections.abc import Callable
from dataclasses import replace

from vdnnsim.analysis.kernel_origins import kernel_origins
from vdnnsim.analysis.results import Declined, PolicyResult, ScenarioResult
from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator


def run_scenario(scenario: Scenario, tell: Callable[[str], object] = str) -> ScenarioResult:
    """Replay every policy of a scenario and compare each with the oracular base(p).

    Args:
        scenario: the question.
        tell: is told in a line how far a search is.

    Raises:
        PolicyError: no policy has a plan; one that has none takes no other with it.
    """
    refusals: list[PolicyError] = []
    result = run_policies(scenario, lambda _: None, refusals, tell)
    if refusals and not result.results:
        raise refusals[0]
    return result


def run_policies(
    scenario: Scenario,
    done: Callable[[str], None],
    refusals: list[PolicyError],
    tell: Callable[[str], object] = str,
) -> ScenarioResult:
    """Replay every policy of a scenario that has a plan; what the others say is in the result.

    Args:
        scenario: the question.
        done: is told of each policy when it is done.
        refusals: gets what the others raised.
        tell: is told in a line how far a search is.
    """
    simulator = replace(simulator_of(scenario), tell=tell)
    oracle = simulator.oracle()
    rows: list[PolicyResult] = []
    declined: list[Declined] = []
    for number, policy in enumerate(scenario.policies):
        tell(f"{number} of {len(scenario.policies)} policies, {policy.label}")
        try:
            rows += simulator.run(policy, oracle)
        except PolicyError as refusal:
            refusals.append(refusal)
            declined.append(Declined.by(policy.label, refusal))
        done(policy.label)
    return ScenarioResult(
        name=scenario.name,
        workload=scenario.workload,
        server=scenario.server,
        memory_model=scenario.memory_model,
        pinned_memory=scenario.pinned_memory,
        sources=scenario.sources,
        oracle=oracle,
        algorithm_profiling_s=algorithm_profiling_seconds(scenario.workload, simulator.costs),
        results=tuple(rows),
        gpus=scenario.gpus,
        gradients=scenario.gradients,
        kernels=kernel_origins((row.trace.plan for row in rows), simulator.cost_model),
        captured=scenario.captured,
        execution=scenario.execution,
        declined=tuple(declined),
    )


def simulator_of(scenario: Scenario, cost_model: CostModel | None = None) -> Simulator:
    """Return the workload of a scenario on its machine, with another cost model than the machine's if one is given."""
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


def algorithm_profiling_seconds(workload: Workload, costs: CostTable) -> float:
    """Return the time to run every algorithm of every convolution kernel once."""
    return sum(
        kernel.seconds
        for layer in workload.graph.layers
        if layer.kind is LayerKind.CONV
        for phase in workload.phases(layer)
        for kernel in costs.options(layer.index, phase)
    )
