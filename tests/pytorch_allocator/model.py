"""Comparison of the model of PyTorch's caching allocator with the allocator itself, request by request.

Compared are whether there is room, the segment of a block and its offset there, and allocated and reserved bytes. The
address of a segment is up to the driver; it is taken from the first block in it.
"""

from bisect import bisect_right
from dataclasses import dataclass

from vdnnsim.memory.caching import pytorch_allocator
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference, behind so many events: `address`, `reserved bytes` and so on; of both, None for no room."""

    event: int
    what: str
    pytorch: object
    model: object


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Memory of a GPU for segments: what is free before the first of them is taken, and all."""

    free_bytes: int
    total_bytes: int
    settings: AllocatorSettings = DEFAULTS
    granule_bytes: int = 512


class ModelBeside:
    """The model, compared with PyTorch to the first difference; `refusals` are requests that neither had room for."""

    def __init__(self, memory: GpuMemory) -> None:
        self._granule_bytes = memory.granule_bytes
        self.allocator = pytorch_allocator(memory.free_bytes, memory.granule_bytes, memory.settings, memory.total_bytes)
        # By the start of a segment in the model, where it lies on the GPU.
        self._lies_at: dict[int, int] = {}
        self.events = 0
        self.refusals = 0
        self.divergence: Divergence | None = None

    def take(self, nbytes: int, stream: int, address: int | None) -> Block | None:
        """Allocate in the model what PyTorch put at an address, or had no room for (None)."""
        block = self.allocator.take(round_up(nbytes, self._granule_bytes), stream)
        if block is None or address is None:
            self.compare("address", address, None if block is None else block.start)
            self.refusals += block is None and address is None
            return None
        base = self._base(block.start)
        self._lies_at.setdefault(base, address - (block.start - base))
        self.compare("address", address, self._on_gpu(block.start))
        return block

    def compare(self, what: str, pytorch: object, model: object) -> None:
        """Record the first difference."""
        if pytorch != model and self.divergence is None:
            self.divergence = Divergence(self.events, what, pytorch, model)

    def compare_free(self, pytorch: list[Block]) -> None:
        model = [Block(self._on_gpu(block.start), block.nbytes) for block in self.allocator.free_blocks]
        self.compare("free blocks", sorted(pytorch), sorted(model))

    def _base(self, start: int) -> int:
        """Return the start of the segment of a block in the model."""
        bases = self.allocator.segment_starts
        return bases[bisect_right(bases, start) - 1]

    def _on_gpu(self, start: int) -> int:
        base = self._base(start)
        return self._lies_at[base] + start - base
