"""Saves of forward and unpacks of backward, in order, by which a live step is compared to the captured one."""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

import torch
from torch._subclasses.fake_tensor import FakeTensor

from calibration.capture.record import Call, Record
from calibration.capture.storages import element_type_of
from vdnnsim.dnn.layers import Phase


@dataclass(frozen=True, slots=True)
class Save:
    """A tensor that autograd saves.

    Attributes:
        issued: operations of the step before it.
        shape: in elements.
    """

    issued: int
    storage: int
    shape: tuple[int, ...]
    element_type: str


@dataclass(frozen=True, slots=True)
class Unpack:
    """A tensor that backward unpacks, or whose gradient it has.

    Attributes:
        issued: operations of the step before it.
        save: its position among the saves.
    """

    issued: int
    save: int


@dataclass(frozen=True)
class Tape:
    """Saves and unpacks of an iteration, in order.

    Attributes:
        arrivals: of gradients of saved tensors, before the node that made them runs.
        let_go: by saved storage, the last operation at which the program itself holds it.
        aside: storages that other CUDA streams touch, that `Tensor.record_stream` lends to one, or that were written by
            something else than an operation.
        forwards: operations of each call of the model's forward; those between and after them are of the loss.
    """

    saves: tuple[Save, ...]
    unpacks: tuple[Unpack, ...]
    let_go: Mapping[int, int]
    calls: tuple[Call, ...]
    forwards: tuple[range, ...]
    aside: frozenset[int] = frozenset()
    arrivals: tuple[Unpack, ...] = ()

    @cached_property
    def of_model(self) -> frozenset[int]:
        """All operations of the model's forward."""
        return frozenset(number for each in self.forwards for number in each)

    def without(self, storages: AbstractSet[int]) -> "Tape":
        """Return a tape in which the program holds some storages throughout, so that no plan moves them."""
        return replace(self, let_go={each: end for each, end in self.let_go.items() if each not in storages})


def _current_stream() -> int:
    """Return the handle of CUDA's current stream; 0, that of the default stream, without CUDA."""
    return torch.cuda.current_stream().cuda_stream if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]


@dataclass
class TapeRecorder:
    """Records saves and unpacks.

    Attributes:
        gives_away: whether autograd keeps copies, so that a saved storage is freed when the program drops it.
        is_on: whether anything is recorded; else autograd keeps what it saves, and that is all.
    """

    gives_away: bool = False
    is_on: bool = True
    saves: list[Save] = field(default_factory=list)
    unpacks: list[Unpack] = field(default_factory=list)
    arrivals: list[Unpack] = field(default_factory=list)
    _aside: set[int] = field(default_factory=set)
    # By storage, counted writes of operations.
    _versions: dict[int, int] = field(default_factory=dict)
    _stream: int = field(default_factory=_current_stream)

    def touch(self, storages: Iterable[int]) -> None:
        if self.is_on and _current_stream() != self._stream:
            self._aside.update(storages)

    def lend(self, storages: Iterable[int | None]) -> None:
        """Note storages that are lent to another stream, None for those that are not known."""
        self._aside.update(each for each in storages if each is not None)

    def see(self, tensor: torch.Tensor, storage: int, *, is_written: bool = False) -> None:
        """Note a use of a storage that forward made, and leave it aside if PyTorch counts more writes than operations.

        So it is where a user's function writes by NumPy, and says so by `mark_dirty`. Fake tensors have no content.
        """
        if not isinstance(tensor, FakeTensor) and not tensor.is_inference():
            found, expected = tensor._version, self._versions.get(storage, 0)  # noqa: SLF001 - no public one
            if found > expected:
                self._aside.add(storage)
            # A write is counted when its operation has returned.
            self._versions[storage] = max(found, expected) + is_written

    def save(self, tensor: torch.Tensor, storage: int, records: Sized) -> tuple[int | None, torch.Tensor]:
        """Note a saved tensor, and later its gradient; return its number and the tensor that autograd keeps."""
        if not self.is_on:
            return None, tensor.detach()
        self.saves.append(Save(len(records), storage, tuple(tensor.shape), element_type_of(tensor)))
        self.touch((storage,))
        save = len(self.saves) - 1
        if tensor.grad_fn is not None:
            arrives: Callable[[torch.Tensor], None] = lambda _: self.arrivals.append(Unpack(len(records), save))  # noqa: E731
            tensor.register_hook(arrives)  # type: ignore[no-untyped-call]
        # With its node, a saved result would hold itself.
        kept = tensor.detach()
        return save, kept.clone() if self.gives_away else kept

    def unpack(self, save: int, issued: int) -> None:
        self.unpacks.append(Unpack(issued, save))

    def finish(
        self,
        numbers: Mapping[int, int],
        let_go: Mapping[int, int],
        records: Sequence[Record],
        forwards: Iterable[range],
    ) -> Tape:
        saves = (Save(each.issued, numbers[each.storage], each.shape, each.element_type) for each in self.saves)
        aside = frozenset(numbers[each] for each in self._aside)
        calls = tuple(each.call.renumbered(numbers) for each in records if each.call is not None)
        return Tape(tuple(saves), tuple(self.unpacks), let_go, calls, tuple(forwards), aside, tuple(self.arrivals))


def freed_by_program(
    first: Sequence[Record], freed_after: Sequence[int | None], second: Sequence[Record]
) -> dict[int, int]:
    """Return the last operation at which the program holds each storage of forward, by number of the second iteration.

    Lifetimes are those of the first, in which autograd kept copies.
    """
    found: dict[int, int] = {}
    at = 0
    for position, other in enumerate(second):
        if other.phase is not Phase.FORWARD:
            break
        # The first may have more operations, as those that make labels.
        same = (each for each in range(at, min(at + _MADE_ONCE, len(first))) if _alike(first[each], other))
        twin = next(same, None)
        if twin is None:
            break
        for (there, *_), (here, *_) in zip(first[twin].operands, other.operands, strict=True):
            if (end := freed_after[there]) is not None:
                found.setdefault(here, end + position - twin)
        at = twin + 1
    return found


def _alike(one: Record, other: Record) -> bool:
    return one.name == other.name and one.phase is other.phase and len(one.operands) == len(other.operands)


_MADE_ONCE: Final = 8
"""Operations that the first iteration alone may have."""
