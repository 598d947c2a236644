import re
from dataclasses import replace
from pathlib import Path

import pytest

from calibration.measure.calibrate import Calibration, profile_path
from calibration.measure.statistics import Sample
from calibration.measure.summary import summary_rows, warning_lines
from tests.calibration.measure.test_machine import MEASURED, machine
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.errors import OutputError
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.units import ElementType

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
