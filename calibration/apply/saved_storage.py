"""A storage of a live step under a plan: on the device, on the host, or released to be recomputed."""

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch

from calibration.apply.copy_stream import CopyStream
from calibration.apply.pinned_slots import PinnedSlots


@cache
def empty_of(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the empty tensor to make others of: its `data` costs a fraction of a call of `torch.empty`."""
    with torch.inference_mode(mode=False), torch._C._DisableTorchDispatch():  # noqa: SLF001 - not of the program
        return torch.empty(0, dtype=dtype, device=device)


class TensorLayout(NamedTuple):
    """The layout of a tensor in its storage.

    Attributes:
        offset: of its first element, in elements.
        is_conj, is_neg: whether it is a lazy conjugate or negative view.
    """

    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    is_conj: bool = False
    is_neg: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "TensorLayout":
        offset = tensor.storage_offset()
        assert isinstance(offset, int), "it is no symbol"
        # Half the time of the class itself, for each tensor that is saved.
        return cls._make((tensor.dtype, offset, tensor.shape, tensor.stride(), tensor.is_conj(), tensor.is_neg()))

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        tensor = empty_of(self.dtype, storage.device).data.set_(storage, self.offset, self.shape, self.stride)
        if self.is_conj:
            tensor = tensor.conj()
        return torch._neg_view(tensor) if self.is_neg else tensor  # noqa: SLF001 - PyTorch's own name, without another


def refuse_written(tensor: torch.Tensor, version: int, shape: torch.Size, wanted_for: str) -> None:
    """Refuse a tensor that was written since a version, as PyTorch does without hooks.

    Raises:
        RuntimeError: its version is another.
    """
    found = tensor._version  # noqa: SLF001 - PyTorch has no public one
    if found != version:
        raise RuntimeError(
            f"one of the variables needed {wanted_for} has been modified by an inplace operation: [{tensor.type()} "
            f"{list(shape)}] is at version {found}; expected version {version} instead."
        )


class SavedStorage:
    """A storage of a step, which lives as long as autograd keeps a tensor of it.

    Args:
        stream: of the step, as of `CopyStream.current`, on which all work is issued.
        allocating: the context of its allocation for a prefetch.

    Attributes:
        live: its memory on the device; None while it is released.
        device: where forward made it. One on the host beside a GPU is not offloaded.
        recompute: recomputes it, if that is possible.
    """

    def __init__(
        self,
        number: int,
        live: torch.UntypedStorage,
        copy_stream: CopyStream,
        stream: object,
        arena: PinnedSlots,
        step: int,
        allocating: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.number, self.step, self.device = number, step, live.device
        self.live: torch.UntypedStorage | None = live
        self.recompute: Callable[[], None] | None = None
        self._copy_stream, self._stream, self._arena = copy_stream, stream, arena
        self._allocating = allocating
        self._nbytes = live.nbytes()
        # Offsets of extents on the host; marks of copies.
        self._on_host: dict[tuple[int, int], int] = {}
        self._offloads: list[Any] = []
        self._prefetches: list[Any] = []
        self._is_returning = False

    @property
    def is_live(self) -> bool:
        return self.live is not None

    @property
    def is_on_host(self) -> bool:
        """Whether its content is on the host alone, or being prefetched."""
        return (self.live is None and bool(self._on_host)) or bool(self._prefetches)

    @property
    def host_bytes(self) -> int:
        """Bytes on the host whose prefetch has not begun."""
        return sum(stop - start for start, stop in self._on_host)

    def offload(self, extent: range, offset: int) -> bool:
        """Begin to copy bytes to the host; return whether it was possible."""
        if self.live is None or extent.stop > self._nbytes:
            return False
        slot = self._arena.write(self, offset, len(extent))
        if slot is None:
            return False
        with self._copy_stream.on(self._stream):
            self._offloads.append(self._copy_stream.copy(slot, self._flat()[extent.start : extent.stop]))
        self._on_host[extent.start, extent.stop] = offset
        return True

    def release(self) -> bool:
        """Free its memory, if it is on the host or can be recomputed; return whether it is."""
        if self.live is None or (self.recompute is None and self.host_bytes < self._nbytes):
            return False
        self._free()
        return True

    def prefetch(self, extent: range) -> bool:
        """Begin to copy bytes back; return whether it was necessary."""
        if self.live is None:
            if not self._on_host:
                return False
            with self._copy_stream.on(self._stream), self._allocating():
                self.live = torch.empty(self._nbytes, dtype=torch.uint8, device=self.device).untyped_storage()
            self._is_returning = True
        place = self._on_host.get((extent.start, extent.stop))
        if place is None:
            return False
        if self._is_returning:
            slot = self._arena.read(self, place, len(extent))
            with self._copy_stream.on(self._stream):
                self._prefetches.append(self._copy_stream.copy(self._flat()[extent.start : extent.stop], slot))
        # Not before: a copy may fail.
        self._drop_copy(extent.start, extent.stop)
        return self._is_returning

    def materialize(self) -> torch.UntypedStorage:
        """Prefetch or recompute it, and return its memory for the current stream to read."""
        if self._copy_stream.is_current(self._stream):
            return self._materialized() if self.live is None or self._is_returning else self.live
        with self._copy_stream.on(self._stream):
            live = self._materialized()
        self._copy_stream.join(self._stream)
        self._copy_stream.lend(self._flat())
        return live

    def _materialized(self) -> torch.UntypedStorage:
        if self.live is None or self._is_returning:
            if self.live is None and (not self._on_host or self.host_bytes < self._nbytes):
                assert self.recompute is not None, "a released storage can be recomputed"
                self.recompute()
            for start, stop in tuple(self._on_host):
                self.prefetch(range(start, stop))
            self._wait(self._prefetches)
            self._is_returning = False
        assert self.live is not None, "it was brought back"
        return self.live

    def restore(self, live: torch.UntypedStorage) -> None:
        """Take recomputed memory, unless it is live; what was recomputed cannot be again, for its recipe is used up."""
        self.recompute = None
        if self.live is None:
            self.live = live
            for start, stop in tuple(self._on_host):
                self._drop_copy(start, stop)

    def free(self) -> None:
        """Free its memory after its last use."""
        if not self.is_on_host:
            self._free()

    def _free(self) -> None:
        """Free its memory after the copies that read it."""
        if self.live is None:
            return
        with self._copy_stream.on(self._stream):
            self._wait(self._offloads)
            if self._stream is not None:
                # It may be of another stream's pool.
                self._copy_stream.lend(self._flat())
        self.live = None

    def _drop_copy(self, start: int, stop: int) -> None:
        self._arena.free(self, self._on_host.pop((start, stop)), stop - start)

    def _flat(self) -> torch.Tensor:
        assert self.live is not None, "it is on the device"
        return empty_of(torch.uint8, self.device).data.set_(self.live)

    def _wait(self, marks: list[Any]) -> None:
        while marks:
            self._copy_stream.wait(marks.pop())

    def __del__(self) -> None:
        """Wait for copies before the memory is reused, in whatever thread it is collected."""
        if self._offloads or self._prefetches:
            with self._copy_stream.on(self._stream), torch._C._DisableTorchDispatch():  # noqa: SLF001 - not of the program
                self._wait(self._prefetches)
                self._free()


class SavedTensor:
    """The replacement that autograd keeps for a saved tensor.

    Args:
        save: its position among the saves of the step; None outside of the plan.
        storage: that may be released; None to keep the tensor.
    """

    __slots__ = ("_layout", "_tensor", "_version", "save", "storage")

    def __init__(self, tensor: torch.Tensor, save: int | None = None, storage: SavedStorage | None = None) -> None:
        kept = tensor.detach()
        self.save, self.storage = save, storage
        self._layout = None if storage is None else TensorLayout.of(kept)
        # PyTorch checks no versions under hooks. An empty tensor still shares the version counter.
        self._version = None if kept.is_inference() else kept._version  # noqa: SLF001 - PyTorch has no public one
        if storage is not None:
            kept.data = empty_of(kept.dtype, kept.device)
        self._tensor = kept

    def unpack(self) -> torch.Tensor:
        """Return the tensor; see `check`."""
        if self.storage is None:
            return self._tensor
        assert self._layout is not None, "it has a storage"
        return self._layout.on(self.storage.materialize())

    def check(self) -> None:
        """Refuse a tensor that was written since it was saved, as PyTorch does without hooks."""
        # PyTorch has no public count of writes.
        if self._version is not None and self._version != self._tensor._version:  # noqa: SLF001
            shape = self._tensor.shape if self._layout is None else self._layout.shape
            refuse_written(self._tensor, self._version, shape, "for gradient computation")


class LiveStorages:
    """Captured numbers of live storages, each until it dies, when another may have its identity."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, weakref.ref[torch.UntypedStorage]]] = {}
        self._lives: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def number(self, live: torch.UntypedStorage) -> int | None:
        found = self._numbers.get(live._cdata)  # noqa: SLF001 - its identity
        return None if found is None or found[1]() is not live else found[0]

    def is_known(self, number: int) -> bool:
        found = self._lives.get(number)
        return found is not None and found() is not None

    def note(self, number: int, live: torch.UntypedStorage) -> None:
        # PyTorch keeps the Python object of a storage as long as the storage.
        self._lives[number] = reference = weakref.ref(live)
        self._numbers[live._cdata] = number, reference  # noqa: SLF001
