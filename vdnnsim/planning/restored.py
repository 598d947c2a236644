"""What an order with recomputations holds on the GPU in backward beside the operands of its kernels."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from vdnnsim.memory.requests import round_up
from vdnnsim.planning.buffer_uses import sums_of
from vdnnsim.planning.problem import Kernel, Problem


class Beside(NamedTuple):
    """Bytes on the GPU because a kernel is recomputed.

    Attributes:
        first, stop: the first kernel beside which they are, and the one after the last.
        is_kept: whether they are an input that was not dropped; else a temporary that only recomputations use.
    """

    kernel: int
    first: int
    stop: int
    nbytes: int
    is_kept: bool


class Restored(NamedTuple):
    """What an order restores, by kernels of the order without recomputation.

    Attributes:
        until: by dropped buffer, the kernel before which it is restored.
        beside: inputs of recomputations until their next use, and temporaries.
    """

    until: Mapping[int, int] = {}
    beside: tuple[Beside, ...] = ()


def restored(problem: Problem, turn: int, order: Problem, dropped: Collection[int]) -> tuple[Problem, Restored]:
    """Return what an order that drops some buffers restores, and a problem whose kernels hold all else that it holds.

    The problem is around the turn. A kernel holds the most that it, or a recomputation right before it, holds in the
    order.
    """
    # By kernel of the order, the next kernel that is no recomputation, and the reverse.
    following = list(accumulate((not each.run.repeat for each in order.kernels), initial=0))
    positions = [at for at, each in enumerate(order.kernels) if not each.run.repeat]
    order = order.around(positions[turn])
    number = {each.run: at for at, each in enumerate(problem.kernels)}
    idle, buffers = {each.buffer: each for each in problem.idle}, problem.buffers
    # By buffer a place in the order, and the kernel that is recomputed there.
    made, first_read, last_read = dict[int, tuple[int, int]](), dict[int, tuple[int, int]](), dict[int, int]()
    for at, each in enumerate(order.kernels):
        if each.run.repeat:
            kernel = number[replace(each.run, repeat=0, gathered=False)]
            reads, writes = buffers.touched(each.run)
            last_read |= dict.fromkeys(reads, at)
            for read in reads:
                if read in idle and read not in dropped:
                    first_read.setdefault(read, (at, kernel))
            made |= dict.fromkeys(writes, (at, kernel))
    spans, beside = list[tuple[int, int, int]](), list[Beside]()

    def enter(kernel: int, first: int, stop: int, nbytes: int, *, is_kept: bool) -> None:
        spans.append((first, stop, round_up(nbytes, problem.granule_bytes)))
        beside.append(Beside(kernel, following[first], following[stop], nbytes, is_kept))

    for buffer, (at, kernel) in first_read.items():
        enter(kernel, at, positions[idle[buffer].next], idle[buffer].nbytes, is_kept=True)
    for buffer, (at, kernel) in made.items():
        if buffer in dropped and buffer in idle:
            spans.append((at, positions[idle[buffer].next], round_up(idle[buffer].nbytes, problem.granule_bytes)))
        elif buffer not in idle and following[at] < following[last_read.get(buffer, at)]:
            enter(kernel, at, last_read[buffer], buffers.nbytes(buffer), is_kept=False)
    kernels, most = list[Kernel](), 0
    for each, nbytes in zip(order.kernels, sums_of(spans, len(order.kernels)), strict=True):
        most = max(most, each.held_bytes - nbytes)
        if not each.run.repeat:
            own = problem.kernels[len(kernels)]
            kernels.append(replace(own, held_bytes=max(most, own.held_bytes)))
            most = 0
    until = {buffer: following[at] for buffer, (at, _) in made.items() if buffer in dropped}
    return replace(problem, kernels=tuple(kernels)), Restored(until, tuple(beside))


def restored_too_early(
    order: Problem, turn: int, lacking: Mapping[int, int], dropped: frozenset[int], price: Callable[[int], float]
) -> frozenset[int]:
    """Return dropped buffers that wait, once restored, while kernels lack memory, the dearest first: as much as lacks.

    Or those for which an input waits. Kept, they can be offloaded instead.
    """
    waiting = [each for each in order.idle if not each.last < turn < each.next]
    early = set[int]()
    for at, nbytes in sorted(lacking.items(), key=lambda each: -each[1]):
        freed = Counter[int]()
        for each in waiting:
            if each.last < at < each.next:
                run = order.kernels[each.last].run
                made = order.buffers.touched(run)[1] if run.repeat else ()
                freed.update(dict.fromkeys({each.buffer} & dropped or dropped.intersection(made), each.nbytes))
        left = nbytes - sum(freed[each] for each in early)
        for buffer in sorted(freed.keys() - early, key=lambda each: (-price(each), each)):
            if left <= 0:
                break
            early.add(buffer)
            left -= freed[buffer]
    return frozenset(early)
