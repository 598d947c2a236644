"""Rows of a kernel table, from kernels of stated times."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle
from math import inf, nan
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from calibration.devices.interface import OutOfDeviceMemory
from calibration.kernels.interface import Kernel, KernelTensors
from calibration.measure.journal import Journal
from calibration.measure.kernel_cases import KernelCase, distinct_cases
from calibration.measure.kernel_rows import KernelTable, kernel_operands, measure_kernel, smallest_kernel
from calibration.measure.session import Session
from calibration.measure.timing import HOST_LATE, TimeBox
from tests.calibration.measure.fake_device import FakeDevice, FakeGpu, FakeLibrary, Killer
from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.hardware.server import Origin

BOX = TimeBox(budget_s=1.0)
CASES = distinct_cases([Workload(build_network("tiny_linear"), 2)])
CASE = CASES[0]


@pytest.fixture
def device() -> FakeDevice:
    return FakeDevice()


def kernel(work: Callable[[], None], workspace_bytes: int | None = 0, passed_bytes: int = 0) -> Kernel:
    return Kernel("a", "explicit GEMM", workspace_bytes, passed_bytes, lambda _: work())


def row_of(device: FakeDevice, measured: Kernel, box: TimeBox = BOX) -> KernelRow:
    return measure_kernel(device, CASE, measured, [KernelTensors()], box)


def test_rows_have_times_shapes_and_workspaces(device: FakeDevice) -> None:
    row = row_of(device, kernel(device.work(2e-3), 1000, 1000))
    assert row.seconds == pytest.approx(2e-3)
    assert (row.shape, row.algorithm, row.family) == (CASE.shape, "a", "explicit GEMM")
    assert (row.count, row.workspace_bytes, row.origin, row.note) == (10, 1000, Origin.MEASURED, "")
    assert row.flop == CASE.workload.flop(CASE.layer, CASE.phase)
    assert row.nbytes == CASE.workload.bytes_moved(CASE.layer, CASE.phase)
    assert device.live_bytes == 0

    # 100 bytes are passed; of what the kernel allocates itself the peak counts, 700 bytes.
    def run(tensors: KernelTensors) -> None:
        assert tensors.workspace is not None
        assert tensors.workspace.nbytes == 100
        device.take_during_work(500)
        device.take_during_work(700)

    assert row_of(device, Kernel("a", "", None, 100, run)).workspace_bytes == 800
    # 1 and 3 ms by turns spread by 2 / 2; the row keeps that, and has no seconds.
    row = row_of(device, kernel(device.work(1e-3, 3e-3)))
    assert (row.seconds, row.note, row.count) == (None, "spread of 100 %", 50)
    assert row.spread == pytest.approx(1.0)


def test_remark_on_a_time_stands_in_the_note(gpu: FakeGpu) -> None:
    """A run takes the host 0.15 s to launch, longer than any pause lasts.

    Where it takes 0.15 and 0.3 s by turns, the GPU waits for 0.05 or 0.2 s: of five runs the quartiles lie 0.15 s
    apart, and 0.2 in the middle of the steadiest. That spread is refused, and so explained.
    """
    row = row_of(gpu, kernel(gpu.many_launches(issue_s=0.15, lasts_s=5e-3)), TimeBox(budget_s=0.1))

    assert row.seconds is not None
    assert row.note == HOST_LATE
    turns = cycle([0.15, 0.3])

    def uneven() -> None:
        gpu.host_s += next(turns)

    assert row_of(gpu, kernel(uneven), TimeBox(budget_s=0.1)).note == f"spread of 75 %; {HOST_LATE}"


@pytest.mark.parametrize(
    ("failure", "note"),
    [
        (OutOfDeviceMemory("full"), "out of memory"),
        (torch.OutOfMemoryError("full"), "out of memory"),
        (RuntimeError("not\nimplemented for 'Half'"), "failed: not implemented for 'Half'"),
    ],
)
def test_a_kernel_that_fails_in_its_fourth_run_marks_the_row(device: FakeDevice, failure: Exception, note: str) -> None:
    work = Mock(side_effect=[None, None, None, failure])
    row = row_of(device, kernel(work, 64, 64))
    assert (row.seconds, row.count, row.note, row.workspace_bytes) == (None, 0, note, 64)
    assert device.live_bytes == 0


@pytest.mark.parametrize(("workspace_bytes", "passed_bytes"), [(2**20, 2**20), (2**20, 0)])
def test_a_workspace_that_does_not_fit_marks_the_row(workspace_bytes: int, passed_bytes: int) -> None:
    device = FakeDevice(memory_bytes=2**19)
    row = row_of(device, kernel(device.work(1e-3), workspace_bytes, passed_bytes))
    assert (row.seconds, row.note) == (None, "out of memory")
    assert device.launched == 0


def test_a_broken_device_ends_it(device: FakeDevice) -> None:
    failure = torch.AcceleratorError("an illegal memory access was encountered")
    with pytest.raises(torch.AcceleratorError):
        row_of(device, kernel(Mock(side_effect=failure)))


class _Library(FakeLibrary):
    """Offers what a test gives it, and nothing for backward weights."""

    def __init__(self, device: FakeDevice, *kernels: Kernel) -> None:
        super().__init__(device)
        self._kernels = kernels

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        del workload
        if phase is Phase.BACKWARD_WEIGHTS:
            raise ExecutionRefused(f"{layer.name} has no {phase.value}")
        return self._kernels


def table_of(
    device: FakeDevice, path: Path, cases: tuple[KernelCase, ...], *kernels: Kernel
) -> tuple[tuple[KernelRow, ...], Session]:
    with Journal(path / "journal", {}) as journal:
        session = Session(journal, Killer())
        table = KernelTable(device, _Library(device, *kernels), session, budget_s=0.01)
        return table.measure(cases), session


def test_much_slower_algorithm_is_run_once(device: FakeDevice, tmp_path: Path) -> None:
    """1 ms ten times; 4.9 ms five times, the least, for a budget of 20 ms does not hold more; 50 ms once."""
    kernels = [replace(kernel(device.work(seconds)), algorithm=str(seconds)) for seconds in (1e-3, 4.9e-3, 50e-3)]
    rows, _ = table_of(device, tmp_path, CASES[:1], *kernels)
    assert [row.count for row in rows] == [10, 5, 1]
    assert rows[2].seconds == pytest.approx(50e-3)
    assert rows[2].note == "run once, being much slower than another algorithm"


def test_algorithm_with_another_result_has_no_time(device: FakeDevice, tmp_path: Path) -> None:
    """PyTorch's own writes 100; a difference of 1 % is roundings, one of 10 % and what is no number are not.

    Nor is what an earlier kernel left, where one writes nothing. Overflow in both is no difference.
    """

    def writes(*values: float) -> Kernel:
        def run(tensors: KernelTensors) -> None:
            device.lasts_s = 1e-3
            assert tensors.output is not None
            for at, value in enumerate(values):
                tensors.output[at] = value

        return Kernel("a", "", 0, 0, run)

    kernels = [writes(*values) for values in ((100, inf), (101, inf), (110, inf), (nan, inf), ())]
    rows, _ = table_of(
        device, tmp_path, CASES[:1], *(replace(each, algorithm=str(at)) for at, each in enumerate(kernels))
    )

    assert [row.seconds is not None for row in rows] == [True, True, False, False, False]
    assert all("PyTorch's own" in row.note for row in rows[2:])


def test_runs_take_copies_of_the_operands_in_turn(device: FakeDevice, tmp_path: Path) -> None:
    """In a cache of 1.5 times the operands of the layer they would stay: so there are three copies, for 12 runs."""
    with kernel_operands(device, CASE, channels_last=False):
        device.cache_bytes = device.live_bytes * 3 // 2
    places: list[int] = []

    def run(tensors: KernelTensors) -> None:
        places.append(tensors.inputs[0].data_ptr())
        device.lasts_s = 1e-3

    table_of(device, tmp_path, CASES[:1], Kernel("a", "", 0, 0, run))

    assert len(places) == 12
    assert places == [*places[:3]] * 4
    assert len(set(places)) == 3


def test_operands_that_do_not_fit_mark_all_rows_of_the_shape(tmp_path: Path) -> None:
    """The first layer of the network does not fit into 64 KiB, its loss does."""
    device = FakeDevice(memory_bytes=2**16)
    cases = (CASES[0], CASES[-1])
    rows, _ = table_of(device, tmp_path, cases, kernel(device.work(1e-3)))
    assert [row.note for row in rows] == ["out of memory", ""]
    assert device.live_bytes == 0


@pytest.mark.parametrize("refusal", [ExecutionRefused("no kernel"), OutOfDeviceMemory("no room")])
def test_shape_without_kernel_is_a_warning(
    device: FakeDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    monkeypatch.setattr(_Library, "kernels", Mock(side_effect=refusal))
    rows, session = table_of(device, tmp_path, CASES[:1])
    assert (rows, session.warnings) == ((), [f"{CASES[0].name}: {refusal}"])
    with pytest.raises(type(refusal), match=str(refusal)), smallest_kernel(device, _Library(device), CASES):
        pass


def test_the_host_is_timed_on_a_kernel_that_the_library_can_compute(device: FakeDevice) -> None:
    """It is given its workspace; where nothing can be computed, the first refusal says what."""
    library, ran = _Library(device, kernel(lambda: ran.append(1), 128, 128)), []  # type: ignore[var-annotated]
    with smallest_kernel(device, library, CASES) as work:
        work()
    assert ran == [1]
    assert device.live_bytes == 0
    unknown = [case for case in CASES if case.phase is Phase.BACKWARD_WEIGHTS]
    with pytest.raises(ExecutionRefused, match="has no backward weights"), smallest_kernel(device, library, unknown):
        pass
