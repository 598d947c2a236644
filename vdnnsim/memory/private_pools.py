"""Private pools of PyTorch's allocator for the blocks of an iteration, by layouts of their addresses.

PyTorch's allocator gives a request the smallest free block that holds it, and does not know what comes later: in one
segment, blocks that stay come to lie where a large one is wanted soon. So blocks are laid out ahead
(`vdnnsim.memory.packing`): those of the largest size first, and what none of them crosses is a segment of a private
pool; around these all others, in the rest of the memory, PyTorch's own pool, and in the segments in their time. Where
that layout has blocks of the next size, the next layout keeps them, so that they have segments too, and so on.

Blocks of one unit are allocated in one pool. Within a pool PyTorch's rules place them, and may leave gaps; so each
layout is varied: whether smaller blocks may lie beside large ones, which pool is filled first, and how much of
PyTorch's own is left for gaps. Where the rest of the memory is too small for blocks that are always in PyTorch's own
pool, the segments of one pool after the other are in that one, too.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, islice
from typing import Final, NamedTuple

from vdnnsim.memory.packing import Lifetime, Packing, most_live_bytes, pack, packings
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGE_SEGMENT_BYTES, SEGMENT_GRANULE_BYTES

MOST_SIZES: Final = 4
"""Sizes of blocks, from the largest, that have segments."""
MOST_SEGMENTS: Final = 16
MOST_LAYOUTS: Final = 12
"""That are tried: of a hundred plans of transformers with room, four have none by so many."""
VARIANTS: Final = ((True, 1 / 2, 0), (True, 1 / 4, 1), (False, 1 / 2, 1))
"""Whether PyTorch's own pool is filled first, the part of what no block needs that is left for gaps, and the order."""
MOST_SPARE: Final = 1 / 16
"""Of a segment, what is left for gaps at most."""
_WALL_BYTES: Final = 512

Place = tuple[int, int]
"""The number of a segment, 0 for PyTorch's own pool, and an offset in it."""


class Cut(NamedTuple):
    """Private pools, numbered from 1 on.

    Attributes:
        segments: by pool, their bytes; of PyTorch's own, 0, those beside the rest of the memory.
        pools: by unit; others use PyTorch's own.
    """

    segments: Mapping[int, Sequence[int]]
    pools: Mapping[Hashable, int]


