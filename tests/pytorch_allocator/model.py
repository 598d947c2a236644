"""The model of PyTorch's caching allocator beside the allocator itself: each is asked the same, answers are compared.

An answer is whether there is room, where the block lies, and how much is allocated and reserved afterwards. Where the
GPU's driver puts a segment is its own affair: a segment is known by the first block that lies in it, and compared is
which segment a block lies in, and where in it.
"""

from bisect import bisect_right
from dataclasses import dataclass

from vdnnsim.memory.caching import pytorch_allocator
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the two first answered differently.

    Attributes:
        event: how many events came before.
        what: is told apart: `address`, `reserved bytes`.
        pytorch, model: the two answers; None for no room.
    """

    event: int
    what: str
    pytorch: object
    model: object


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What a GPU has for segments.

    Attributes:
        free_bytes: room for segments before the first is taken.
        total_bytes: all of its memory.
        settings: of the allocator.
        granule_bytes: to which requests are rounded.
    """

    free_bytes: int
    total_bytes: int
    settings: AllocatorSettings = DEFAULTS
    granule_bytes: int = 512


class ModelBeside:
    """The model, told what PyTorch answers.

    Attributes:
        allocator: the model.
        events: how many there were.
        refusals: requests for which neither had room.
        divergence: the first difference; what is asked afterwards means nothing.
    """

    def __init__(self, memory: GpuMemory) -> None:
        self._granule_bytes = memory.granule_bytes
        self.allocator = pytorch_allocator(memory.free_bytes, memory.granule_bytes, memory.settings, memory.total_bytes)
        # By the start of a segment in the model, where it lies on the GPU.
        self._lies_at: dict[int, int] = {}
        self.events = 0
        self.refusals = 0
        self.divergence: Divergence | None = None

    def take(self, nbytes: int, stream: int, address: int | None) -> Block | None:
        """Ask the model for what PyTorch put at an address, or had no room for (None)."""
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
        """Note where two answers differ, if none did before."""
        if pytorch != model and self.divergence is None:
            self.divergence = Divergence(self.events, what, pytorch, model)

    def compare_free(self, pytorch: list[Block]) -> None:
        """Compare the free blocks that both keep."""
        model = [Block(self._on_gpu(block.start), block.nbytes) for block in self.allocator.free_blocks]
        self.compare("free blocks", sorted(pytorch), sorted(model))

    def _base(self, start: int) -> int:
        """Return where in the model the segment of a block starts; a later segment lies above an earlier one."""
        bases = self.allocator.segment_starts
        return bases[bisect_right(bases, start) - 1]

    def _on_gpu(self, start: int) -> int:
        base = self._base(start)
        return self._lies_at[base] + start - base
