"""The pieces into which the operations of a plan cut its buffers: what is true of one byte is true of its piece."""

from bisect import bisect_left
from itertools import pairwise

from vdnnsim.plan.operations import AllocatePart, ByteRange, Offload, Prefetch, ReleasePart, of_part
from vdnnsim.plan.training_plan import TrainingPlan


class Pieces:
    """The pieces of each buffer, in their order; a buffer of which no operation names a part is one piece."""

    def __init__(self, plan: TrainingPlan) -> None:
        cuts: dict[int, set[int]] = {}
        for operation in plan.operations:
            match operation:
                case (
                    Offload(buffer=buffer, part=ByteRange() as part)
                    | Prefetch(buffer=buffer, part=ByteRange() as part)
                    | AllocatePart(buffer=buffer, part=part)
                    | ReleasePart(buffer=buffer, part=part)
                ):
                    cuts.setdefault(buffer, {0, plan.buffers[buffer].nbytes}).update((part.first, part.end))
                case _:
                    pass
        self._buffers = plan.buffers
        self._cuts = {buffer: sorted(each) for buffer, each in cuts.items()}

    def count(self, buffer: int) -> int:
        """Return how many pieces a buffer has."""
        return len(self._cuts[buffer]) - 1 if buffer in self._cuts else 1

    def covered(self, buffer: int, part: ByteRange | None = None) -> range:
        """Return the numbers of the pieces that a part of a buffer, or all of it, is made of."""
        if part is None:
            return range(self.count(buffer))
        cuts = self._cuts[buffer]
        return range(bisect_left(cuts, part.first), bisect_left(cuts, part.end))

    def ranges(self, buffer: int) -> list[ByteRange]:
        """Return the bytes of each piece."""
        cuts = self._cuts.get(buffer, [0, self._buffers[buffer].nbytes])
        return [ByteRange(first, end - first) for first, end in pairwise(cuts)]

    def names(self, buffer: int) -> list[str]:
        """Return what to call each piece."""
        name = self._buffers[buffer].name
        return [of_part(name, each) for each in self.ranges(buffer)] if buffer in self._cuts else [name]
