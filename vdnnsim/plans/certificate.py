"""The certificate of a plan: a lower bound for a class of schedules, and a summary of the plan in words."""

from dataclasses import dataclass
from enum import Enum


class BoundClass(Enum):
    """The schedules for which a bound holds; all run the kernels of the workload in the plan's order."""

    OFFLOAD = "schedules of this order that recompute nothing and keep weights, their gradients and states"
    ANY = (
        "schedules of this order that keep weights, their gradients and states, with all else offloaded or recomputed "
        "any number of times"
    )
    OFFLOAD_AND_STATES = (
        "schedules of this order that recompute nothing and keep weights, with each state of the optimizer kept, "
        "or on the host but for its update, and each weight gradient kept, or on the host between backward and update"
    )
    ANY_AND_STATES = (
        "schedules of this order that keep weights, with each state of the optimizer kept, or on the host but for its "
        "update, each weight gradient kept, or on the host between backward and update, and all else offloaded or "
        "recomputed any number of times"
    )

    @property
    def moves_states(self) -> bool:
        """Whether it includes schedules with states or weight gradients on the host."""
        return self in (BoundClass.OFFLOAD_AND_STATES, BoundClass.ANY_AND_STATES)

    @property
    def recomputes(self) -> bool:
        return self in (BoundClass.ANY, BoundClass.ANY_AND_STATES)

    def includes(self, other: "BoundClass") -> bool:
        return self.recomputes >= other.recomputes and self.moves_states >= other.moves_states


@dataclass(frozen=True, slots=True)
class SlowerKernel:
    """A kernel that does not use its fastest algorithm, whose workspace does not fit.

    Attributes:
        layer, phase, chosen, fastest: in words, as results show them.
        lost_s: seconds more than the fastest algorithm.
        saved_bytes: workspace less than that of the fastest.
    """

    layer: str
    phase: str
    chosen: str
    fastest: str
    lost_s: float
    saved_bytes: int


@dataclass(frozen=True, slots=True)
class Certificate:
    """A lower bound, and a summary of the plan.

    Attributes:
        bound_s: no schedule of the class takes less.
        offloaded: names and bytes of offloaded buffers, in the order of their offloads.
        on_host: bytes of optimizer states that are on the host between iterations, and of weight gradients that are
            there between backward and update, by kind in words.
        slower: kernels that do not use their fastest algorithm, the largest loss first.
        levers: what costs most time: at most three sentences.
        stays: what fills the memory and cannot be offloaded: at most three sentences; empty where memory is ample.
        complete: whether the search ended before its time limit.
        memory: how the loop that applies the plan reserves memory, in words; empty for the memory model of the machine.
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
    memory: str = ""

    def gap(self, iteration_s: float) -> float:
        """Return the gap of an iteration, as a fraction of the bound."""
        return iteration_s / self.bound_s - 1 if self.bound_s else 0.0
