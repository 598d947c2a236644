"""The certificate of a plan: a lower bound for a class of schedules, and what the plan does, in words."""

from dataclasses import dataclass
from enum import Enum


class BoundClass(Enum):
    """For which schedules a bound holds; all run the kernels of the plan's workload in its order."""

    OFFLOAD = "schedules of this order that compute nothing again and keep weights, their gradients and states"
    ANY = (
        "schedules of this order that keep weights, their gradients and states, with all else offloaded or computed "
        "again any number of times"
    )
    OFFLOAD_AND_STATES = (
        "schedules of this order that compute nothing again and keep weights, with each state of the optimizer kept, "
        "or on the host but for its update, and each weight gradient kept, or on the host between backward and update"
    )
    ANY_AND_STATES = (
        "schedules of this order that keep weights, with each state of the optimizer kept, or on the host but for its "
        "update, each weight gradient kept, or on the host between backward and update, and all else offloaded or "
        "computed again any number of times"
    )

    @property
    def moves_states(self) -> bool:
        """Whether schedules that have states or weight gradients on the host are among them."""
        return self in (BoundClass.OFFLOAD_AND_STATES, BoundClass.ANY_AND_STATES)

    @property
    def recomputes(self) -> bool:
        """Whether schedules that compute something again are among them."""
        return self in (BoundClass.ANY, BoundClass.ANY_AND_STATES)

    def includes(self, other: "BoundClass") -> bool:
        """Say whether all schedules of a class are among them."""
        return self.recomputes >= other.recomputes and self.moves_states >= other.moves_states


@dataclass(frozen=True, slots=True)
class SlowerKernel:
    """A kernel that does not run by its fastest algorithm, for its workspace would crowd out something else.

    Attributes:
        layer, phase, chosen, fastest: in words, as results show them.
        lost_s: how much longer it takes than by the fastest.
        saved_bytes: how much less workspace it has.
    """

    layer: str
    phase: str
    chosen: str
    fastest: str
    lost_s: float
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is proven of a plan, and what it does.

    Attributes:
        bound_s: no schedule of the class takes less.
        holds_for: the class.
        offloaded: names of what leaves and comes back, with bytes, in the order in which it leaves.
        on_host: bytes of optimizer states that are on the host between iterations, and of weight gradients that are
            there between backward and update, by kind in words.
        recomputed: names of the layers whose forward runs again.
        slower: kernels that do not run by their fastest algorithm, the largest loss first.
        levers: why the plan is as it is: at most three sentences, what costs most first.
        stays: where offload does not help: at most three sentences with bytes, of what the peak consists that cannot
            leave; empty where nothing of note is in the way.
        complete: whether the search came to its end, and not only to its time limit.
    """

    bound_s: float
    holds_for: BoundClass
    offloaded: tuple[tuple[str, int], ...] = ()
    on_host: tuple[tuple[str, int], ...] = ()
    recomputed: tuple[str, ...] = ()
    slower: tuple[SlowerKernel, ...] = ()
    levers: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    complete: bool = True

    def gap(self, iteration_s: float) -> float:
        """Return how far an iteration is above the bound, as a fraction."""
        return iteration_s / self.bound_s - 1 if self.bound_s else 0.0
