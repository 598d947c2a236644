"""Measured steps beside their prediction: three images, whose activations of 16 B are offloaded and prefetched."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.captured_steps import chain
from tests.machines import shipped_server
from vdnnsim.analysis.measured_step import (
    larger,
    measured_link,
    measured_operations,
    operation_seconds,
    planned_s,
    slower,
)
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Link
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.live_step import Level, LiveCopy, LiveStep, Pause, Stretch, Way
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.simulator import Simulator


def replayed(policy: str) -> IterationTrace:
    server = shipped_server("rtx_4090")
    simulator = Simulator.of(CapturedWorkload.of(chain(3)), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    return simulator.run(resolve_policy(policy, known_policies()), simulator.oracle())[0].trace


@pytest.fixture(scope="module")
def moving() -> IterationTrace:
    return replayed("save_on_cpu")


def as_predicted(trace: IterationTrace) -> LiveStep:
    """Return a step as predicted, a stretch for each operation; the update is left out."""
    step = trace.plan.workload.step
    numbers = [at for at, each in enumerate(step.operations) if each.phase is not Phase.UPDATE]
    seconds = operation_seconds(trace)
    starts = [sum(seconds[each] for each in numbers[:at]) for at in range(len(numbers) + 1)]
    stretches = tuple(
        Stretch(range(number, number + 1), *times) for number, times in zip(numbers, pairwise(starts), strict=True)
    )
    copies = []
    for span in trace.spans:
        copy = trace.plan.operations[span.operation]
        if isinstance(copy, Offload | Prefetch) and copy.copy == 0:
            buffer = trace.plan.buffers[copy.buffer]
            assert buffer.storage is not None
            way = Way.OUT if isinstance(copy, Offload) else Way.BACK
            copies.append(LiveCopy(way, buffer.storage, range(buffer.nbytes), span.start_s, span.end_s))
    waits_s = sum(each.end_s - each.start_s for each in trace.stalls if each.waited_for is not None)
    pauses = (Pause(numbers[-1], 0.0, waits_s),)
    return LiveStep("card", 3, planned_s(trace), None, 0, 0, stretches, pauses, tuple(copies))


def test_differences_of_a_step_as_planned_and_of_an_unplanned_copy(moving: IterationTrace) -> None:
    assert all(each.excess == pytest.approx(0.0, abs=1e-12) for each in slower(as_predicted(moving), moving))
    # Forward and backward end before the update.
    kernels = [each for each in moving.spans if isinstance(moving.plan.operations[each.operation], Compute)]
    assert planned_s(moving) == kernels[-2].end_s < kernels[-1].end_s
    # A copy of some bytes that was not planned.
    copy = LiveCopy(Way.BACK, 5, range(8, 24), 0.0, 1.0)
    first = slower(replace(as_predicted(moving), copies=(copy,)), moving)[0]
    assert (first.what, first.measured, first.planned) == ("prefetch of bytes 8 to 23 of conv", 1.0, 0.0)


def test_largest_difference_comes_first(moving: IterationTrace) -> None:
    """The convolution takes 3 s more, a copy of its result 2 s more, and what the loop waits for 1 s more."""
    step = as_predicted(moving)
    first, *stretches = step.stretches
    slow = [each for each in step.copies if (each.way, each.storage) == (Way.OUT, 5)]
    assert len(slow) == 1
    copies = [replace(each, end_s=each.end_s + 2.0) if each in slow else each for each in step.copies]
    (pause,) = step.pauses
    step = replace(
        step,
        stretches=(replace(first, end_s=first.end_s + 3.0), *stretches),
        copies=tuple(copies),
        pauses=(replace(pause, end_s=pause.end_s + 1.0),),
    )
    found = slower(step, moving)
    assert [(each.what, round(each.excess, 6)) for each in found[:3]] == [
        ("forward of conv", 3.0),
        ("offload of conv", 2.0),
        ("waiting for copies and recomputing", 1.0),
    ]
    assert found[0].planned == operation_seconds(moving)[0]


def test_a_stretch_is_divided_as_it_was_predicted() -> None:
    """6 s for operations of 1, 0 and 2 s: 2 and 4 s; the stretch of an operation without a time is left out."""
    step = LiveStep("card", 1, 7.0, None, 0, 0, (Stretch(range(3), 0.0, 6.0), Stretch(range(3, 4), 6.0, 7.0)))
    assert measured_operations(step, {0: 1.0, 1: 0.0, 2: 2.0}) == {0: 2.0, 2: 4.0}


def test_a_link_by_its_copies() -> None:
    """10 B in two copies took 4 s, of which each has half a second of latency; nothing was prefetched.

    Of copies that were faster than the latency it is left out.
    """
    link = Link("link", h2d_bytes_per_s=7.0, d2h_bytes_per_s=1.0, latency_s=0.5)
    copies = (LiveCopy(Way.OUT, 1, range(4), 0.0, 1.0), LiveCopy(Way.OUT, 2, range(2, 8), 1.0, 4.0))
    step = LiveStep("card", 1, 7.0, None, 0, 0, copies=copies)
    assert measured_link(step, link) == replace(link, d2h_bytes_per_s=10 / 3)
    assert measured_link(step, replace(link, latency_s=2.0)).d2h_bytes_per_s == 10 / 4


def test_allocation_above_the_plan_is_found() -> None:
    """All is kept, each in 512 B: weights, images and labels are five of them.

    Before normalization there is the convolution as well, before pooling normalization and its statistics. Of two
    levels before an operation the last counts; one that was not planned does not.
    """
    found = [(1, 9000), (1, 6 * 512 + 20), (3, 8 * 512 + 30), (2, 8 * 512), (99, 10**6)]
    levels = tuple(Level(operation, 0.0, nbytes) for operation, nbytes in found)
    above = larger(LiveStep("card", 3, 1.0, 9000, 0, 0, memory=levels), replayed("pytorch"))
    assert [(each.what, each.measured, each.planned) for each in above] == [
        ("before forward of pool", 4126, 4096),
        ("before forward of bn", 3092, 3072),
    ]


def test_recomputation_counts_as_waiting() -> None:
    trace = replayed("checkpoint")
    assert any(isinstance(each, Compute) and each.repeat for each in trace.plan.operations)
    assert larger(LiveStep("card", 1, 1.0, 1, 0, 0, memory=(Level(1, 0.0, 1),)), trace) == []
    (waits,) = (each for each in slower(LiveStep("card", 1, 1.0, None, 0, 0), trace) if each.what.startswith("waiting"))
    assert (waits.measured, waits.planned > 0) == (0.0, True)
