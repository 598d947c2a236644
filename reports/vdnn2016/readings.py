"""Claims of the vDNN paper under other readings, and on machines whose parameters are drawn.

Every parameter of the cost model and the bandwidth of the link are drawn independently and uniformly within 20 % of the
profile's value, fractions of a peak at most 1; every claim is checked again under each draw. The draws are seeded, so
equal input gives equal tables. Results are the share of draws that meet a claim, and the parameter whose rank
correlates most with the claim's value: if the share is small and the correlation large, that parameter decides it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import correlation
from typing import Final

import msgspec
from pandas import DataFrame, Series

from reports.readings import PaperReading, ReadingRows, checked, on_all_cores, read_readings
from vdnnsim.claims.check import ClaimRow, Value, is_met
from vdnnsim.claims.claim import Claim
from vdnnsim.claims.replays import labelled_policy
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.policies.interface import Policy

SEED = 2016
DRAWS = 60
SPREAD = 0.20
LINK = "link bandwidth"


@dataclass
class ReadRuns(VdnnRuns):
    """Replays under another reading.

    Attributes:
        options: of all runs of a policy, by its name.
    """

    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)

    def policy(self, label: str) -> Policy:
        return labelled_policy(label, self.options.get(label.partition("(")[0], {}))


@dataclass(frozen=True)
class VdnnReading(PaperReading):
    """One alternative to how the claims are read.

    Attributes:
        metric_readings: by id of a claim, the reading of its metric.
        metrics: by metric, the one that is computed instead.
    """

    pinned_memory: PinnedMemory = PinnedMemory.ARENA
    metric_readings: Mapping[str, str] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)

    def runs(self, server: Server) -> VdnnRuns:
        """Replays under this reading."""
        return ReadRuns(server, self.memory_model, self.pinned_memory, options=self.options)

    def read(self, claim: Claim) -> Claim:
        """A claim under this reading."""
        reading = self.metric_readings.get(claim.id, claim.reading)
        return msgspec.structs.replace(claim, reading=reading, metric=self.metrics.get(claim.metric, claim.metric))


READINGS: Final = read_readings("vdnn2016", VdnnReading)
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    server: Server,
    readings: Sequence[VdnnReading] = READINGS,
    progress: Callable[[str], object] = str,
) -> tuple[ReadingRows[VdnnReading], ...]:
    """Check every claim under every reading."""
    rows = on_all_cores(partial(_rows, claims, server), readings, progress)
    return tuple(map(ReadingRows, readings, rows))


def _rows(claims: Sequence[Claim], server: Server, reading: VdnnReading) -> tuple[ClaimRow | None, ...]:
    runs = reading.runs(server)
    return tuple(checked(METRICS, reading.read(claim), runs, server.name) for claim in claims)


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """One claim under the draws.

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
    claims: Sequence[Claim], server: Server, draws: int = DRAWS, progress: Callable[[str], object] = str
) -> tuple[Sensitivity, ...]:
    """Check every claim under every draw, on all cores."""
    factors = draw_factors(server, draws)
    drawn = on_all_cores(partial(_values, claims), [perturbed(server, each) for each in factors], progress)
    return tuple(_summarize(claim, values, factors) for claim, *values in zip(claims, *drawn, strict=True))


def _values(claims: Sequence[Claim], server: Server) -> list[Value]:
    runs = VdnnRuns(server)
    return [METRICS.simulate(claim, runs, server.name) for claim in claims]


def _summarize(claim: Claim, values: Sequence[Value], factors: Sequence[Mapping[str, float]]) -> Sensitivity:
    met = sum(is_met(claim, value) for value in values) / len(values)
    numbers = [value for value in values if isinstance(value, float)]
    if len(numbers) < len(values):
        return Sensitivity(claim, met, None, None, None, None)
    if max(numbers) == min(numbers):
        return Sensitivity(claim, met, min(numbers), max(numbers), None, None)
    ranks = list(Series(numbers).rank())
    by_name = DataFrame(factors).rank().to_dict("list")
    correlations = {str(name): correlation(of_factor, ranks) for name, of_factor in by_name.items()}
    driver = max(correlations, key=lambda name: abs(correlations[name]))
    return Sensitivity(claim, met, min(numbers), max(numbers), driver, correlations[driver])
