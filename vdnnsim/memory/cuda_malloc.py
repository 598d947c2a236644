"""The blocks of the driver if every buffer is a cudaMalloc of its own, as in Caffe.

The driver allocates blocks of 2 MiB. A buffer above 1 MiB has blocks of its own. Smaller ones, rounded up to the
granule, share blocks: each takes the smallest gap that is large enough, or a new block. A block is released when all of
its buffers are freed.

`pool_bytes` is the most that was allocated at once, as nvidia-smi shows it; `deltas` count buffers. There are no
addresses, since the driver may map any block anywhere: only the gaps inside blocks matter.

Source: sizes measured by cudaMemGetInfo over 256 allocations each on a driver 5xx, dev_alloc_footprint in
c/qwen36_tier.c of github.com/JustVugg/colibri at 032d8df41e6d1fe60eeae8f63b5d76df1c0e6064. Each took 8 KiB of 400 B,
3 KiB and 4 KiB; 16 of 10 KiB; 16 to 64 KiB exactly; 104 of 96 KiB; 416 of 384 KiB; 1 MiB of 768 KiB and 1 MiB; 2 of
1.5 MiB; 4 of 3 MiB. The rule above gives each of these numbers; the formula there, which has a least size of 8 KiB and
adds a sixteenth, describes the average of 256 buffers that share blocks; from 512 to 682 KiB, where nothing was
measured, it has two to a block and this rule three. PyTorch splits its requests at the same sizes
(c10/core/AllocatorConfig.h, kSmallSize and kSmallBuffer). Assumptions: which gap is taken; that drivers of Kepler and
Maxwell did the same; that a block is released at once.
"""

from typing import ClassVar, Final

from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.units import MIB

BLOCK_BYTES: Final = 2 * MIB
LARGEST_SHARED_BYTES: Final = MIB

# Blocks lie apart, so that gaps of two never merge.
_BLOCK_STRIDE: Final = 2 * BLOCK_BYTES


class Driver:
    """The allocated blocks of a GPU, and the gaps in those that small buffers share.

    Attributes:
        handed_out_bytes: in whole blocks.
    """

    addressed: ClassVar[bool] = False

    def __init__(self, capacity_bytes: int) -> None:
        self._capacity_bytes = capacity_bytes
        self._gaps = FreePieces()
        self._next_block = 0
        self.handed_out_bytes = 0
        self.pool_bytes = 0

    def take(self, nbytes: int) -> Block | None:
        """Return the place of a buffer among the shared blocks, 0 if it has its own; None without room."""
        if nbytes > LARGEST_SHARED_BYTES:
            return Block(0, nbytes) if self._hand_out(round_up(nbytes, BLOCK_BYTES)) else None
        start = self._gaps.take(nbytes)
        if start is None and self._hand_out(BLOCK_BYTES):
            self._gaps.add(self._next_block, BLOCK_BYTES)
            self._next_block += _BLOCK_STRIDE
            start = self._gaps.take(nbytes)
        return None if start is None else Block(start, nbytes)

    def free(self, block: Block) -> None:
        """Free a buffer, and a block that it leaves empty."""
        if block.nbytes > LARGEST_SHARED_BYTES:
            self.handed_out_bytes -= round_up(block.nbytes, BLOCK_BYTES)
            return
        start, gap_bytes = self._gaps.merge(*block)
        if gap_bytes == BLOCK_BYTES:
            self._gaps.remove(start, gap_bytes)
            self.handed_out_bytes -= BLOCK_BYTES

    @property
    def untaken_bytes(self) -> int:
        return (self._capacity_bytes - self.handed_out_bytes) // BLOCK_BYTES * BLOCK_BYTES

    def largest_free(self, nbytes: int) -> int:
        """Return the size of the largest piece that a request of nbytes could have been given."""
        return (
            self.untaken_bytes if nbytes > LARGEST_SHARED_BYTES else max(self.untaken_bytes, self._gaps.largest_bytes)
        )

    def _hand_out(self, nbytes: int) -> bool:
        if self.handed_out_bytes + nbytes > self._capacity_bytes:
            return False
        self.handed_out_bytes += nbytes
        self.pool_bytes = max(self.pool_bytes, self.handed_out_bytes)
        return True
