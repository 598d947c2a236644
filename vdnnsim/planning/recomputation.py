"""Orders of kernels with recomputation: buffers are dropped after forward and restored for backward.

A dropped buffer is restored right before the first kernel of backward that reads it, by recomputing the kernels that
wrote it, after restoring their dropped inputs. So consecutive dropped buffers are restored as a segment, once, together
with temporaries that only forward reads. Weights that FSDP gathers are read as backward gathered them, once it has, as
under PyTorch's checkpointing; before that what forward gathered is kept. Offloads for an order with recomputations are
searched like those of any other (`vdnnsim.planning.offload`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import replace
from itertools import chain, groupby

from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.planning.buffer_uses import sums_of
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, Schedule, by_operation


class Recomputation:
    """An iteration with an optional recomputation of parts of forward.

    Attributes:
        runs: the iteration without recomputation, operation by operation.
        droppable: buffers that can be restored and that backward reads, in the order in which forward last writes them.
    """

    def __init__(self, schedule: Schedule, workload: Workload, costs: CostTable) -> None:
        self.runs = [each for each in by_operation(schedule, workload.step) if isinstance(each, Run)]
        self._buffers = buffers = IterationBuffers(workload)
        self._costs = costs
        self._step = workload.step
        self._touched = [buffers.touched(run) for run in self.runs]
        self._read_again = [buffers.touched(replace(run, repeat=1))[0] for run in self.runs]
        again = buffers.gathered_again
        # By kernel of forward, what backward must have gathered so that a recomputation reads that.
        gathered = [{again[each] for each in read if each in again} for read in self._read_again]
        self._gathered = {at: names for at, names in enumerate(gathered) if names}
        self._forward = [at for at, run in enumerate(self.runs) if run.phase is Phase.FORWARD]
        self._writers: dict[int, list[int]] = defaultdict(list)
        self._touching: dict[int, list[int]] = defaultdict(list)
        for at, touched in enumerate(self._touched):
            for each in chain(*touched):
                self._touching[each].append(at)
        for at in self._forward:
            for each in dict.fromkeys(self._touched[at][1]):
                self._writers[each].append(at)
        wanted = {each for at, run in enumerate(self.runs) if run.phase.is_backward for each in self._touched[at][0]}
        kinds = (BufferKind.FEATURE_MAP, BufferKind.STATISTICS, BufferKind.WORKSPACE)
        # Given buffers cannot be restored.
        made = (each for each in self._writers if not buffers.buffers[each].given)
        able = [each for each in made if buffers.buffers[each].kind in kinds and self._can_run_again(each)]
        replaced = self._replaced(self._writers.keys() - {*able, *wanted, *again})
        self._restorable = [each for each in able if each not in replaced]
        self.droppable = sorted(wanted.intersection(self._restorable), key=lambda each: (self._made(each), each))
        self._unwanted = set(self._restorable) - wanted

    def nbytes(self, buffer: int) -> int:
        return self._buffers.nbytes(buffer)

    def price(self, buffer: int) -> float:
        """Return the seconds per byte to restore a buffer whose inputs are live."""
        return sum(self._seconds(self.runs[at]) for at in self._writers[buffer]) / max(1, self.nbytes(buffer))

    def alike(self, buffer: int) -> Hashable:
        """Return a key that is equal for the same buffer of equal blocks: its size, and times of what touches it."""
        return self.nbytes(buffer), tuple(self._seconds(self.runs[at]) for at in self._touching[buffer])

    def segmented(self, count: int) -> list[int]:
        """Return the buffers to drop if forward is checkpointed in segments, all but the last.

        Segments write equally many bytes, and end where the fewest bytes are live.
        """
        return [each for each, is_inside in self._inside(count).items() if is_inside]

    def checkpoints(self, count: int) -> list[int]:
        """Return the buffers that are kept so that segments, all but the last, can be recomputed."""
        return [each for each, is_inside in self._inside(count).items() if not is_inside]

    def _inside(self, count: int) -> dict[int, bool]:
        """Return whether forward reads a buffer only within the segment that makes it, of all segments but the last."""
        last, end = {each: at for at in self._forward for each in self._touched[at][0]}, len(self.runs)
        passing = sums_of(((self._made(each), last.get(each, -1), self.nbytes(each)) for each in self._restorable), end)
        made = sums_of(((self._made(each), end, self.nbytes(each)) for each in self.droppable), end)
        parts = groupby(self._forward, key=lambda at: made[at] * count // (made[-1] + 1))
        *cuts, _ = (min(reversed(list(part)), key=passing.__getitem__) for _, part in parts)
        # The end of the segment of each buffer.
        ends = {each: cuts[bisect_left(cuts, self._made(each)) :][:1] for each in self.droppable}
        return {each: found[0] >= last.get(each, -1) for each, found in ends.items() if found}

    def order(self, dropped: Collection[int]) -> list[Run]:
        """Return the kernels of an iteration that drops and restores some buffers."""
        # Buffers that only forward reads are restored as well.
        absent, runs, made = self._unwanted.union(dropped), list[Run](), set[int]()
        for at, run in enumerate(self.runs):
            if run.phase.is_backward:
                for each in self._touched[at][0]:
                    runs += self._restored(each, absent, made)
                made.update(self._touched[at][1])
            runs.append(run)
        return runs

    def _restored(self, buffer: int, absent: set[int], made: Collection[int]) -> Iterator[Run]:
        """Yield the runs that restore an absent buffer and their inputs, when backward has made some buffers."""
        waiting = [buffer] if buffer in absent else []
        while waiting:
            current = waiting[-1]
            runs = [self._again(at, made) for at in self._writers[current]]
            inputs = {each for run in runs for each in self._buffers.touched(run)[0]} - {current}
            missing = sorted(inputs & absent, key=self._made)
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if current not in absent:
                continue
            yield from runs
            for at in self._writers[current]:
                absent.difference_update(each for each in self._touched[at][1] if self._writers[each][-1] <= at)

    def _again(self, at: int, made: Collection[int]) -> Run:
        """Return the recomputation of a kernel, which reads weights that backward has gathered if it has."""
        return replace(self.runs[at], repeat=1, gathered=at in self._gathered and self._gathered[at].issubset(made))

    def _seconds(self, run: Run) -> float:
        return self._costs.fastest(run.layer.index, run.phase).of(run.operation or 0).seconds

    def _replaced(self, inputs: Iterable[int]) -> set[int]:
        """Return what one kernel makes of one of these inputs, and that is no larger, so that to keep it is no worse.

        As weights that are copied out of what ranks gathered.
        """
        found = set[int]()
        for each in inputs:
            reading = {at for at in self._touching[each] if each in self._read_again[at]}
            readers = reading.difference(self._writers[each])
            made = {buffer for at in readers for buffer in self._touched[at][1]}
            if len(readers) == 1 and sum(map(self.nbytes, made)) <= self.nbytes(each):
                found |= made
        return found

    def _made(self, buffer: int) -> int:
        return self._writers[buffer][-1]

    def _can_run_again(self, buffer: int) -> bool:
        """Whether the writers of a buffer are repeatable, and forward overwrites none of their other inputs."""
        if not all(self.runs[at].of(self._step).repeatable for at in self._writers[buffer]):
            return False
        return not any(
            later > at
            for at in self._writers[buffer]
            for each in self._read_again[at]
            if each != buffer
            for later in self._writers.get(each, ())
        )
