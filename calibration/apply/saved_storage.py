"""A storage that a plan moves, while a step lives: on the device, on the host, or to be computed again."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from calibration.apply.copy_stream import Lane
from calibration.apply.pinned_slots import PinnedSlots


@dataclass(frozen=True, slots=True)
class Layout:
    """How a tensor lies in its storage.

    Attributes:
        offset: of its first element, in elements.
        is_conj, is_neg: whether it is a lazy view, the conjugate or the negative of what the storage holds.
    """

    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    is_conj: bool = False
    is_neg: bool = False

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "Layout":
        """Return that of a tensor."""
        place = tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride()
        return cls(*place, tensor.is_conj(), tensor.is_neg())

    def on(self, storage: torch.UntypedStorage) -> torch.Tensor:
        """Return the tensor that lies so in a storage."""
        tensor = torch.empty(0, dtype=self.dtype, device=storage.device).set_(
            storage, self.offset, self.shape, self.stride
        )
        if self.is_conj:
            tensor = tensor.conj()
        return torch._neg_view(tensor) if self.is_neg else tensor  # noqa: SLF001 - PyTorch's own name, without another


def refuse_written(tensor: torch.Tensor, version: int, shape: torch.Size, wanted_for: str) -> None:
    """Refuse a tensor that was written over since it had a version, as PyTorch does where no hooks are.

    Raises:
        RuntimeError: it was.
    """
    found = tensor._version  # noqa: SLF001 - PyTorch has no public one
    if found != version:
        raise RuntimeError(
            f"one of the variables needed {wanted_for} has been modified by an inplace operation: [{tensor.type()} "
            f"{list(shape)}] is at version {found}; expected version {version} instead."
        )


class Held:
    """One storage of one step; it lives as long as autograd keeps a tensor of it.

    Args:
        number: in the captured step.
        live: its memory on the device.
        lane: where its copies run.
        stream: of the step, as of `Lane.current`; all that is done here is issued on it (`copy_stream`).
        arena: where its copies lie.
        step: its number among those of the plan.

    Attributes:
        live: its memory on the device; None while it is away or given up.
        device: where forward made it. What is on the host beside a GPU does not leave: the host would copy it at once,
            over what the lane may still read.
    """

    def __init__(
        self, number: int, live: torch.UntypedStorage, lane: Lane, stream: object, arena: PinnedSlots, step: int
    ) -> None:
        self.number = number
        self.step = step
        self.live: torch.UntypedStorage | None = live
        self._lane = lane
        self._stream = stream
        self._arena = arena
        self._nbytes = live.nbytes()
        self.device = live.device
        # Extents that are on the host, with the place of each; marks of copies that have begun.
        self._on_host: dict[tuple[int, int], int] = {}
        self._leaving: list[Any] = []
        self._coming: list[Any] = []
        self._is_returning = False
        self.remake: Callable[[], None] | None = None
        """Computes it again, where it can be."""

    def leave(self, extent: range, offset: int) -> bool:
        """Begin to copy bytes to the host; return whether it was possible."""
        if self.live is None or extent.stop > self._nbytes:
            return False
        slot = self._arena.write(self, offset, len(extent))
        if slot is None:
            return False
        with self._lane.on(self._stream):
            self._leaving.append(self._lane.copy(slot, self._flat()[extent.start : extent.stop]))
        self._on_host[extent.start, extent.stop] = offset
        return True

    @property
    def is_safe(self) -> bool:
        """Whether all of it is on the host, or can be computed again."""
        return self.remake is not None or sum(stop - start for start, stop in self._on_host) >= self._nbytes

    @property
    def is_away(self) -> bool:
        """Whether the only content that there is lies in pinned memory, or comes from there."""
        return (self.live is None and bool(self._on_host)) or bool(self._coming)

    @property
    def away_bytes(self) -> int:
        """Bytes that are on the host and have not begun to come."""
        return sum(stop - start for start, stop in self._on_host)

    def give(self) -> bool:
        """Give the memory on the device back; return whether it was possible."""
        if self.live is None or not self.is_safe:
            return False
        self._release()
        return True

    def come(self, extent: range) -> bool:
        """Begin to copy bytes back; return whether they were away."""
        if self.live is None:
            if not self._on_host:
                return False
            self._take()
        place = self._on_host.get((extent.start, extent.stop))
        if place is None:
            return False
        if self._is_returning:
            slot = self._arena.read(self, place, len(extent))
            with self._lane.on(self._stream):
                self._coming.append(self._lane.copy(self._flat()[extent.start : extent.stop], slot))
        # Not before: what failed to come is still away.
        self._drop(extent.start, extent.stop)
        return self._is_returning

    def bring(self) -> torch.UntypedStorage:
        """Return its memory on the device with its content, whatever that takes, for the current stream to read."""
        with self._lane.on(self._stream):
            live = self._brought()
        if not self._lane.is_current(self._stream):
            self._lane.join(self._stream)
            self._lane.lend(self._flat())
        return live

    def _brought(self) -> torch.UntypedStorage:
        if self.live is None or self._is_returning:
            if self.live is None and (not self._on_host or self.away_bytes < self._nbytes):
                assert self.remake is not None, "what is given up can be computed again"
                self.remake()
            for start, stop in tuple(self._on_host):
                self.come(range(start, stop))
            self._wait(self._coming)
            self._is_returning = False
        assert self.live is not None, "it was brought"
        return self.live

    def restore(self, live: torch.UntypedStorage) -> None:
        """Take memory into which it was computed again, unless it is there."""
        if self.live is None:
            self.live = live
            for start, stop in tuple(self._on_host):
                self._drop(start, stop)

    def forget(self) -> None:
        """Give up memory that nobody reads any more."""
        if not self.is_away:
            self._release()

    def _drop(self, start: int, stop: int) -> None:
        """Have no copy of bytes on the host any more."""
        self._arena.free(self, self._on_host.pop((start, stop)), stop - start)

    def _take(self) -> None:
        with self._lane.on(self._stream):
            self.live = torch.empty(self._nbytes, dtype=torch.uint8, device=self.device).untyped_storage()
        self._is_returning = True

    def _release(self) -> None:
        """Give up the memory on the device, behind the copies that read it."""
        if self.live is None:
            return
        with self._lane.on(self._stream):
            self._wait(self._leaving)
            # It may be of another stream's pool, which knows nothing of what this one does with it.
            self._lane.lend(self._flat())
        self.live = None

    def _flat(self) -> torch.Tensor:
        assert self.live is not None, "it is on the device"
        return torch.empty(0, dtype=torch.uint8, device=self.device).set_(self.live)

    def _wait(self, marks: list[Any]) -> None:
        while marks:
            self._lane.wait(marks.pop())

    def __del__(self) -> None:
        """Let no copy run on in memory that others take, whichever thread has found that nobody wants it."""
        if self._leaving or self._coming:
            with self._lane.on(self._stream), torch._C._DisableTorchDispatch():  # noqa: SLF001 - nobody asked for this
                self._wait(self._coming)
                self._release()


class Packed:
    """What autograd keeps in the place of a tensor that it saves.

    Attributes:
        save: its position among the saves of the step; None of what is not of the plan.
        held: the storage that may be moved; None of what is kept as it is.
    """

    __slots__ = ("_layout", "_tensor", "_version", "held", "save")

    def __init__(self, tensor: torch.Tensor, save: int | None, held: Held | None) -> None:
        kept = tensor.detach()
        self.save = save
        self.held = held
        self._layout = Layout.of(kept) if held else None
        # PyTorch has no versions of what hooks keep. A tensor without memory still counts what is done to its content.
        self._version = None if kept.is_inference() else kept._version  # noqa: SLF001 - PyTorch has no public one
        if held is not None:
            kept.data = torch.empty(0, dtype=kept.dtype, device=kept.device)
        self._tensor = kept

    def unpack(self) -> torch.Tensor:
        """Return the tensor; `check` says whether its content is what was saved."""
        if self.held is None or self._layout is None:
            return self._tensor
        with torch.no_grad():
            return self._layout.on(self.held.bring())

    def check(self) -> None:
        """Refuse what was written over since it was saved, as PyTorch does without hooks.

        Raises:
            RuntimeError: it was.
        """
        if self._version is not None:
            shape = self._tensor.shape if self._layout is None else self._layout.shape
            refuse_written(self._tensor, self._version, shape, "for gradient computation")
