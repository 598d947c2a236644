"""The kernel table of a machine: every algorithm for every distinct shape, measured one shape after the other."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import torch

from calibration.devices.port import Device, OutOfDeviceMemory
from calibration.kernels.port import Kernel, KernelLibrary, KernelTensors
from calibration.measure.kernel_times import OUT_OF_MEMORY, measure_kernel, unmeasured_row
from calibration.measure.operands import kernel_operands
from calibration.measure.session import Session
from calibration.measure.subjects import Subject
from calibration.measure.timing import TimeBox
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.errors import ExecutionRefused

_SHORTEST_S: Final = 0.02
_LONGEST_S: Final = 0.3
_MUCH_SLOWER: Final = 5


@contextmanager
def smallest_kernel(
    device: Device, library: KernelLibrary, subjects: Sequence[Subject]
) -> Iterator[Callable[[], None]]:
    """Hold the kernel that touches the least memory of all that are measured, ready to be launched.

    Raises:
        ExecutionRefused, OutOfDeviceMemory: the library can compute none of them.
    """
    subject, kernel = _smallest(library, subjects)
    with kernel_operands(device, subject, channels_last=library.channels_last) as (tensors,):
        passed = device.allocate(kernel.passed_bytes)
        try:
            yield partial(kernel.run, replace(tensors, workspace=passed))
        finally:
            device.synchronize([device.compute])
            device.release(passed)


def _smallest(library: KernelLibrary, subjects: Sequence[Subject]) -> tuple[Subject, Kernel]:
    refusals: list[ExecutionRefused | OutOfDeviceMemory] = []
    for subject in sorted(subjects, key=lambda each: each.workload.bytes_moved(each.layer, each.phase)):
        try:
            return subject, library.kernels(subject.workload, subject.layer, subject.phase)[0]
        except (ExecutionRefused, OutOfDeviceMemory) as refused:
            refusals.append(refused)
    raise refusals[0]


class KernelTable:
    """Fills the table of one machine.

    Args:
        device: does nothing else meanwhile.
        library: its kernels.
        session: where rows are kept.
        budget_s: what all kernels together should take, so that each shape has an equal share.
    """

    def __init__(self, device: Device, library: KernelLibrary, session: Session, *, budget_s: float) -> None:
        self._device, self._library, self._session, self._budget_s = device, library, session, budget_s

    def measure(self, subjects: Sequence[Subject]) -> tuple[KernelRow, ...]:
        """Return the rows of all shapes; a shape that the library cannot compute has none, but a warning."""
        rows: list[KernelRow] = []
        for subject in subjects:
            try:
                kernels = self._library.kernels(subject.workload, subject.layer, subject.phase)
            except (ExecutionRefused, OutOfDeviceMemory) as refused:
                self._session.warnings.append(f"{subject.name}: {refused}")
            else:
                rows += self._rows(subject, kernels, self._budget_s / len(subjects))
            self._session.done(subject.name)
        return tuple(rows)

    def _rows(self, subject: Subject, kernels: Sequence[Kernel], budget_s: float) -> list[KernelRow]:
        box = TimeBox(budget_s=min(max(budget_s / len(kernels), _SHORTEST_S), _LONGEST_S))
        rows: list[KernelRow] = []
        with ExitStack() as held:
            operands: list[tuple[KernelTensors, ...]] = []

            def measured(kernel: Kernel) -> KernelRow:
                try:
                    # Not before the first kernel that the journal does not know.
                    if not operands:
                        operands.append(held.enter_context(self._operands(subject)))
                except (OutOfDeviceMemory, torch.OutOfMemoryError):
                    return unmeasured_row(subject, kernel, OUT_OF_MEMORY)
                fastest_s = min((row.seconds for row in rows if row.seconds is not None), default=math.inf)
                patient = replace(box, patience_s=_MUCH_SLOWER * fastest_s)
                return measure_kernel(self._device, subject, kernel, operands[0], patient)

            for kernel in kernels:
                key = f"{kernel.algorithm}: {_text(subject.shape)}"
                rows.append(self._session.take(key, KernelRow, lambda kernel=kernel: measured(kernel)))  # type: ignore[misc]
            operands.clear()
        return rows

    def _operands(self, subject: Subject) -> AbstractContextManager[tuple[KernelTensors, ...]]:
        device, channels_last = self._device, self._library.channels_last
        return kernel_operands(device, subject, channels_last=channels_last, cache_bytes=device.cache_bytes)


def _text(shape: KernelShape) -> str:
    parts = (shape.phase.value, str(shape.batch_size), shape.element_type.value, shape.inputs_text, shape.gradients)
    return ", ".join((shape.operator, *parts))
