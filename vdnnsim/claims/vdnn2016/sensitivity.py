"""Which claims are robust, and which hang on one number.

Every parameter of the cost model and the bandwidth of the link are drawn independently and uniformly within 20 % of
the profile's value, fractions of a peak at most 1; every claim is checked again under each draw. The draws are seeded,
so equal input gives equal tables. Beside the share of draws that meet a claim stands the parameter whose rank
correlates most with the claim's value: where the share is small and the correlation large, the claim hangs on it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import correlation

from vdnnsim.claims.claim import Claim
from vdnnsim.claims.row import Value, is_met
from vdnnsim.claims.vdnn2016.machines import values_on
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.server import Server

SEED = 2016
DRAWS = 60
SPREAD = 0.20
LINK = "link bandwidth"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What the draws did to one claim.

    Attributes:
        met: share of the draws under which it holds.
        least, most: the extremes of its value; None for texts.
        driver, rank_correlation: the parameter that orders its values best, and how well; None where values are
            texts or do not move.
    """

    claim: Claim
    met: float
    least: float | None
    most: float | None
    driver: str | None
    rank_correlation: float | None


def draw_factors(server: Server, draws: int = DRAWS, seed: int = SEED) -> tuple[Mapping[str, float], ...]:
    """Return, for each draw, a factor between 0.8 and 1.2 for each parameter by name."""
    generator = random.Random(seed)  # noqa: S311  a study draws, it keeps no secret
    names = (*server.cost_model, LINK)
    return tuple({name: 1 + SPREAD * (2 * generator.random() - 1) for name in names} for _ in range(draws))


def perturbed(server: Server, factors: Mapping[str, float]) -> Server:
    """Return a machine whose parameters are multiplied by the factors of one draw."""
    cost_model = {name: value * factors[name] for name, value in server.cost_model.items()}
    capped = {name: min(1.0, value) if name.endswith("_fraction") else value for name, value in cost_model.items()}
    link = replace(
        server.link,
        h2d_bytes_per_s=server.link.h2d_bytes_per_s * factors[LINK],
        d2h_bytes_per_s=server.link.d2h_bytes_per_s * factors[LINK],
    )
    return replace(server, cost_model=capped, link=link)


def sensitivity(
    claims: Sequence[Claim], server: Server, draws: int = DRAWS, tell: Callable[[str], object] = str
) -> tuple[Sensitivity, ...]:
    """Check every claim under every draw, on all cores."""
    factors = draw_factors(server, draws)
    drawn = values_on([(VdnnRuns(perturbed(server, each)), claims) for each in factors], tell)
    return tuple(_summarize(claim, list(values), factors) for claim, *values in zip(claims, *drawn, strict=True))


def _summarize(claim: Claim, values: list[Value | None], factors: Sequence[Mapping[str, float]]) -> Sensitivity:
    met = sum(value is not None and is_met(claim, value) for value in values) / len(values)
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        return Sensitivity(claim, met, None, None, None, None)
    if max(numbers) == min(numbers):
        return Sensitivity(claim, met, min(numbers), max(numbers), None, None)
    ranks = _ranks(numbers)
    correlations = {name: correlation(_ranks([each[name] for each in factors]), ranks) for name in factors[0]}
    driver = max(correlations, key=lambda name: abs(correlations[name]))
    return Sensitivity(claim, met, min(numbers), max(numbers), driver, correlations[driver])


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    ordered = sorted(values)
    first = {value: ordered.index(value) for value in set(values)}
    return [first[value] + (1 + ordered.count(value)) / 2 for value in values]
