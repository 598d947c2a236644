"""A scenario and all that `vdnnsim run` says of it: its replays, what is near them, what would make it fit."""

from collections.abc import Callable
from dataclasses import replace

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.neighbours import nearby
from vdnnsim.units import Precision


def answer(
    scenario: Scenario,
    types: PolicyTypes,
    recapture: Callable[[Precision], CapturedStep] | None = None,
    tell: Callable[[str], object] = str,
) -> ScenarioResult:
    """Replay a scenario, and what is near it.

    Args:
        scenario: the question.
        types: the policies that there are.
        recapture: captures a model in another precision; None where nobody can.
        tell: is told in a line what is done.

    Raises:
        PolicyError: no policy has a plan.
    """
    result = run_scenario(scenario, tell)
    tell("what else would fit")
    result = replace(result, nearby=nearby(scenario, result))
    if scenario.captured is None or any(row.fits for row in result.slowest):
        return result
    # Searches, which few runs need.
    from vdnnsim.study.advice import advice

    return replace(result, advice=advice(scenario, result, types, recapture))
