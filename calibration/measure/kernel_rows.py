"""Kernel table of a machine: the measured time of every algorithm for every distinct shape.

In an iteration little of a kernel's operands is in the cache; a kernel that is repeated on the same small operands
finds all of them there, on an H100 50 MB at several times the bandwidth of its memory. So there are as many copies of
the operands as fill the cache twice, and runs take them in turn.

Operands are random, since times differ on zeros: a GPU draws less power for them and clocks higher, and a CPU is slow
on the denormal numbers that repeated updates of zeros may leave.

Where there is a choice, an algorithm whose result is not that of PyTorch's own has no time: on an H100 an engine of
cuDNN 9.19 that its heuristics do not name (`eng72`, forward in 16 bits) returned no numbers.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Final

import torch

from calibration.devices.interface import Device, OutOfDeviceMemory
from calibration.kernels.interface import Kernel, KernelLibrary, KernelTensors
from calibration.kernels.operands import phase_operands
from calibration.measure.kernel_cases import KernelCase
from calibration.measure.session import Session
from calibration.measure.statistics import Sample, percent
from calibration.measure.timing import TimeBox, time_work
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Role
from vdnnsim.errors import ExecutionRefused
from vdnnsim.files.messages import one_line
from vdnnsim.hardware.server import Origin

OUT_OF_MEMORY = "out of memory"
_LONGEST_NOTE = 200
_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 0.3
_MUCH_SLOWER: Final = 5
_LARGEST_DIFFERENCE: Final = 2.0**-5
"""In the norm. Two roundings to bfloat16 differ by 2^-8; Winograd's transforms in float32 by 4e-4, on an H100."""
_COMPARED: Final = 2**20
"""Elements of a result."""
_MOST_COPIES: Final = 64
"""Of operands. Those smaller than a 64th of two caches, 1.6 MB on an H100, are read from memory in half a microsecond,
a fraction of a launch."""


def measure_kernel(
    device: Device, case: KernelCase, kernel: Kernel, operands: Sequence[KernelTensors], box: TimeBox
) -> KernelRow:
    """Return the row of one algorithm, whose runs take the operands in turn; if it fails, a note and no seconds."""
    workspace_bytes = kernel.workspace_bytes
    try:
        with lent_workspace(device, kernel) as passed:
            if workspace_bytes is not None:
                device.count_internal_allocation(workspace_bytes - kernel.passed_bytes)
            turns = cycle([replace(tensors, workspace=passed) for tensors in operands])

            def work() -> None:
                kernel.run(next(turns))

            if workspace_bytes is None:
                workspace_bytes = kernel.passed_bytes + own_bytes(device, work)
            sample = time_work(device, device.compute, work, box)
    except (OutOfDeviceMemory, torch.OutOfMemoryError):
        return unmeasured_row(case, kernel, OUT_OF_MEMORY)
    except torch.AcceleratorError:
        # The device is broken: further kernels would fail as well.
        raise
    except RuntimeError as failure:
        return unmeasured_row(case, kernel, f"failed: {one_line(str(failure))}"[:_LONGEST_NOTE])
    row = replace(unmeasured_row(case, kernel, ""), workspace_bytes=workspace_bytes)
    return _with_time(row, sample)


@contextmanager
def lent_workspace(device: Device, kernel: Kernel) -> Iterator[torch.Tensor | None]:
    """Hold what a kernel is passed as its workspace, None of no bytes, until the device is done with it."""
    passed = device.allocate(kernel.passed_bytes) if kernel.passed_bytes else None
    try:
        yield passed
    finally:
        device.synchronize([device.compute])
        if passed is not None:
            device.release(passed)


def unmeasured_row(case: KernelCase, kernel: Kernel, note: str) -> KernelRow:
    """Return the row of an algorithm that could not be timed."""
    return KernelRow(
        shape=case.shape,
        algorithm=kernel.algorithm,
        family=kernel.family,
        seconds=None,
        spread=0.0,
        count=0,
        workspace_bytes=kernel.workspace_bytes or 0,
        flop=case.workload.flop(case.layer, case.phase),
        nbytes=case.workload.bytes_moved(case.layer, case.phase),
        origin=Origin.MEASURED,
        note=note,
    )


def _with_time(row: KernelRow, sample: Sample) -> KernelRow:
    if sample.is_refused:
        note = "; ".join(filter(None, [f"spread of {percent(sample.spread)}", sample.remark]))
        return replace(row, spread=sample.spread, count=sample.count, note=note)
    note = "run once, being much slower than another algorithm" if sample.count == 1 else sample.remark
    return replace(
        row, seconds=sample.median, spread=sample.spread, count=sample.count, note=note, issue_s=sample.issue_s or None
    )


def _results(device: Device, kernel: Kernel, tensors: KernelTensors, phase: Phase) -> list[torch.Tensor]:
    """Return on the host the first elements of what a kernel writes, or adds to zeros."""
    written = [tensors.output] if phase is Phase.FORWARD else [*tensors.input_gradients, tensors.weight_gradient]
    found = [each for each in written if each is not None]
    with lent_workspace(device, kernel) as passed:

        def work() -> None:
            for each in found:
                each.zero_()
            kernel.run(replace(tensors, workspace=passed))

        device.compute.launch(work)
    # As they lie in memory, in whatever layout.
    starts = [each.as_strided((min(each.numel(), _COMPARED),), (1,)) for each in found]
    return [each.to("cpu", copy=True).float() for each in starts]


