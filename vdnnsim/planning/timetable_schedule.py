"""A timetable as the steps of a schedule, and the algorithms of its kernels."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby

from vdnnsim.cost.table import KernelChoice, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.planning.optimizer_states import Streaming
from vdnnsim.planning.problem import Option
from vdnnsim.planning.timetable import Chunk, Timetable
from vdnnsim.plans.schedule import Offload, Prefetch, Run, ScheduleStep, Wait


def steps_of(timetable: Timetable) -> list[ScheduleStep]:
    movement, states, steps = timetable.movement, Streaming(timetable), list[ScheduleStep]()
    runs = [each.run for each in movement.problem.kernels]
    sent = released = fetched = 0
    for number, run in enumerate(runs):
        maker, first = runs[max(0, number - 1)], sent
        sent = max(sent, bisect_right(movement.issued, number))
        for buffers, extent in _together(movement.chunks[first:sent]):
            steps.append(Offload(buffers, maker.layer, maker.phase, extent=extent))
        if timetable.released[number] > released:
            steps += _waits(movement.chunks[released : timetable.released[number]])
            released = timetable.released[number]
        steps += states.room_for(number)
        returning = movement.returning[fetched : timetable.fetched[number]]
        # Chunks are in the order of their next uses.
        needed = bisect_right(returning, number, key=lambda each: each.wait.next)
        for chunks, is_needed in ((returning[:needed], True), (returning[needed:], False)):
            for buffers, extent in _together(chunks):
                steps.append(Prefetch(buffers, run.layer, run.phase, is_needed, extent=extent))
        fetched = max(fetched, timetable.fetched[number])
        steps += [*states.before(number), run, *states.behind(number)]
    return steps


def _together(chunks: Sequence[Chunk]) -> Iterator[tuple[tuple[int, ...], range | None]]:
    """Yield buffers that are copied whole one after the other, and parts one by one.

    What is copied together waits for the compute stream once: each event and wait is a call of the host.
    """
    for is_whole, alike in groupby(chunks, lambda each: each.extent is None):
        if is_whole:
            yield tuple(each.wait.buffer for each in alike), None
        else:
            yield from (((each.wait.buffer,), each.extent) for each in alike)


def _waits(chunks: Sequence[Chunk]) -> list[ScheduleStep]:
    """Return waits for chunks, the last first, which covers all."""
    whole = tuple(each.wait.buffer for each in chunks if each.extent is None)
    parts = [Wait((each.wait.buffer,), each.extent) for each in reversed(chunks) if each.extent is not None]
    return [*parts, *([Wait(whole)] if whole else [])]


def kernels_of(runs: Sequence[Run], options: Sequence[Option]) -> KernelChoice:
    """Return the algorithm of each phase, of several for its operations the one with the least workspace."""
    chosen: dict[tuple[int, Phase], KernelCost] = {}
    for run, option in zip(runs, options, strict=True):
        where = run.layer.index, run.phase
        other = chosen.get(where, option.kernel)
        chosen[where] = min(other, option.kernel, key=lambda each: each.workspace_bytes)
    return chosen
