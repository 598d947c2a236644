"""The pieces into which the operations of a plan cut its buffers: what is true of one byte is true of its piece."""

from bisect import bisect_left
from itertools import pairwise

from vdnnsim.plan.operations import AllocateExtent, Offload, Prefetch, ReleaseExtent, of_extent
from vdnnsim.plan.training_plan import TrainingPlan


class Pieces:
    """The pieces of each buffer, in their order; a buffer of which no operation names an extent is one piece."""

    def __init__(self, plan: TrainingPlan) -> None:
        cuts: dict[int, set[int]] = {}
        for operation in plan.operations:
            match operation:
                case (
                    Offload(buffer=buffer, extent=range() as extent)
                    | Prefetch(buffer=buffer, extent=range() as extent)
                    | AllocateExtent(buffer=buffer, extent=extent)
                    | ReleaseExtent(buffer=buffer, extent=extent)
                ):
                    cuts.setdefault(buffer, {0, plan.buffers[buffer].nbytes}).update((extent.start, extent.stop))
                case _:
                    pass
        self._buffers = plan.buffers
        self._cuts = {buffer: sorted(each) for buffer, each in cuts.items()}

    def count(self, buffer: int) -> int:
        """Return how many pieces a buffer has."""
        return len(self._cuts[buffer]) - 1 if buffer in self._cuts else 1

    def covered(self, buffer: int, extent: range | None = None) -> range:
        """Return the numbers of the pieces that an extent of a buffer, or all of it, is made of."""
        if extent is None:
            return range(self.count(buffer))
        cuts = self._cuts[buffer]
        return range(bisect_left(cuts, extent.start), bisect_left(cuts, extent.stop))

    def ranges(self, buffer: int) -> list[range]:
        """Return the bytes of each piece."""
        cuts = self._cuts.get(buffer, [0, self._buffers[buffer].nbytes])
        return [range(*each) for each in pairwise(cuts)]

    def names(self, buffer: int) -> list[str]:
        """Return what to call each piece."""
        name = self._buffers[buffer].name
        return [of_extent(name, each) for each in self.ranges(buffer)] if buffer in self._cuts else [name]