def _checked(row: KernelRow, found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> KernelRow:
    """Take the time from a row whose results are others than expected, but for sums that overflow 16 bits."""
    for result, own in zip(found, expected, strict=True):
        counts = own.isfinite()
        difference = float((result[counts] - own[counts]).norm())
        if not difference <= _LARGEST_DIFFERENCE * float(own[counts].norm()):
            return replace(row, seconds=None, note="computes something else than PyTorch's own kernel")
    return row


def own_bytes(device: Device, work: Callable[[], None]) -> int:
    """Return the peak of what a kernel allocates from PyTorch while it runs.

    Raises:
        OutOfDeviceMemory: there is no room.
    """
    # The first run also allocates what a library keeps, such as the workspace of cuBLAS.
    device.compute.launch(work)
    device.begin()
    device.compute.launch(work)
    device.synchronize([device.compute])
    return device.peaks().requested_bytes


@contextmanager
def smallest_kernel(
    device: Device, library: KernelLibrary, cases: Sequence[KernelCase]
) -> Iterator[Callable[[], None]]:
    """Hold the measured kernel with the least memory traffic, ready to be launched.

    Raises:
        ExecutionRefused, OutOfDeviceMemory: the library can compute none of them.
    """
    case, kernel = _smallest(library, cases)
    operands = kernel_operands(device, case, channels_last=library.channels_last)
    with operands as (tensors,), lent_workspace(device, kernel) as passed:
        yield partial(kernel.run, replace(tensors, workspace=passed))


def _smallest(library: KernelLibrary, cases: Sequence[KernelCase]) -> tuple[KernelCase, Kernel]:
    refusals: list[ExecutionRefused | OutOfDeviceMemory] = []
    for case in sorted(cases, key=lambda each: each.workload.bytes_moved(each.layer, each.phase)):
        try:
            return case, library.kernels(case.workload, case.layer, case.phase)[0]
        except (ExecutionRefused, OutOfDeviceMemory) as refused:
            refusals.append(refused)
    raise refusals[0]


class KernelTable:
    """Measures the table of one machine; each shape has an equal share of the budget."""

    def __init__(self, device: Device, library: KernelLibrary, session: Session, *, budget_s: float) -> None:
        self._device, self._library, self._session, self._budget_s = device, library, session, budget_s

    def measure(self, cases: Sequence[KernelCase]) -> tuple[KernelRow, ...]:
        """Return the rows of all shapes; a shape that the library cannot compute is a warning."""
        rows: list[KernelRow] = []
        for case in cases:
            try:
                kernels = self._library.kernels(case.workload, case.layer, case.phase)
            except (ExecutionRefused, OutOfDeviceMemory) as refused:
                self._session.warnings.append(f"{case.name}: {refused}")
            else:
                rows += self._rows(case, kernels, self._budget_s / len(cases))
            self._session.listener.done(case.name)
        return tuple(rows)

    def _rows(self, case: KernelCase, kernels: Sequence[Kernel], budget_s: float) -> list[KernelRow]:
        box = TimeBox(budget_s=min(max(budget_s / len(kernels), _SHORTEST_S), _LONGEST_S))
        rows: list[KernelRow] = []
        expected: list[torch.Tensor] = []
        with ExitStack() as held:
            operands: list[tuple[KernelTensors, ...]] = []

            def measured(kernel: Kernel) -> KernelRow:
                try:
                    # For the first kernel that is not in the journal.
                    if not operands:
                        made = kernel_operands(
                            self._device,
                            case,
                            channels_last=self._library.channels_last,
                            cache_bytes=self._device.cache_bytes,
                        )
                        operands.append(held.enter_context(made))
                except (OutOfDeviceMemory, torch.OutOfMemoryError):
                    return unmeasured_row(case, kernel, OUT_OF_MEMORY)
                fastest_s = min((row.seconds for row in rows if row.seconds is not None), default=math.inf)
                patient = replace(box, patience_s=_MUCH_SLOWER * fastest_s)
                row = measure_kernel(self._device, case, kernel, operands[0], patient)
                if row.seconds is None or not rows or rows[0].seconds is None:
                    return row
                if not expected:
                    expected.extend(_results(self._device, kernels[0], operands[0][0], case.phase))
                return _checked(row, _results(self._device, kernel, operands[0][0], case.phase), expected)

            for kernel in kernels:
                key = f"{kernel.algorithm}: {_text(case.shape)}"
                rows.append(self._session.take(key, KernelRow, lambda kernel=kernel: measured(kernel)))  # type: ignore[misc]
            operands.clear()
        return rows


def _text(shape: KernelShape) -> str:
    parts = (shape.phase.value, str(shape.batch_size), shape.element_type.value, shape.inputs_text, shape.gradients)
    return ", ".join((shape.operator, *parts))


@contextmanager
def kernel_operands(
    device: Device, case: KernelCase, *, channels_last: bool, cache_bytes: int = 0
) -> Iterator[tuple[KernelTensors, ...]]:
    """Hold the operands of a case in device memory, without a workspace, which differs by algorithm.

    Where there is a cache, so many copies of them that they fill it twice.

    Raises:
        OutOfDeviceMemory: there is no room for them.
    """
    blocks: list[torch.Tensor] = []

    def take(kind: torch.dtype, count: int) -> torch.Tensor:
        blocks.append(device.allocate(count * kind.itemsize))
        return blocks[-1].view(kind)

    def fill(flat: torch.Tensor, role: Role, _: int) -> None:
        def work() -> None:
            flat.zero_() if role is Role.LABELS else flat.uniform_()

        device.compute.launch(work)

    def operands() -> KernelTensors:
        return phase_operands(case.workload, case.layer, case.phase, take, fill, channels_last=channels_last)

    try:
        copies = [operands()]
        wanted = math.ceil(2 * cache_bytes / sum(block.nbytes for block in blocks))
        copies += [operands() for _ in range(1, min(wanted, _MOST_COPIES))]
        yield tuple(copies)
        copies.clear()
    finally:
        device.synchronize([device.compute])
        while blocks:
            device.release(blocks.pop())
