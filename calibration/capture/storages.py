"""The storages of an iteration, their views and lifetimes."""

import weakref
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import torch

from vdnnsim.dnn.step import Access, BufferKind, Storage, Tensor

Touch = tuple[int, int, Access]
"""Numbers of a storage and of its view that an operation touches, and how."""


@dataclass
class Life:
    """Lifetime of a storage; its kind may be assigned later."""

    name: str
    kind: BufferKind
    nbytes: int
    element_type: str
    given: bool
    constant: bool = False
    on_host: bool = False
    written_by: int | None = None
    freed_after: int | None = None


def element_type_of(tensor: torch.Tensor) -> str:
    """Return how PyTorch calls the type of a tensor's elements."""
    return str(tensor.dtype).removeprefix("torch.")


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the part of a `DTensor` that this rank has, without what waits for it; any other tensor as it is."""
    local: torch.Tensor = getattr(tensor, "_local_tensor", tensor)
    return getattr(local, "elem", local)


def size_of(parameter: torch.Tensor) -> int:
    """Return the elements of a parameter; of one whose part is in DistributedDataParallel, those of all parts."""
    split = getattr(parameter, "_st_info", None)
    return parameter.numel() if split is None else int(split.shape.numel())


class StorageTable:
    """Numbers storages and their views, without holding them."""

    def __init__(self) -> None:
        self.lives: list[Life] = []
        self.issued = 0
        """Operations issued so far."""
        self._numbers: dict[int, int] = {}
        self._tensors: dict[Tensor, int] = {}
        self._views: list[Tensor] = []

    def number_of(self, tensor: torch.Tensor) -> int | None:
        """Return the number of the storage of a tensor; None if it is unknown."""
        return self._numbers.get(local_of(tensor).untyped_storage()._cdata)  # noqa: SLF001 - its identity

    def add_constant(self, tensor: torch.Tensor) -> int:
        """Return the number of the storage of a tensor, a constant if it is unknown."""
        return self.add(tensor, "constant", BufferKind.FEATURE_MAP, given=True, constant=True)

    def add(
        self,
        tensor: torch.Tensor,
        name: str,
        kind: BufferKind,
        *,
        given: bool = False,
        constant: bool = False,
        on_host: bool = False,
    ) -> int:
        """Return the number of the storage of a tensor, a new one if it is unknown."""
        storage = local_of(tensor).untyped_storage()
        key = storage._cdata  # noqa: SLF001
        if key in self._numbers:
            return self._numbers[key]
        number = len(self.lives)
        self._numbers[key] = number
        written_by = None if given else self.issued
        life = Life(name, kind, storage.nbytes(), element_type_of(tensor), given, constant, on_host, written_by)
        self.lives.append(life)
        weakref.finalize(storage, self._free, key, life)
        return number

    def free(self, tensor: torch.Tensor) -> None:
        """Note that a program frees the memory of a tensor which it keeps."""
        key = tensor.untyped_storage()._cdata  # noqa: SLF001
        if key in self._numbers:
            self._free(key, self.lives[self._numbers[key]])

    def view(self, tensor: torch.Tensor, number: int) -> int:
        """Return the number of a tensor as a view of a storage."""
        offset = int(tensor.storage_offset()) * tensor.element_size()
        return self._number_of_view(Tensor(number, tuple(tensor.shape), element_type_of(tensor), offset))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The views, in the order of their numbers."""
        return tuple(self._views)

    def moved(self, operand: Touch, into: Mapping[int, Touch]) -> Touch:
        """Return a view of a storage that became part of another as a view of that one."""
        number, view, access = operand
        if number not in into:
            return operand
        there, place, _ = into[number]
        old, offset = self._views[view], self._views[place].offset_bytes
        moved = Tensor(there, old.shape, old.element_type, old.offset_bytes + offset)
        return there, self._number_of_view(moved), access

    def renumber(self, into: Mapping[int, Touch]) -> tuple[dict[int, int], dict[int, int]]:
        """Drop storages that became parts of others; return new numbers of storages and of views."""
        numbers = _numbered(range(len(self.lives)), into)
        views = _numbered(
            range(len(self._views)), {each for each, view in enumerate(self._views) if view.storage in into}
        )
        self.lives = [self.lives[each] for each in numbers]
        kept = [self._views[each] for each in views]
        self._views = [msgspec.structs.replace(each, storage=numbers[each.storage]) for each in kept]
        renumbered = numbers | {part: numbers[there] for part, (there, _, __) in into.items()}
        self._numbers = {key: renumbered[number] for key, number in self._numbers.items()}
        return renumbered, views

    def storages(self) -> tuple[Storage, ...]:
        """Return the storages of the captured step."""
        return tuple(
            Storage(
                each.name,
                each.kind,
                each.nbytes,
                each.element_type,
                each.given,
                None if each.on_host else each.freed_after,
                each.constant,
                each.on_host,
            )
            for each in self.lives
        )

    def _number_of_view(self, view: Tensor) -> int:
        number = self._tensors.setdefault(view, len(self._views))
        if number == len(self._views):
            self._views.append(view)
        return number

    def _free(self, key: int, life: Life) -> None:
        # A program may have freed it before, and allocated it again.
        if key in self._numbers and self.lives[self._numbers[key]] is life:
            life.freed_after = max(self.issued - 1, 0)
            del self._numbers[key]


def _numbered(old: Iterable[int], dropped: Container[int]) -> dict[int, int]:
    """Return consecutive new numbers of those that are not dropped."""
    return {each: new for new, each in enumerate(each for each in old if each not in dropped)}
