"""Streams of the CPU: order, waits, overlap, marks, failures, the end."""

import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration.devices.cpu import CpuDevice
from calibration.devices.interface import Mark
from calibration.devices.worker import WorkerStream

ROOT = Path(__file__).parents[3]
# Longer than a thread ever needs to come to its turn, so that what could overtake would.
HEAD_START_S = 0.05


def hold(stream: WorkerStream) -> threading.Event:
    gate = threading.Event()
    stream.launch(lambda: (gate.wait(10), None)[1])
    return gate


def test_a_stream_waits_for_a_mark_of_another(device: CpuDevice) -> None:
    done: list[str] = []

    def compute() -> None:
        time.sleep(HEAD_START_S)
        done.append("compute")

    device.compute.launch(compute)
    device.memory.wait(device.compute.mark())
    device.memory.launch(lambda: done.append("copy"))
    device.synchronize([device.memory])
    assert done == ["compute", "copy"]


def test_streams_run_at_the_same_time_and_are_synchronized_apart(device: CpuDevice) -> None:
    """Three works that each go on when all three have come: one after the other, they would break the barrier."""
    barrier = threading.Barrier(3, timeout=10)
    streams = [device.compute, device.memory, device.new_stream()]
    for stream in streams:
        stream.launch(lambda: (barrier.wait(), None)[1])
    device.synchronize(streams)
    assert not barrier.broken
    # Synchronizing one stream does not wait for another.
    gate = hold(device.memory)
    device.synchronize([device.compute])
    assert not gate.is_set()
    gate.set()
    # A mark is not read before it is reached.
    gate = hold(device.compute)
    mark = device.compute.mark()
    with pytest.raises(AssertionError, match="before its stream was synchronized"):
        assert mark.time_s
    gate.set()


# What the host gives: to which of three streams, and a work, a mark, or a wait for one of the marks so far.
PROGRAMS = st.lists(
    st.tuples(st.integers(0, 2), st.one_of(st.sampled_from(["work", "mark"]), st.integers(0, 100))), max_size=30
)


@pytest.fixture(scope="module")
def three_streams() -> Iterator[tuple[CpuDevice, list[WorkerStream]]]:
    device = CpuDevice()
    yield device, [device.compute, device.memory, device.new_stream()]
    device.close()


@given(program=PROGRAMS)
@settings(max_examples=60)
def test_time_runs_forward_on_every_stream_and_across_waits(
    three_streams: tuple[CpuDevice, list[WorkerStream]], program: list[tuple[int, str | int]]
) -> None:
    """What happens on a stream happens no earlier than all that stands before it there, marks waited for included."""
    device, streams = three_streams
    device.begin()
    marks: list[Mark] = []
    # For each stream, in its order: a mark, and whether it is the stream's own or one that it waits for.
    passed: list[list[tuple[Mark, bool]]] = [[], [], []]
    for at, step in program:
        if step == "work":
            interval = streams[at].launch(lambda: None)
            passed[at] += [(interval.start, True), (interval.end, True)]
        elif step == "mark":
            marks.append(streams[at].mark())
            passed[at].append((marks[-1], True))
        elif marks and isinstance(step, int):
            streams[at].wait(marks[step % len(marks)])
            passed[at].append((marks[step % len(marks)], False))
    device.synchronize(streams)
    for each in passed:
        reached_s = 0.0
        for mark, own in each:
            assert not own or mark.time_s >= reached_s
            reached_s = max(reached_s, mark.time_s)
        assert reached_s <= device.now_s()


def test_a_later_begin_sets_the_clock_to_zero_and_leaves_earlier_marks_alone(device: CpuDevice) -> None:
    """The first mark is reached after 50 ms of the first clock; the second at once, by the second clock."""
    device.begin()
    device.compute.launch(lambda: time.sleep(HEAD_START_S))
    first = device.compute.mark()
    device.begin()
    second = device.compute.mark()
    device.synchronize([device.compute])
    assert first.time_s >= HEAD_START_S
    assert 0.0 <= second.time_s <= device.now_s()
    assert second.time_s < first.time_s


def fail() -> None:
    raise ValueError("a kernel that fails")


def test_failed_stream_drops_work_but_reaches_its_marks(device: CpuDevice) -> None:
    done: list[str] = []
    device.compute.launch(fail)
    device.compute.launch(lambda: done.append("dropped"), lasts_s=60.0)
    device.memory.wait(device.compute.mark())
    device.memory.launch(lambda: done.append("copy"))
    device.synchronize([device.memory])
    with pytest.raises(ValueError, match="a kernel that fails"):
        device.synchronize([device.compute])
    assert done == ["copy"]


def test_a_failure_is_raised_once_with_its_own_frames_and_then_the_stream_works_again(device: CpuDevice) -> None:
    device.compute.launch(fail)
    with pytest.raises(ValueError, match="a kernel that fails") as raised:
        device.begin()
    assert "fail" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    done: list[str] = []
    device.compute.launch(lambda: done.append("works"))
    device.synchronize([device.compute])
    assert done == ["works"]
    # Work releases its tensors when done.
    tensor = torch.zeros(1)
    kept = weakref.ref(tensor)
    device.compute.launch(lambda tensor=tensor: tensor.add_(1))  # type: ignore[misc]
    del tensor
    device.synchronize([device.compute])
    assert kept() is None


def test_closing_drops_what_has_not_begun() -> None:
    """The first work runs until it is let go, after the device was told to close; the 100 behind it never begin."""
    device, done = CpuDevice(), list[int]()
    gate = hold(device.compute)
    for number in range(100):
        device.compute.launch(lambda number=number: done.append(number), lasts_s=1.0)  # type: ignore[misc]
    device.memory.wait(device.compute.mark())
    threading.Timer(HEAD_START_S, gate.set).start()
    device.close()
    assert done == []


def test_closed_device_refuses_work_and_closes_again() -> None:
    device = CpuDevice()
    device.compute.launch(fail)
    device.close()
    device.close()
    with pytest.raises(AssertionError, match="closed"):
        device.compute.launch(lambda: None)


def test_an_interrupted_host_does_not_wait_for_the_streams() -> None:
    """The work would take ten minutes; the host is interrupted after it has begun, and the process ends at once."""
    script = """\
import signal, threading
from calibration.devices.cpu import CpuDevice
device = CpuDevice()
interrupt = threading.Timer(0.2, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
device.compute.launch(interrupt.start, lasts_s=600.0)
device.synchronize([device.compute])
"""
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert "KeyboardInterrupt" in result.stderr
    assert result.returncode != 0
