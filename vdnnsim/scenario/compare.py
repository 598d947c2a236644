"""Many policies on one scenario, of which some may have no plan for it."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from vdnnsim.analysis.comparison import Comparison
from vdnnsim.policies.interface import Policy
from vdnnsim.scenario.experiment import run_policies
from vdnnsim.scenario.scenario import Scenario


def compare_policies(scenario: Scenario, policies: Sequence[Policy], done: Callable[[str], None]) -> Comparison:
    """Replay policies on the workload and the machine of a scenario, whatever policies it names itself.

    Args:
        scenario: the question.
        policies: what is compared.
        done: is told of each policy when it is done.
    """
    return Comparison(run_policies(replace(scenario, policies=tuple(policies)), done, []))
