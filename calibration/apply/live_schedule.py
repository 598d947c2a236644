"""The schedule of a live loop: actions at each save of forward and each unpack of backward."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from calibration.capture.tape import Tape
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.pool_units import Unit, Use


@dataclass(frozen=True, slots=True)
class Offload:
    """Copy bytes of a storage to the host, to an offset in pinned memory."""

    storage: int
    extent: range
    offset: int


@dataclass(frozen=True, slots=True)
class Release:
    """Free a storage that will be prefetched or recomputed, after its copies."""

    storage: int


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Copy bytes of a storage back."""

    storage: int
    extent: range


@dataclass(frozen=True, slots=True)
class Recompute:
    """Recompute an operation of forward."""

    operation: int


@dataclass(frozen=True, slots=True)
class Free:
    """Free a recomputed storage that autograd does not save, after its last use."""

    storage: int


class ExpectedSave(NamedTuple):
    """A tensor that was saved in the capture.

    Attributes:
        nbytes: of its storage; 0 for a reserve of a library, whose size is known only when it runs.
        is_moved: whether its storage is offloaded or recomputed.
    """

    storage: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    nbytes: int
    is_offloaded: bool
    is_moved: bool
    is_aside: bool


class ExpectedOperation(NamedTuple):
    """An operation that was captured.

    Attributes:
        is_recomputed: whether it may be recomputed.
        makes: its new storages, in order; None for one that a step need not know.
        pool: private pool of its results in forward.
    """

    name: str
    is_recomputed: bool = False
    makes: tuple[int | None, ...] = ()
    pool: int = 0


Action = Offload | Release | Prefetch | Recompute | Free


@dataclass(frozen=True)
class LiveSchedule:
    """The actions of a plan in a live loop.

    Attributes:
        actions: by point: saves, then unpacks.
        issued: by point, the operations of the program before it.
        offloaded, recomputed: storages that are released and then prefetched, or recomputed.
        pinned_bytes: of the host.
        states: optimizer states by name, if some are on the host: bytes in pinned memory, empty for those on the GPU.
        pools: private pools of what is allocated, as of `ReservedMemory`.
    """

    captured: CapturedStep
    tape: Tape
    actions: tuple[tuple[Action, ...], ...]
    issued: tuple[int, ...]
    offloaded: frozenset[int]
    recomputed: frozenset[int]
    recomputed_operations: frozenset[int]
    pinned_bytes: int
    offloaded_bytes: int
    states: Mapping[str, range]
    pools: Mapping[Unit, int] = field(default_factory=dict)

    @property
    def is_idle(self) -> bool:
        """Whether it neither moves nor recomputes anything, and allocates all where PyTorch does."""
        return not (any(self.actions) or self.states or self.pools)

    @cached_property
    def made_by(self) -> Mapping[int, list[int]]:
        """By operation the storages that it makes, in order."""
        made: dict[int, list[int]] = defaultdict(list)
        for number, position in self.captured.first_use.items():
            if not self.captured.storages[number].given:
                made[position].append(number)
        return dict(made)

    @cached_property
    def writers(self) -> Mapping[int, list[int]]:
        """By storage the operations of forward that write it."""
        return self._touched(writes=True)

    @cached_property
    def readers(self) -> Mapping[int, list[int]]:
        """By storage the operations of forward that read it."""
        return self._touched(writes=False)

    @cached_property
    def written_by(self) -> Mapping[int, list[int]]:
        """By operation of forward the storages that it writes."""
        written: dict[int, list[int]] = defaultdict(list)
        for number, operations in self.writers.items():
            for each in operations:
                written[each].append(number)
        return dict(written)

    def _touched(self, *, writes: bool) -> Mapping[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for position, operation in enumerate(self.captured.operations):
            if operation.phase is Phase.FORWARD:
                for each in operation.operands:
                    number = self.captured.tensors[each.memory].storage
                    does = each.access.writes if writes else each.access.reads
                    if does and position not in found[number]:
                        found[number].append(position)
        return {number: operations for number, operations in found.items() if operations}

    @cached_property
    def recomputable(self) -> frozenset[int]:
        """Storages all of whose writers may be recomputed."""
        return frozenset(each for each, by in self.writers.items() if self.recomputed_operations.issuperset(by))

    @cached_property
    def pools_in_forward(self) -> Mapping[int, int]:
        """By operation of the model's forward its private pool."""
        return {
            number: pool
            for (use, number), pool in self.pools.items()
            if use is Use.RUN and number in self.tape.of_model
        }

    @cached_property
    def pools_at(self) -> Sequence[int]:
        """By point the pool in which what follows is allocated; empty if that is always PyTorch's own."""
        begins = [self.pools.get((Use.RUN, each), 0) for each in self.issued]
        # A save of forward is in another thread than backward.
        saves = enumerate(self.issued[: len(self.tape.saves)])
        for at, number in saves:
            is_of_loss = number not in self.tape.of_model and number < len(self.captured.operations)
            if not is_of_loss or self.captured.operations[number].phase is not Phase.FORWARD:
                begins[at] = 0
        return begins if any(begins) else ()

    @cached_property
    def pools_on_arrival(self) -> Mapping[int, int]:
        """By save the pool in which backward allocates once it has the gradient, where an arrival changes it."""
        changes, current = dict[int, int](), 0
        events = [(each.issued, 0, each.save) for each in self.tape.arrivals]
        events += [(each.issued, 1, each.save) for each in self.tape.unpacks]
        for issued, is_unpack, save in sorted(events):
            before, current = current, self.pools.get((Use.RUN, issued), 0)
            if not is_unpack and current != before:
                changes[save] = current
        return changes

    @cached_property
    def expected_saves(self) -> Sequence[ExpectedSave]:
        """By save what a step compares to it."""
        tape = self.tape
        return [
            ExpectedSave(
                each.storage,
                each.shape,
                getattr(torch, each.element_type),
                self.captured.storages[each.storage].nbytes,
                each.storage in self.offloaded,
                each.storage in self.offloaded or each.storage in self.recomputed,
                each.storage in tape.aside,
            )
            for each in tape.saves
        ]

    @cached_property
    def expected_operations(self) -> Sequence[ExpectedOperation]:
        """By operation what a step compares to it and does with its results; one more for the end."""
        known = self.recomputable | self.offloaded if self.recomputed_operations else frozenset[int]()
        return [
            *(
                ExpectedOperation(
                    operation.name,
                    number in self.recomputed_operations,
                    tuple(each if each in known else None for each in self.made_by.get(number, ())),
                    self.pools_in_forward.get(number, 0),
                )
                for number, operation in enumerate(self.captured.operations)
            ),
            ExpectedOperation("no operation"),
        ]

    @cached_property
    def alone(self) -> frozenset[int]:
        """Operations of forward that write nothing but what they make, which no other operation of forward writes."""
        return frozenset(
            operation
            for operation, written in self.written_by.items()
            if all(len(self.writers[each]) == 1 for each in written)
        )

    @cached_property
    def saved(self) -> frozenset[int]:
        return frozenset(each.storage for each in self.tape.saves)

    @cached_property
    def unpack_points(self) -> Mapping[int, int]:
        """By save the point at which backward first unpacks it."""
        count = len(self.tape.saves)
        return {each.save: at + count for at, each in reversed(list(enumerate(self.tape.unpacks)))}
