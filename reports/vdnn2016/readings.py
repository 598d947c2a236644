"""Claims of the vDNN paper under other readings, and on machines whose parameters are drawn.

Every parameter of the cost model and the bandwidth of the link are drawn independently and uniformly within 20 % of the
profile's value, fractions of a peak at most 1; every claim is checked again under each draw. The draws are seeded, so
equal input gives equal tables. Results are the share of draws that meet a claim, and the parameter whose rank
correlates most with the claim's value: if the share is small and the correlation large, that parameter decides it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import correlation
from typing import Any, Final

import msgspec
from pandas import DataFrame, Series

from reports.readings import PaperReading, ReadingRows, on_all_cores, read_readings
from reports.vdnn2016.shared_runs import SharedPlans, SharedRuns
from vdnnsim.claims.check import ClaimRow, Value, is_met
from vdnnsim.claims.claim import Claim, NetworkBatch
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory

SEED = 2016
DRAWS = 60
SPREAD = 0.20
LINK = "link bandwidth"
Asked = tuple[SharedRuns, Sequence[Claim]]


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

    @property
    def replays_anew(self) -> bool:
        """Whether other replays are needed, and not only other metrics."""
        return (self.options, self.memory_model, self.pinned_memory) != ({}, MemoryModel.IDEAL, PinnedMemory.ARENA)

    def runs(self, server: Server) -> SharedRuns:
        """Replays under this reading."""
        return SharedRuns(server, self.memory_model, self.pinned_memory, options=self.options)

    def read(self, claim: Claim) -> Claim:
        """A claim under this reading."""
        reading = self.metric_readings.get(claim.id, claim.reading)
        return msgspec.structs.replace(claim, reading=reading, metric=self.metrics.get(claim.metric, claim.metric))


READINGS: Final = read_readings("vdnn2016", VdnnReading)
"""The alternatives, in the order of the report."""


def compare_readings(
    claims: Sequence[Claim],
    runs: VdnnRuns,
    readings: Sequence[VdnnReading] = READINGS,
    progress: Callable[[str], object] = str,
) -> tuple[ReadingRows[VdnnReading], ...]:
    """Check every claim under every reading; `runs` are those by default, which serve where only metrics differ."""
    hardware = runs.server.name
    anew = [each for each in readings if each.replays_anew]
    found = values_on([(each.runs(runs.server), [each.read(claim) for claim in claims]) for each in anew], progress)
    replayed = dict(zip((each.name for each in anew), found, strict=True))

    def row(reading: VdnnReading, number: int) -> ClaimRow | None:
        claim = reading.read(claims[number])
        values = replayed.get(reading.name)
        value = METRICS.simulate(claim, runs, hardware) if values is None else values[number]
        return None if value is None else METRICS.row(claim, value, hardware)

    return tuple(ReadingRows(each, tuple(row(each, number) for number in range(len(claims)))) for each in readings)


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
    drawn = values_on([(SharedRuns(perturbed(server, each)), claims) for each in factors], progress)
    return tuple(_summarize(claim, list(values), factors) for claim, *values in zip(claims, *drawn, strict=True))


def _summarize(claim: Claim, values: list[Value | None], factors: Sequence[Mapping[str, float]]) -> Sensitivity:
    met = sum(value is not None and is_met(claim, value) for value in values) / len(values)
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


def values_on(asked: Sequence[Asked], progress: Callable[[str], object] = str) -> list[list[Value | None]]:
    """Return the values of each machine's claims, in their units; None if a policy refuses.

    A network is planned and placed once for all machines that rank its algorithms alike, and forgotten before the next.
    """
    networks = dict.fromkeys(each for _, claims in asked for claim in claims for each in METRICS.networks(claim))
    # The last are the deepest, which take longest and so begin first.
    order = list(reversed(networks))
    answers = dict(zip(order, on_all_cores(_of_network, [(each, asked) for each in order], progress), strict=True))
    return [
        [
            None if None in found else METRICS.together(claim, found)
            for number, claim in enumerate(claims)
            for found in [[answers[each][machine][number] for each in METRICS.networks(claim)]]
        ]
        for machine, (_, claims) in enumerate(asked)
    ]


def _of_network(work: tuple[NetworkBatch, Sequence[Asked]]) -> list[dict[int, Any]]:
    """Return by machine the values of a network for its claims, by their position."""
    network, asked = work
    shared = SharedPlans()
    return [
        {
            number: _answer(claim, runs, network)
            for runs in [replace(each, shared=shared)]
            for number, claim in enumerate(claims)
            if network in METRICS.networks(claim)
        }
        for each, claims in asked
    ]


def _answer(claim: Claim, runs: VdnnRuns, network: NetworkBatch) -> Any:  # noqa: ANN401  # of its metric
    try:
        return METRICS.of_one(claim, runs, runs.server.name, network)
    except PolicyError:
        return None
