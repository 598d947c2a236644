"""Dry runs of kernels of unknown workspace: 64 B passed and 100 B of their own."""

from collections import Counter
from dataclasses import dataclass, field, replace

from calibration.executor.dry_run import DryRunLibrary
from calibration.kernels.interface import Kernel, KernelTensors
from tests.calibration.measure.fake_device import FakeDevice
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.dnn.workload import Workload

WORKLOAD = Workload(tiny_linear(), 2)
CONV1, *_ = WORKLOAD.graph.layers


@dataclass
class HalfSilent:
    """Two kernels for everything: one that states 7 B, and one that takes what it does not state."""

    device: FakeDevice
    ran: Counter[str] = field(default_factory=Counter)
    channels_last = False

    def kernels(self, _workload: Workload, layer: Layer, _phase: Phase) -> tuple[Kernel, ...]:
        def take(tensors: KernelTensors) -> None:
            assert tensors.workspace is not None
            assert tensors.workspace.nbytes == 64
            self.ran[layer.name] += 1
            self.device.take_during_work(100)

        def refuse(_: KernelTensors) -> None:
            raise AssertionError("a kernel that states its workspace is not run")

        return Kernel("stated", "", 7, 7, refuse), Kernel("silent", "", None, 64, take)


def test_kernels_are_run_dry_once_for_each_shape() -> None:
    device = FakeDevice()
    kernels = DryRunLibrary(device, HalfSilent(device)).kernels(WORKLOAD, CONV1, Phase.FORWARD)
    assert [(kernel.algorithm, kernel.workspace_bytes, kernel.passed_bytes) for kernel in kernels] == [
        ("stated", 7, 7),
        ("silent", 164, 64),
    ]
    assert device.live_bytes == 0
    # A first time in which libraries set themselves up, and a second that counts; another batch is another shape.
    device = FakeDevice()
    silent = HalfSilent(device)
    library = DryRunLibrary(device, silent)
    for workload in (WORKLOAD, Workload(tiny_linear(), 2)):
        library.kernels(workload, CONV1, Phase.FORWARD)
    assert silent.ran == {CONV1.name: 2}
    library.kernels(replace(WORKLOAD, batch_size=3), CONV1, Phase.FORWARD)
    assert silent.ran == {CONV1.name: 4}
    # No plan has room for its operands either, so its own bytes decide nothing; nothing is held.
    device = FakeDevice(memory_bytes=512)
    kernels = DryRunLibrary(device, HalfSilent(device)).kernels(WORKLOAD, CONV1, Phase.FORWARD)
    assert [kernel.workspace_bytes for kernel in kernels] == [7, 64]
    assert device.live_bytes == 0
    # Dry run library is not wrapped again.
    device = FakeDevice()
    library = DryRunLibrary(device, HalfSilent(device))
    assert DryRunLibrary.of(device, library) is library
    assert DryRunLibrary.of(device, HalfSilent(device)).library == HalfSilent(device)
