"""Timetables of the chain of ten kernels as schedules, lowered, checked and replayed."""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, replay
from tests.unit.planning.chain_of_ten_kernels import COSTS, TURN, WORKLOAD, chain_problem, wait_of
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.planning.problem import Option
from vdnnsim.planning.timetable import Chunk, Movement, Timetable
from vdnnsim.planning.timetable_schedule import kernels_of, steps_of
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import Offload, Prefetch, Run, ScheduleStep, Wait

INPUT, CONV1 = wait_of("map input"), wait_of("map conv1")


def timetable(capacity_bytes: int, *chunks: Chunk) -> Timetable:
    problem = chain_problem(capacity_bytes)
    options = [each.options[0] for each in problem.kernels]
    return Movement(problem, TURN, chunks, float, float).timetable(options)


def in_words(steps: list[ScheduleStep]) -> list[str]:
    """Steps in a few words; a kernel is its number."""
    words, kernels = [], 0
    for step in steps:
        match step:
            case Run():
                words.append(str(kernels))
                kernels += 1
            case Offload(buffers=(buffer,), extent=extent, layer=layer):
                words.append(f"{buffer}{_bytes(extent)} offloaded for {layer.name}")
            case Prefetch(buffers=(buffer,), extent=extent, layer=layer, on_demand=late):
                words.append(f"{buffer}{_bytes(extent)} {'fetched' if late else 'prefetched'} for {layer.name}")
            case Wait(buffers=what, extent=extent):
                words.append(f"wait {what}{_bytes(extent)}")
            case _:
                raise AssertionError(step)
    return words


def _bytes(extent: range | None) -> str:
    return "" if extent is None else f"[{extent.start}:{extent.stop}]"


def test_copies_stand_before_the_kernels_that_need_their_memory() -> None:
    """The timetable of 28 s of test_timetable.py: the last copy that a kernel waits for is waited for first."""
    chunks = [Chunk(INPUT, len(each), each) for each in (range(2), range(2, 4), range(4, 10))]
    found = timetable(294, *chunks, Chunk(CONV1, 2, range(2)))
    x, y = INPUT.buffer, CONV1.buffer

    assert in_words(steps_of(found)) == [
        *(f"{x}[0:2] offloaded for conv1", f"{x}[2:4] offloaded for conv1", f"{x}[4:10] offloaded for conv1", "0"),
        *(f"{y}[0:2] offloaded for conv1", "1"),
        *(f"wait ({x},)[0:2]", "2", f"wait ({x},)[2:4]", "3", "4"),
        *(f"wait ({y},)[0:2]", f"wait ({x},)[4:10]", "5", "6"),
        *(f"{y}[0:2] prefetched for conv2", "7", "8"),
        *(f"{x}[0:2] fetched for conv1", f"{x}[2:4] fetched for conv1", f"{x}[4:10] fetched for conv1", "9"),
    ]


def test_whole_buffers_that_are_copied_at_once_wait_for_the_compute_stream_once() -> None:
    """In 1000 B both maps may be back after the turn; conv1 is used first. What differs in its extent stands alone."""
    x, y = INPUT.buffer, CONV1.buffer
    whole, part = [Chunk(INPUT, 10, None), Chunk(CONV1, 10, None)], Chunk(CONV1, 5, range(5))
    for chunks, back in ((whole, [(y, x)]), ([whole[0], part], [(y,), (x,)])):
        steps = steps_of(timetable(1000, *chunks))
        assert [each.buffers for each in steps if isinstance(each, Prefetch)] == back


@pytest.mark.parametrize(
    "chunks",
    [
        [Chunk(INPUT, 2, range(2)), Chunk(INPUT, 8, range(2, 10)), Chunk(CONV1, 2, range(2))],
        [Chunk(INPUT, 10, None), Chunk(CONV1, 10, None)],
        [Chunk(INPUT, 10, None), Chunk(CONV1, 5, range(5))],
    ],
)
def test_a_replay_takes_as_long_as_its_timetable(chunks: list[Chunk]) -> None:
    found = timetable(294, *chunks)
    kernels = kernels_of([each.run for each in found.movement.problem.kernels], found.options)
    plan = lower(steps_of(found), WORKLOAD, kernels, label="plan", algorithms="one by one")

    trace = replay(plan, COSTS, limits=replace(TOY_LIMITS, device_bytes=294))

    assert trace.iteration_s == found.seconds


def test_operations_of_a_phase_share_the_algorithm_with_the_least_workspace() -> None:
    """A phase has one kernel: where its two operations chose differently, the one that fits both."""
    workload = WORKLOAD
    run, *_ = (each.run for each in chain_problem(1000).kernels)
    fast, small = KernelCost("fast", 1.0, 40, Origin.ASSUMED), KernelCost("small", 2.0, 0, Origin.ASSUMED)
    options = [Option(each, each.seconds, each.workspace_bytes) for each in (fast, small)]
    parts = [replace(run, operation=at) for at in range(2)]

    assert kernels_of(parts, options) == {(workload.graph.layers[0].index, Phase.FORWARD): small}
    assert kernels_of(parts, options[::-1]) == {(workload.graph.layers[0].index, Phase.FORWARD): small}
