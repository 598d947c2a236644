"""Ranking of machines for one workload by time or cost, with expected errors."""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from vdnnsim.cost.trust import Trust

_SECONDS_PER_HOUR = 3600
_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Offer:
    """Result of a machine under the fastest policy that fits.

    Attributes:
        names: of the profiles, several where all numbers are equal.
        iteration_s: of several GPUs until the last is done.
        samples_per_s: of all GPUs together.
        asked_bytes: peak of allocated memory on one GPU.
        reserved_bytes: of the allocator on one GPU.
        held_bytes: process memory on one GPU.
        cost: of an epoch, or of a thousand steps; None without a price.
    """

    names: tuple[str, ...]
    gpu: str
    policy: str
    iteration_s: float
    samples_per_s: float
    asked_bytes: int
    reserved_bytes: int
    held_bytes: int
    memory_bytes: int
    trust: Trust
    notes: tuple[str, ...] = ()
    cost: float | None = None

    @property
    def name(self) -> str:
        return ", ".join(self.names)


def cost_of(per_hour: float, gpus: int, iteration_s: float, samples: int, samples_per_epoch: int | None) -> float:
    """Return the cost of an epoch, or of 1000 steps, by price per GPU and hour; `samples` are of a step on all GPUs."""
    steps = _STEPS if samples_per_epoch is None else samples_per_epoch / samples
    return per_hour * gpus * steps * iteration_s / _SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Unfit:
    """A machine on which no policy fits of those that were tried, and why; undecided where others were not in time.

    Nothing but the plain loop was tried where it `is_slow`.
    """

    name: str
    reason: str
    undecided: bool = False
    is_slow: bool = False


class Order(Enum):
    """Whether two machines differ by more than their errors, as a mark before the rank of the second."""

    CERTAIN = ""
    WITHIN_ERROR = "~"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Machines in order of cost where prices are given, else of time.

    Attributes:
        currency: of the costs; empty without prices.
        samples_per_epoch: None where costs are of a thousand steps.
    """

    offers: tuple[Offer, ...]
    unfit: tuple[Unfit, ...]
    policies: tuple[str, ...]
    currency: str = ""
    samples_per_epoch: int | None = None

    @property
    def unit(self) -> str:
        return f"{self.currency} per {'1000 steps' if self.samples_per_epoch is None else 'epoch'}"

    @property
    def order(self) -> tuple[Order, ...]:
        """For each offer, whether its place behind the previous one is certain."""
        return (Order.CERTAIN, *(_order(*pair) for pair in pairwise(self.offers)))[: len(self.offers)]

    @property
    def rivals(self) -> tuple[str, ...]:
        """The machines within the expected errors of the first."""
        return tuple(each.name for each in self.offers[1:] if _order(self.offers[0], each) is Order.WITHIN_ERROR)


def _order(first: Offer, second: Offer) -> Order:
    if (first.cost is None) is not (second.cost is None):
        return Order.CERTAIN  # one without a price stands behind all that have one
    ranges = [each.trust.range_s(each.iteration_s) for each in (first, second)]
    if ranges[0] is None or ranges[1] is None:
        return Order.UNKNOWN
    weights = [1.0 if each.cost is None else each.cost / each.iteration_s for each in (first, second)]
    return Order.CERTAIN if weights[0] * ranges[0][1] < weights[1] * ranges[1][0] else Order.WITHIN_ERROR
