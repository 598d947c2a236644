"""Orders of kernels with recomputation: some of forward runs once more for backward, instead of being kept.

What is dropped after forward is restored just before the first kernel of backward that reads it: everything that wrote
it runs again, and before that whatever of its inputs was dropped as well. So what is dropped in a row is restored as a
segment, once, from what was kept or came back; and with it temporaries that forward alone reads. An order with
recomputations is a problem like any other, and what leaves and comes back in it is found as in any other
(`vdnnsim.planning.offload`).
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby

from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.planning.buffer_uses import sums_of
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, Schedule, by_operation


class Recomputation:
    """An iteration whose forward can run again in parts.

    Attributes:
        runs: the iteration without any recomputation, operation by operation.
        droppable: buffers that can be restored and that backward reads, in the order in which forward last writes them.
    """

    def __init__(self, schedule: Schedule, workload: Workload, costs: CostTable) -> None:
        self.runs = [each for each in by_operation(schedule, workload.step) if isinstance(each, Run)]
        self._buffers = buffers = IterationBuffers(workload)
        self._costs = costs
        self._step = workload.step
        self._touched = [buffers.touched(run) for run in self.runs]
        self._read_again = [buffers.touched(replace(run, repeat=1))[0] for run in self.runs]
        self._forward = [at for at, run in enumerate(self.runs) if run.phase is Phase.FORWARD]
        self._writers: dict[int, list[int]] = defaultdict(list)
        for at in self._forward:
            for each in dict.fromkeys(self._touched[at][1]):
                self._writers[each].append(at)
        wanted = {each for at, run in enumerate(self.runs) if run.phase.is_backward for each in self._touched[at][0]}
        kinds = (BufferKind.FEATURE_MAP, BufferKind.STATISTICS, BufferKind.WORKSPACE)
        # Of what an iteration begins with nobody can make the content again.
        made = (each for each in self._writers if not buffers.buffers[each].given)
        self._restorable = [each for each in made if buffers.buffers[each].kind in kinds and self._can_run_again(each)]
        self.droppable = sorted(wanted.intersection(self._restorable), key=lambda each: (self._made(each), each))
        self._unwanted = set(self._restorable) - wanted

    def nbytes(self, buffer: int) -> int:
        """Return the size of a buffer."""
        return self._buffers.nbytes(buffer)

    def price(self, buffer: int) -> float:
        """Return the seconds a byte that it takes to restore a buffer whose inputs are there."""
        runs = [self.runs[at] for at in self._writers[buffer]]
        kernels = (self._costs.fastest(run.layer.index, run.phase).of(run.operation or 0) for run in runs)
        return sum(each.seconds for each in kernels) / max(1, self.nbytes(buffer))

    def segmented(self, count: int) -> list[int]:
        """Return what goes where of segments of forward only stays what passes from one to the next.

        Each of so many makes equally much, and ends where least passes; of the last all stays.
        """
        last, end = {each: at for at in self._forward for each in self._touched[at][0]}, len(self.runs)
        passing = sums_of(((self._made(each), last.get(each, -1), self.nbytes(each)) for each in self._restorable), end)
        made = sums_of(((self._made(each), end, self.nbytes(each)) for each in self.droppable), end)
        parts = groupby(self._forward, key=lambda at: made[at] * count // (made[-1] + 1))
        *cuts, _ = (min(reversed(list(part)), key=passing.__getitem__) for _, part in parts)
        # Of each the end of the segment that makes it.
        ends = {each: cuts[bisect_left(cuts, self._made(each)) :][:1] for each in self.droppable}
        return [each for each, found in ends.items() if found and found[0] >= last.get(each, -1)]

    def order(self, dropped: Collection[int]) -> list[Run]:
        """Return the kernels of an iteration that drops some buffers and restores them."""
        # What only forward reads is not kept for what is restored from it, but restored as well.
        absent, runs = self._unwanted.union(dropped), list[Run]()
        for at, run in enumerate(self.runs):
            if run.phase.is_backward:
                for each in self._touched[at][0]:
                    runs += self._restored(each, absent)
            runs.append(run)
        return runs

    def _restored(self, buffer: int, absent: set[int]) -> Iterator[Run]:
        """Yield the runs that restore a buffer, if it is absent, and what they read."""
        waiting = [buffer] if buffer in absent else []
        while waiting:
            current = waiting[-1]
            inputs = {each for at in self._writers[current] for each in self._read_again[at]} - {current}
            missing = sorted(inputs & absent, key=self._made)
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if current not in absent:
                continue
            for at in self._writers[current]:
                yield replace(self.runs[at], repeat=1)
                absent.difference_update(each for each in self._touched[at][1] if self._writers[each][-1] <= at)

    def _made(self, buffer: int) -> int:
        return self._writers[buffer][-1]

    def _can_run_again(self, buffer: int) -> bool:
        """Whether what wrote a buffer may run again, and reads what nobody in forward writes over but that buffer."""
        if not all(self._is_repeatable(self.runs[at]) for at in self._writers[buffer]):
            return False
        return not any(
            later > at
            for at in self._writers[buffer]
            for each in self._read_again[at]
            if each != buffer
            for later in self._writers.get(each, ())
        )

    def _is_repeatable(self, run: Run) -> bool:
        return self._step.operations_of(run.layer.index, run.phase)[run.operation or 0].repeatable
