"""Many policies on one scenario, of which some may have no plan for it."""

from collections.abc import Callable, Sequence

from vdnnsim.analysis.comparison import Comparison, Declined
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.errors import PolicyError
from vdnnsim.experiment import scenario_result, simulator_of
from vdnnsim.policies.port import Policy
from vdnnsim.scenario.scenario import Scenario


def compare_policies(scenario: Scenario, policies: Sequence[Policy], done: Callable[[str], None]) -> Comparison:
    """Replay policies on the workload and the machine of a scenario, whatever policies it names itself.

    Args:
        scenario: the question.
        policies: what is compared.
        done: is told of each policy when it is done.
    """
    simulator = simulator_of(scenario)
    oracle = simulator.oracle()
    rows: list[PolicyResult] = []
    declined: list[Declined] = []
    for policy in policies:
        try:
            rows += simulator.run(policy, oracle)
        except PolicyError as refusal:
            declined.append(Declined(policy.label, str(refusal).removeprefix(f"{policy.label}: ")))
        done(policy.label)
    return Comparison(scenario_result(scenario, simulator, oracle, tuple(rows)), tuple(declined))
