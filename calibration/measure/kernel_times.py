"""Time every way to compute a kernel shape, and learn what workspace it takes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle

import torch

from calibration.devices.port import Device, OutOfDeviceMemory
from calibration.kernels.port import Kernel, KernelTensors
from calibration.measure.statistics import Sample, percent
from calibration.measure.subjects import Subject
from calibration.measure.timing import TimeBox, time_work
from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.hardware.server import Origin
from vdnnsim.messages import one_line

OUT_OF_MEMORY = "out of memory"
_LONGEST_NOTE = 200


def measure_kernel(
    device: Device, subject: Subject, kernel: Kernel, operands: Sequence[KernelTensors], box: TimeBox
) -> KernelRow:
    """Return the row of one algorithm; what could not be measured has no seconds, and a note that says why.

    Args:
        device: does nothing else meanwhile.
        subject: what is computed.
        kernel: how.
        operands: without the workspace; where there are several, runs take them in turn.
        box: how often it is run.
    """
    passed: torch.Tensor | None = None
    workspace_bytes = kernel.workspace_bytes
    try:
        if kernel.passed_bytes:
            passed = device.allocate(kernel.passed_bytes)
        if workspace_bytes is not None:
            device.takes_for_itself(workspace_bytes - kernel.passed_bytes)
        work = _in_turn(kernel, [replace(tensors, workspace=passed) for tensors in operands])
        if workspace_bytes is None:
            workspace_bytes = kernel.passed_bytes + own_bytes(device, work)
        sample = time_work(device, device.compute, work, box)
    except (OutOfDeviceMemory, torch.OutOfMemoryError):
        return unmeasured_row(subject, kernel, OUT_OF_MEMORY)
    except torch.AcceleratorError:
        # The device itself is broken, and whatever follows on it would fail as well.
        raise
    except RuntimeError as failure:
        return unmeasured_row(subject, kernel, f"failed: {one_line(str(failure))}"[:_LONGEST_NOTE])
    finally:
        device.synchronize([device.compute])
        if passed is not None:
            device.release(passed)
    row = replace(unmeasured_row(subject, kernel, ""), workspace_bytes=workspace_bytes)
    return _with_time(row, sample)


def unmeasured_row(subject: Subject, kernel: Kernel, note: str) -> KernelRow:
    """Return the row of an algorithm that could not be timed."""
    return KernelRow(
        shape=subject.shape,
        algorithm=kernel.algorithm,
        family=kernel.family,
        seconds=None,
        spread=0.0,
        count=0,
        workspace_bytes=kernel.workspace_bytes or 0,
        flop=subject.workload.flop(subject.layer, subject.phase),
        nbytes=subject.workload.bytes_moved(subject.layer, subject.phase),
        origin=Origin.MEASURED,
        note=note,
    )


def _with_time(row: KernelRow, sample: Sample) -> KernelRow:
    if sample.is_refused:
        note = "; ".join(filter(None, [f"spread of {percent(sample.spread)}", sample.remark]))
        return replace(row, spread=sample.spread, count=sample.count, note=note)
    note = "run once, being much slower than another algorithm" if sample.count == 1 else sample.remark
    return replace(row, seconds=sample.median, spread=sample.spread, count=sample.count, note=note)


def _in_turn(kernel: Kernel, operands: Sequence[KernelTensors]) -> Callable[[], None]:
    """Return a work that computes with the next of several operands each time."""
    turns = cycle(operands)
    return lambda: kernel.run(next(turns))


def own_bytes(device: Device, work: Callable[[], None]) -> int:
    """Return what a kernel takes from PyTorch's allocator while it runs.

    Raises:
        OutOfDeviceMemory: there is not so much.
    """
    # The first run also brings what a library keeps for good, such as the workspace of cuBLAS.
    device.compute.launch(work)
    device.begin()
    device.compute.launch(work)
    device.synchronize([device.compute])
    return device.peaks().requested_bytes
