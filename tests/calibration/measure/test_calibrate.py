"""A whole calibration of a fake GPU: context, name of the link, warnings."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from calibration.measure.calibrate import Calibration, Calibrator, Settings
from tests.calibration.measure.fake_device import FakeDevice, FakeGpu, FakeLibrary, Killer
from tests.calibration.measure.test_resume import SMALL, small_network
from vdnnsim.hardware.profile import read_profile
from vdnnsim.units import MIB


def calibrated(device: FakeDevice, folder: Path, provenance: Mapping[str, str]) -> Calibration:
    library, settings = FakeLibrary(device), Settings((small_network(),))
    calibrator = Calibrator(device, library, settings, SMALL, lambda _: tuple(provenance.items()), folder / "card.yaml")
    with calibrator.journal() as journal:
        return calibrator.calibrate(journal, Killer())


def test_context_is_the_drivers_count_beyond_tensors(gpu: FakeGpu, tmp_path: Path) -> None:
    gpu.context = 500 * MIB
    done = calibrated(gpu, tmp_path, {})
    (figure,) = (each for each in done.server.figures if each.path == "gpu.context")
    assert figure.text == "500 MiB"
    assert "by the driver less what PyTorch reserved" in figure.source
    assert read_profile(tmp_path / "card.yaml").gpu.context_bytes == 500 * MIB
    assert not any("gpu.context" in line for line in done.warnings)


def test_context_is_left_out_where_other_processes_use_the_gpu(gpu: FakeGpu, tmp_path: Path) -> None:
    done = calibrated(gpu, tmp_path, {})
    assert "gpu.context" not in [each.path for each in done.server.figures]
    assert any("gpu.context is left out" in line for line in done.warnings)


@pytest.mark.parametrize(
    ("provenance", "name"),
    [
        ({"pcie": "generation 4 x16 seen, at most generation 5 x16"}, "PCIe generation 4 x16"),
        ({"pcie": "generation 4 x16 seen"}, "PCIe generation 4 x16"),
        ({}, "link to the host, which nvidia-smi does not name"),
    ],
)
def test_the_link_of_a_gpu_is_never_called_the_memory_of_the_machine(
    gpu: FakeGpu, tmp_path: Path, provenance: Mapping[str, str], name: str
) -> None:
    assert calibrated(gpu, tmp_path, provenance).server.link.name == name


def test_a_cpu_reaches_its_memory_without_a_link(tmp_path: Path) -> None:
    done = calibrated(FakeDevice(), tmp_path, {})
    assert done.server.link.name == "memory of the machine"
    assert not any("gpu.context" in line for line in done.warnings)


def test_device_that_did_not_warm_up_in_time_is_a_warning(tmp_path: Path) -> None:
    """Matrices are filled in 1 s, and two products take 1 and 1/2 s, of a tenth of a millisecond that there is."""
    device = FakeDevice()
    device.cold_s = [1.0, 1.0, 0.5]
    done = calibrated(device, tmp_path, {})
    (warning,) = (line for line in done.warnings if line.startswith("warming up"))
    assert warning.endswith("from 1.00 s to 500 ms after 1.5 s")