@dataclass(frozen=True)
class PrivatePools:
    """Blocks that are to lie in some memory.

    Attributes:
        units: of the blocks; None for one that is always in PyTorch's own pool.
    """

    blocks: Sequence[Lifetime]
    units: Sequence[Hashable | None]
    nbytes: int

    def cuts(self) -> Iterator[Cut | int]:
        """Yield private pools by layouts; where a layout is higher than the memory, by how much."""
        return islice(self._cuts(), MOST_LAYOUTS)

    def _cuts(self) -> Iterator[Cut | int]:
        blocks, found = self._steered, dict[int, Place]()
        sizes = sorted({each.nbytes for each in blocks.values() if each.nbytes >= LARGE_SEGMENT_BYTES}, reverse=True)
        segments, large = list[int](), dict[int, Place]()
        for nbytes in sizes[:MOST_SIZES]:
            alike = [at for at, each in blocks.items() if each.nbytes == nbytes]
            if not found.keys() >= set(alike):
                offsets = pack([blocks[at] for at in alike]).offsets
                found |= {at: (0, offset) for at, offset in zip(alike, offsets, strict=True)}
            large |= {at: found[at] for at in alike if found[at][0]}
            beyond = {at: found[at][1] for at in alike if not found[at][0]}
            for part in _parts((offset, blocks[at]) for at, offset in beyond.items()):
                segments.append(round_up(len(part), SEGMENT_GRANULE_BYTES))
                large |= {at: (len(segments), each - part.start) for at, each in beyond.items() if each in part}
            if sum(segments) > self.nbytes or len(segments) > MOST_SEGMENTS:
                return
            for small in self._layouts(segments, large):
                if isinstance(small, int):
                    yield small
                else:
                    found, cut = large | small[0], small[1]
                    yield cut

    def _layouts(
        self, segments: Sequence[int], large: Mapping[int, Place]
    ) -> Iterator[tuple[dict[int, Place], Cut] | int]:
        """Yield layouts of all blocks but large ones, and their pools; where one is too high, by how much."""
        own_bytes, needed_bytes = self.nbytes - sum(segments), self._always_own.height_bytes
        joined, others = self._joined(large), [each for at, each in enumerate(self.blocks) if at not in large]
        for shared in (0,) if own_bytes >= needed_bytes else sorted({*joined.values()} - {0}):
            pools = {each: 0 if pool == shared else pool for each, pool in joined.items()}
            of_pool, tried = defaultdict[int, list[int]](list), dict[Hashable, int]()
            for segment, nbytes in enumerate(segments, 1):
                of_pool[pools[segment]].append(nbytes)
            for beside in (False, True):
                taken = self._taken(large, pools, segments, beside=beside)
                spare_bytes = self.nbytes - most_live_bytes([*(life for _, life in taken), *others])
                if spare_bytes < 0:
                    yield -spare_bytes
                    continue
                # Beside large blocks, small ones lie up to the end of a segment.
                spared = [0, *(each for each, pool in pools.items() if pool and not beside)]
                for own_first, part, order in VARIANTS:
                    sizes = [own_bytes, *segments]
                    for each in spared:
                        sizes[each] -= int(min(MOST_SPARE * sizes[each], part * spare_bytes / len(spared)))
                    sizes[0] = max(sizes[0], min(own_bytes, needed_bytes))
                    regions = _Regions(sizes, own_first=own_first)
                    around = [regions.cut(place, life) for place, life in taken]
                    # Large blocks that fill their segments are the same as whole pools.
                    asked = (own_first, order, *sizes, *sorted(around))
                    if asked not in tried:
                        small, tried[asked] = self._around(large, pools, around, regions, order), 0
                        if isinstance(small, int):
                            tried[asked] = small
                            yield small
                        else:
                            yield small, Cut(of_pool, self._pools(large, small, pools))
                    if tried[asked] > spare_bytes:
                        break

    def _taken(
        self, large: Mapping[int, Place], pools: Mapping[int, int], segments: Sequence[int], *, beside: bool
    ) -> list[tuple[Place, Lifetime]]:
        """Return what others lie around: large blocks, or whole pools while any of theirs lives."""
        if beside:
            return [(place, self.blocks[at]) for at, place in large.items()]
        taken = list[tuple[Place, Lifetime]]()
        for segment, nbytes in enumerate(segments, 1):
            lives = (self.blocks[at] for at, (other, _) in large.items() if pools[other] == pools[segment])
            taken += [((segment, 0), each._replace(nbytes=nbytes)) for each in _joined_lives(lives)]
        return taken

    @cached_property
    def _steered(self) -> dict[int, Lifetime]:
        return {at: each for at, each in enumerate(self.blocks) if self.units[at] is not None}

    @cached_property
    def _always_own(self) -> Packing:
        return pack([each for at, each in enumerate(self.blocks) if at not in self._steered])

    def _around(
        self,
        large: Mapping[int, Place],
        pools: Mapping[int, int],
        around: Iterable[tuple[int, Lifetime]],
        regions: "_Regions",
        order: int,
    ) -> dict[int, Place] | int:
        """Lay out the other blocks around what is taken; return the bytes by which it is too high, if it is."""
        last = max(each.last for each in self.blocks)
        among = [*regions.walls(last), *around]
        # Those that are always in PyTorch's own pool first.
        own = [each for at, each in enumerate(self.blocks) if at not in self._steered]
        others = [regions.filled(each, last) for each, pool in pools.items() if pool]
        layout = next(packings(own, [*among, *others], regions.end))
        if layout.height_bytes > regions.end:
            return layout.height_bytes - regions.end
        among += zip(layout.offsets, own, strict=True)
        small = {at: each for at, each in self._steered.items() if at not in large}
        layout = next(packings([*small.values()], among, regions.end, order))
        if layout.height_bytes > regions.end:
            return layout.height_bytes - regions.end
        return dict(zip(small, map(regions.place, layout.offsets), strict=True))

    def _joined(self, large: Mapping[int, Place]) -> dict[int, int]:
        """Return by segment its pool: one for all segments in which a unit has blocks."""
        joined = {each: each for each in range(1 + max(segment for segment, _ in large.values()))}
        first = dict[Hashable, int]()
        for at, (segment, _) in large.items():
            before, after = joined[first.setdefault(self.units[at], segment)], joined[segment]
            joined = {each: before if pool == after else pool for each, pool in joined.items()}
        return joined

    def _pools(
        self, large: Mapping[int, Place], small: Mapping[int, Place], pools: Mapping[int, int]
    ) -> dict[Hashable, int]:
        """Return the pools of units: that of a large block, that of all others, or else PyTorch's own."""
        found = dict[Hashable, int]()
        for at, (segment, _) in small.items():
            unit, pool = self.units[at], pools[segment]
            found[unit] = pool if found.get(unit, pool) == pool else 0
        found |= {self.units[at]: pools[segment] for at, (segment, _) in large.items()}
        return {unit: pool for unit, pool in found.items() if pool}


