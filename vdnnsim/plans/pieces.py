"""Pieces of buffers: the smallest extents that the operations of a plan distinguish."""

from bisect import bisect_left
from itertools import pairwise
from typing import Final

from vdnnsim.plans.descriptions import of_extent
from vdnnsim.plans.operations import AllocateExtent, Offload, Prefetch, ReleaseExtent
from vdnnsim.plans.training_plan import TrainingPlan

_MAY_NAME_EXTENTS: Final = frozenset({Offload, Prefetch, AllocateExtent, ReleaseExtent})


class Pieces:
    """The pieces of each buffer in order; without extents it is one piece."""

    def __init__(self, plan: TrainingPlan) -> None:
        cuts: dict[int, set[int]] = {}
        # Few of thousands of operations name an extent; testing the type first is fastest.
        candidates = (each for each in plan.operations if type(each) in _MAY_NAME_EXTENTS)
        for each in candidates:
            assert isinstance(each, Offload | Prefetch | AllocateExtent | ReleaseExtent)
            if each.extent is not None:
                ends = cuts.setdefault(each.buffer, {0, plan.buffers[each.buffer].nbytes})
                ends.update((each.extent.start, each.extent.stop))
        self._buffers = plan.buffers
        self._cuts = {buffer: sorted(each) for buffer, each in cuts.items()}

    def count(self, buffer: int) -> int:
        return len(self._cuts[buffer]) - 1 if buffer in self._cuts else 1

    def covered(self, buffer: int, extent: range | None = None) -> range:
        """Return the numbers of the pieces of an extent of a buffer, or of all of it."""
        if extent is None:
            return range(self.count(buffer))
        cuts = self._cuts[buffer]
        return range(bisect_left(cuts, extent.start), bisect_left(cuts, extent.stop))

    def ranges(self, buffer: int) -> list[range]:
        if buffer not in self._cuts:
            return [range(self._buffers[buffer].nbytes)]
        return [range(*each) for each in pairwise(self._cuts[buffer])]

    def names(self, buffer: int) -> list[str]:
        name = self._buffers[buffer].name
        return [of_extent(name, each) for each in self.ranges(buffer)] if buffer in self._cuts else [name]
