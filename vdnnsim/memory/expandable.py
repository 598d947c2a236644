"""The segments of PyTorch's caching allocator under `expandable_segments:True`, which map memory as they grow.

Each pool of each stream reserves addresses for nine eighths of the GPU's memory and maps memory in pages, of 2 MiB in
the small pool and of 20 MiB in the large one. A request for which no free block is large enough takes the lowest free
addresses with room for it, mapped or not: mostly the last free block and what is behind it. So blocks of one stream lie
in one segment and can merge. Blocks are cut to the granule in both pools.

Among free blocks the smallest that is large enough is taken, where the size of a block includes what it could grow to.
When the GPU has no room, all free pages are released, and the request is tried once more. A range that can be mapped in
part only is not mapped; but if free memory lies between two ranges, the first stays mapped when the second fails.

Under `max_split_size_mb` a large free block is kept from smaller requests here too, unless the lowest free addresses
lead to it; `garbage_collection_threshold` finds no free segment.

Source: github.com/pytorch/pytorch, c10/cuda/CUDACachingAllocator.cpp (ExpandableSegment, find_expandable_block,
map_block, get_free_block, unmap_block) with its note on expandable segments. Assumption: memory may be mapped as long
as the sum of pages stays within the capacity; page tables of the driver are not counted.
"""

from collections.abc import Iterable
from typing import Final

from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGE_SEGMENT_BYTES, SMALL_SEGMENT_BYTES, Segments, StreamPool, segment_bytes

_ADDRESSES_BEYOND: Final = 8
"""Addresses are reserved for all memory and an eighth more."""


class ExpandableSegments(Segments):
    """Segments that grow and shrink by pages; their addresses are in proportion to all memory of the GPU."""

    def best_fit(self, pool: StreamPool, nbytes: int) -> tuple[int, int] | None:
        """Return bytes and start of the smallest free block for a request, by the size that it could grow to."""
        pieces, at = pool.free.by_size, pool.free.place_of(nbytes)
        if at == len(pieces):
            return None
        while at + 1 < len(pieces) and self._grown_bytes(pool, *pieces[at + 1]) < self._grown_bytes(pool, *pieces[at]):
            at += 1
        return pieces[at] if self._settings.may_serve(pieces[at][0], nbytes) else None

    def grow(self, pool: StreamPool, nbytes: int, _: Iterable[StreamPool]) -> tuple[int, int] | None:
        """Map pages until there is a free block for a request; return its bytes and start; None without room."""
        # PyTorch checks the limit for a whole segment, though it maps less.
        if self._allowed_bytes is not None and self.reserved_bytes + segment_bytes(nbytes) > self._allowed_bytes:
            return None
        start = self._room(pool, nbytes)
        while (size := pool.free.size_at(start)) < nbytes:
            hole = start + size
            hole_bytes = pool.unmapped.size_at(hole)
            mapped_bytes = round_up(min(nbytes - size, hole_bytes), _page_bytes(pool))
            if self.reserved_bytes + mapped_bytes > self._capacity_bytes:
                return None
            self._change_reserved(mapped_bytes)
            pool.unmapped.remove(hole, hole_bytes)
            pool.unmapped.add(hole + mapped_bytes, hole_bytes - mapped_bytes)
            pool.free.merge(hole, mapped_bytes)
        return size, start

    def least_rest_bytes(self, _pool: StreamPool, _nbytes: int) -> int:
        return self._granule_bytes

    def release_free(self, pools: Iterable[StreamPool]) -> None:
        for pool in pools:
            page_bytes = _page_bytes(pool)
            for size, start in list(pool.free.by_size):
                # There are few segments, one for each pool of each stream.
                base, end = max(each for each in self.borders if each <= start), start + size
                first = base + round_up(start - base, page_bytes)
                last = end - (end - base) % page_bytes
                if first >= last:
                    continue
                pool.free.remove(start, size)
                pool.free.add(start, first - start)
                pool.free.add(last, end - last)
                self._change_reserved(first - last)
                hole, hole_bytes = pool.unmapped.merge(first, last - first)
                if hole_bytes == self.borders[base]:
                    pool.unmapped.remove(hole, hole_bytes)
                    del self.borders[base]

    def ranges(self, pools: Iterable[StreamPool]) -> list[tuple[int, int]]:
        """Return start and bytes of the mapped ranges."""
        holes = sorted((start, size) for pool in pools for size, start in pool.unmapped.by_size)
        found = []
        for base, size in self.borders.items():
            reached = base
            for hole, hole_bytes in (
                *((at, nbytes) for at, nbytes in holes if base <= at < base + size),
                (base + size, 0),
            ):
                if hole > reached:
                    found.append((reached, hole - reached))
                reached = hole + hole_bytes
        return found

    def _grown_bytes(self, pool: StreamPool, size: int, start: int) -> int:
        """Return the size that a free block would have with the addresses behind it mapped."""
        end = start + size
        return size if end in self.borders else size + pool.unmapped.size_at(end)

    def _room(self, pool: StreamPool, nbytes: int) -> int:
        """Return the lowest address from which nbytes are free or unmapped in one segment, which may be new."""
        for hole in pool.unmapped.starts:
            before = hole if hole in self.borders else pool.free.start_before(hole)
            reached = start = hole if before is None else before
            while reached - start < nbytes:
                if reached in self.borders and reached != start:
                    break
                size = pool.free.size_at(reached) or pool.unmapped.size_at(reached)
                if not size:
                    break
                reached += size
            if reached - start >= nbytes:
                return start
        page_bytes = _page_bytes(pool)
        size = round_up(self._total_bytes + self._total_bytes // _ADDRESSES_BEYOND, page_bytes)
        start = self._add_segment(size)
        pool.unmapped.add(start, size)
        return start


def _page_bytes(pool: StreamPool) -> int:
    return SMALL_SEGMENT_BYTES if pool.small else LARGE_SEGMENT_BYTES