class _Regions:
    """Addresses for PyTorch's own pool and for the segments of private ones, with walls between them.

    Those at lower addresses are filled first: PyTorch's own and then the segments, or else the segments from the last.
    """

    def __init__(self, sizes: Sequence[int], *, own_first: bool) -> None:
        self._sizes = sizes
        self._order = [*range(len(sizes))] if own_first else [*reversed(range(len(sizes)))]
        self._ends = [*accumulate(sizes[each] + _WALL_BYTES for each in self._order)]
        ends = zip(self._order, self._ends, strict=True)
        self._starts = {each: end - sizes[each] - _WALL_BYTES for each, end in ends}
        self.end = self._ends[-1] - _WALL_BYTES

    def walls(self, last: int) -> list[tuple[int, Lifetime]]:
        """Return blocks until a time, which no other crosses."""
        return [(end - _WALL_BYTES, Lifetime(_WALL_BYTES, 0, last)) for end in self._ends]

    def filled(self, segment: int, last: int) -> tuple[int, Lifetime]:
        """Return a block until a time, in all of a segment."""
        return self._starts[segment], Lifetime(self._sizes[segment], 0, last)

    def cut(self, place: Place, life: Lifetime) -> tuple[int, Lifetime]:
        """Return the address of a block, and the block as far as it is within its segment."""
        segment, offset = place
        return self._starts[segment] + offset, life._replace(nbytes=min(life.nbytes, self._sizes[segment] - offset))

    def place(self, address: int) -> Place:
        segment = self._order[bisect_right(self._ends, address)]
        return segment, address - self._starts[segment]


def _parts(placed: Iterable[tuple[int, Lifetime]]) -> list[range]:
    """Return the ranges of addresses that no block crosses, of blocks with addresses."""
    parts = list[range]()
    for start, life in sorted(placed):
        if not parts or start >= parts[-1].stop:
            parts.append(range(start, start))
        parts[-1] = range(parts[-1].start, max(parts[-1].stop, start + life.nbytes))
    return parts


def _joined_lives(lives: Iterable[Lifetime]) -> list[Lifetime]:
    """Return the times in which one of several blocks lives, in order."""
    found = list[Lifetime]()
    for each in sorted(lives, key=lambda life: life.first):
        if found and each.first <= found[-1].last:
            found[-1] = found[-1]._replace(last=max(found[-1].last, each.last))
        else:
            found.append(each)
    return found
