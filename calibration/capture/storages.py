"""Memory that lives as one: which storages an iteration touches, since when, and until when."""

import weakref
from dataclasses import dataclass

import torch

from vdnnsim.dnn.captured_step import CapturedStorage, CapturedTensor
from vdnnsim.dnn.step import BufferKind


@dataclass
class Life:
    """Of a storage, while it is recorded; its kind may be found out later."""

    name: str
    kind: BufferKind
    nbytes: int
    element_type: str
    given: bool
    written_by: int | None = None
    freed_after: int | None = None


def element_type_of(tensor: torch.Tensor) -> str:
    """Return how PyTorch calls the type of a tensor's elements."""
    return str(tensor.dtype).removeprefix("torch.")


class StorageTable:
    """Numbers storages and views of them; holds none of them."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.issued = 0
        """Operations that were issued."""
        self._numbers: dict[int, int] = {}
        self._tensors: dict[CapturedTensor, int] = {}

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the storage of a tensor; None where it was never seen."""
        return self._numbers.get(tensor.untyped_storage()._cdata)  # noqa: SLF001 - its identity

    def add(self, tensor: torch.Tensor, name: str, kind: BufferKind, *, given: bool = False) -> int:
        """Return the number of the storage of a tensor, which is new unless it was seen."""
        storage = tensor.untyped_storage()
        key = storage._cdata  # noqa: SLF001
        if key in self._numbers:
            return self._numbers[key]
        number = len(self.lives)
        self._numbers[key] = number
        written_by = None if given else self.issued
        self.lives.append(Life(name, kind, storage.nbytes(), element_type_of(tensor), given, written_by))
        weakref.finalize(storage, self._free, key, number)
        return number

    def view(self, tensor: torch.Tensor, number: int) -> int:
        """Return the number of a tensor, a view of a storage."""
        offset = int(tensor.storage_offset()) * tensor.element_size()
        seen = CapturedTensor(number, tuple(tensor.shape), element_type_of(tensor), offset)
        return self._tensors.setdefault(seen, len(self._tensors))

    @property
    def tensors(self) -> tuple[CapturedTensor, ...]:
        """The views, in the order of their numbers."""
        return tuple(self._tensors)

    def storages(self) -> tuple[CapturedStorage, ...]:
        """Return what was recorded of each."""
        return tuple(
            CapturedStorage(each.name, each.kind, each.nbytes, each.element_type, each.given, each.freed_after)
            for each in self.lives
        )

    def _free(self, key: int, number: int) -> None:
        # What is freed before the first operation was never needed: it is freed with it.
        self.lives[number].freed_after = max(self.issued - 1, 0)
        del self._numbers[key]
