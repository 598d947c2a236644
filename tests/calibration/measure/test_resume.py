"""An interrupted calibration resumes from its journal, wherever it was interrupted."""

from dataclasses import replace
from pathlib import Path

import pytest

from calibration.devices.interface import Device
from calibration.kernels.interface import Kernel
from calibration.measure.calibrate import Calibrator, Settings
from calibration.measure.timing import Extent, TimeBox, WarmUp
from tests.calibration.measure.fake_device import FakeDevice, FakeLibrary, Killer
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError
from vdnnsim.units import KIB, MIB

SMALL = Extent(
    largest_copy=64 * KIB,
    largest_pin=MIB,
    product_side=4,
    stream_bytes=MIB,
    copies=TimeBox(budget_s=1e-3),
    kernels_s=0.1,
    window_s=1e-4,
    warm_up=WarmUp(shortest_s=1e-4, longest_s=1e-4),
)


def small_network() -> Workload:
    net = GraphBuilder("small", MapShape(2, 4, 4))
    y = net.conv("conv", 0, 2, 3, padding=1)
    return Workload(net.build(net.fc("fc", y, 2, relu=False)), 2)


def calibrator(folder: Path, torch_version: str = "2.11.0") -> tuple[Calibrator, FakeLibrary]:
    device = FakeDevice()
    library = FakeLibrary(device)

    def provenance(_: Device) -> tuple[tuple[str, str], ...]:
        return (("torch", torch_version), ("date", "2026-11-21"))

    return Calibrator(device, library, Settings((small_network(),)), SMALL, provenance, folder / "fake.yaml"), library


def run(folder: Path, after: int = 0) -> tuple[FakeLibrary, Killer]:
    """Calibrate, and interrupt after so many measurements; 0 for never."""
    measuring, library = calibrator(folder)
    killer = Killer(after)
    with measuring.journal() as journal:
        if after:
            with pytest.raises(KeyboardInterrupt):
                measuring.calibrate(journal, killer)
        else:
            measuring.calibrate(journal, killer)
    return library, killer


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_steps_are_counted_beforehand(tmp_path: Path) -> None:
    _, listener = run(tmp_path)
    assert len(listener.finished) == listener.expected
    assert len(set(listener.finished)) == listener.expected
    assert sorted(contents(tmp_path)) == ["fake.copies.csv", "fake.kernels.csv", "fake.yaml"]


def test_nothing_is_measured_twice_after_any_interrupt(tmp_path: Path) -> None:
    """Killed after each of its measurements: before and after together run each kernel as often as one whole run."""
    (tmp_path / "whole").mkdir()
    whole, listener = run(tmp_path / "whole")
    for after in range(1, listener.expected + 1):
        folder = tmp_path / str(after)
        first, _ = run(folder, after)
        assert list(contents(folder)) == ["fake.partial.jsonl"]

        second, _ = run(folder)

        assert first.ran + second.ran == whole.ran
        assert contents(folder) == contents(tmp_path / "whole")


@pytest.mark.parametrize("killed_in", [1, 150, 2150, 2200])
def test_interrupted_measurement_starts_over(tmp_path: Path, killed_in: int) -> None:
    """Killed in the middle of a measurement: the kernel that was running starts over, all others are kept."""
    whole, _ = run(tmp_path / "whole")
    assert killed_in < whole.ran.total()
    measuring, library = calibrator(tmp_path / "killed")
    library.killed_in = killed_in
    with measuring.journal() as journal, pytest.raises(KeyboardInterrupt):
        measuring.calibrate(journal, Killer())

    second, _ = run(tmp_path / "killed")

    again = library.ran + second.ran - whole.ran
    assert set(again) <= {library.running}
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_device_on_which_no_kernel_runs_is_refused_and_all_else_kept(tmp_path: Path) -> None:
    """Every kernel wants a tebibyte of workspace.

    Two algorithms each for forward and backward weights of CONV, two phases of its ReLU, three of FC, two of the loss.
    """
    measuring, library = calibrator(tmp_path)
    offered = library.kernels

    def greedy(workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        return tuple(replace(each, workspace_bytes=2**40) for each in offered(workload, layer, phase))

    library.kernels = greedy  # type: ignore[method-assign]
    with measuring.journal() as journal:
        with pytest.raises(DeviceError, match=r"^Fake: none of 18 kernels could be measured: out of memory$"):
            measuring.calibrate(journal, Killer())
        assert len(journal) > 18
