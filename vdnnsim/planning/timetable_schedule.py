"""A timetable as the steps of a schedule, and the algorithms of its kernels."""

from collections.abc import Sequence

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
        maker = runs[max(0, number - 1)]
        while sent < len(movement.chunks) and movement.issued[sent] <= number:
            chunk = movement.chunks[sent]
            steps.append(Offload((chunk.wait.buffer,), maker.layer, maker.phase, extent=chunk.extent))
            sent += 1
        if timetable.released[number] > released:
            steps += _waits(movement.chunks[released : timetable.released[number]])
            released = timetable.released[number]
        steps += states.room_for(number)
        for chunk in movement.returning[fetched : timetable.fetched[number]]:
            steps.append(
                Prefetch((chunk.wait.buffer,), run.layer, run.phase, chunk.wait.next == number, extent=chunk.extent)
            )
        fetched = max(fetched, timetable.fetched[number])
        steps += [*states.before(number), run, *states.behind(number)]
    return steps


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
