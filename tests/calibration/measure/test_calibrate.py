"""A whole calibration of a fake GPU: context, name of the link, warnings, and its summary."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.measure.calibrate import Calibration, Calibrator, Settings, profile_path
from calibration.measure.statistics import Sample
from calibration.measure.summary import summary_rows, warning_lines
from tests.calibration.measure.fake_device import FakeDevice, FakeGpu, FakeLibrary, Killer
from tests.calibration.measure.test_machine import MEASURED, machine
from tests.calibration.measure.test_resume import SMALL, small_network
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.errors import OutputError
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.units import MIB, ElementType


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


FILES = tuple(Path(f"fake.{ending}") for ending in ("copies.csv", "kernels.csv", "yaml"))


def row(channels: int, spread: float, note: str = "") -> KernelRow:
    shape = KernelShape("relu", Phase.FORWARD, 2, ElementType.FLOAT32, (MapShape(channels),), "")
    return KernelRow(shape, "only", "", None if note else 1e-3, spread, 10, 0, 1, 1, Origin.MEASURED, note)


def calibration(*rows: KernelRow, unsteady: dict[str, Sample] | None = None) -> Calibration:
    found = machine(MEASURED)
    server = Server("fake", found.gpu, found.link, found.host, {}, found.figures)
    return Calibration(server, rows, unsteady or {}, ("a link is missing",), FILES)


def test_the_table_and_its_warnings() -> None:
    """Spreads of 1, 2 and 9 %: 2 % in the middle; the fourth row has no time.

    Each of the three timed rows, left out, is predicted from two of the same time and work.
    """
    rows = summary_rows(calibration(row(1, 0.01), row(2, 0.09), row(3, 0.02), row(4, 0.5, "spread of 50 %")))
    assert [what for what, _, _ in rows[:2]] == ["gpu.memory", "gpu.peak.float32"]
    assert rows[-3] == ("kernels", "3 of 4", "algorithms of 4 distinct shapes, in 30 runs")
    assert rows[-2] == ("spread of kernels", "2.0 %", "in the middle; 9 % at worst")
    assert rows[-1][:2] == ("predictions", "0 %")
    # A row of 9 % is steady, and one that was run once on purpose is no remark.
    remarked = replace(row(5, 0.0), note="still changed by 14 % after 5 runs")
    kernels = row(1, 0.11), row(2, 0.09), row(3, 0.2), row(4, 0.31, "spread of 31 %"), remarked
    found = warning_lines(calibration(*kernels, replace(remarked, count=1), unsteady={"a": Sample(1, 0.3, 4)}))
    expected = ("a link is", "a: .*30 %; not", "4x1x1.*31 %.*predicted", "3x1x1.*20 %", "1x1x1.*11 %", "5x1x1.*14 %")
    assert len(found) == len(expected)
    assert all(re.search(pattern, line) for pattern, line in zip(expected, found, strict=True))
    # Of many warnings the worst five are named.
    lines = warning_lines(calibration(*(row(number, 0.10 + number / 100) for number in range(1, 8))))[1:]
    assert len(lines) == 6
    assert "7x1x1" in lines[0]
    assert "2 further unsteady kernels, see fake.kernels.csv" in lines[-1]


def test_a_profile_is_named_for_its_device(tmp_path: Path) -> None:
    assert profile_path(None, "NVIDIA H200 (SXM)") == Path("hw_profiles/nvidia_h200_sxm.yaml")
    assert profile_path(Path("my/h200.yaml"), "NVIDIA H200") == Path("my/h200.yaml")
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        profile_path(tmp_path / "a.yaml", "CPU")
