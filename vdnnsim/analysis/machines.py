"""Machines held against each other for one workload: which hold it, with which policy, how fast, how sure that is."""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from vdnnsim.cost.trust import Trust

_SECONDS_PER_HOUR = 3600
_STEPS = 1000


@dataclass(frozen=True, slots=True)
class Offer:
    """What a machine does with the workload under the fastest of the policies that fit.

    Attributes:
        names: of the profiles, several where all of it is the same for them.
        iteration_s: of several GPUs until the last is done.
        samples_per_s: of all GPUs together.
        asked_bytes: the most that buffers take at once on one GPU.
        held_bytes: what its driver counts: with the gaps of the allocator and the context of CUDA.
        memory_bytes: of one GPU.
        notes: what is to be known of its kernel times.
        cost: of an epoch, or of a thousand steps; None where no price is given.
    """

    names: tuple[str, ...]
    gpu: str
    policy: str
    iteration_s: float
    samples_per_s: float
    asked_bytes: int
    held_bytes: int
    memory_bytes: int
    trust: Trust
    notes: tuple[str, ...] = ()
    cost: float | None = None

    @property
    def name(self) -> str:
        """The names together."""
        return ", ".join(self.names)


def cost_of(per_hour: float, gpus: int, iteration_s: float, samples: int, samples_per_epoch: int | None) -> float:
    """Return what an epoch costs, or a thousand steps without `samples_per_epoch`, by the price of one GPU an hour.

    `samples` are those of a step on all GPUs.
    """
    steps = _STEPS if samples_per_epoch is None else samples_per_epoch / samples
    return per_hour * gpus * steps * iteration_s / _SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class Unfit:
    """A machine that does not hold the workload under any of the policies, and why."""

    name: str
    reason: str


class Order(Enum):
    """Whether the order of two machines is more than their errors, as a mark before the rank of the second."""

    CERTAIN = ""
    WITHIN_ERROR = "~"
    UNKNOWN = "?"


@dataclass(frozen=True, slots=True)
class Ranking:
    """Machines in their order: the cheapest first where prices are given, and the fastest where not.

    Attributes:
        policies: that were tried.
        currency: of the costs; empty where there are none.
        samples_per_epoch: that the costs are of; None where they are of a thousand steps.
    """

    offers: tuple[Offer, ...]
    unfit: tuple[Unfit, ...]
    policies: tuple[str, ...]
    currency: str = ""
    samples_per_epoch: int | None = None

    @property
    def unit(self) -> str:
        """What the costs are of."""
        return f"{self.currency} per {'1000 steps' if self.samples_per_epoch is None else 'epoch'}"

    @property
    def order(self) -> tuple[Order, ...]:
        """Of each offer whether its place behind the one before is more than what both may be off by."""
        return (Order.CERTAIN, *(_order(*pair) for pair in pairwise(self.offers)))[: len(self.offers)]

    @property
    def rivals(self) -> tuple[str, ...]:
        """The machines whose expected time or cost reaches below the largest that is expected of the first."""
        return tuple(each.name for each in self.offers[1:] if _order(self.offers[0], each) is Order.WITHIN_ERROR)


def _order(first: Offer, second: Offer) -> Order:
    if (first.cost is None) is not (second.cost is None):
        return Order.CERTAIN  # one without a price stands behind all that have one
    ranges = [each.trust.range_s(each.iteration_s) for each in (first, second)]
    if ranges[0] is None or ranges[1] is None:
        return Order.UNKNOWN
    weights = [1.0 if each.cost is None else each.cost / each.iteration_s for each in (first, second)]
    return Order.CERTAIN if weights[0] * ranges[0][1] < weights[1] * ranges[1][0] else Order.WITHIN_ERROR
