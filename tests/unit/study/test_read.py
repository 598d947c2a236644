"""Study files: conditions, the example in the help, the studies that are shipped; values of an axis."""

import json
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import csv_rows
from tests.refusals import refusal
from vdnnsim.cli.study import STUDY, keys_help
from vdnnsim.errors import StudyError
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.study.axes import read_axis, study_keys
from vdnnsim.study.points.resolve import POLICY, Value, shown
from vdnnsim.study.read import read_condition, read_study
from vdnnsim.study.results import table_header
from vdnnsim.study.study import Axis

ROOT = Path(__file__).parents[3]
TYPES = known_policies()
POINT: dict[str, Value] = {
    "policy": resolve_policy("vdnn_all(m)", TYPES),
    "gpu.memory": 16 * 2**30,
    "workload.batch_size": 32,
    "workload.network": "vgg16",
}


def holds(text: str) -> bool:
    keys = {name: key for name, key in study_keys(TYPES, Path()).items() if name in POINT}
    condition = read_condition(Entry("s.yaml", "where", text, StudyError), keys)
    return bool(*condition({key: np.array([shown(value)], dtype=object) for key, value in POINT.items()}))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu.memory == 16 GiB", True),
        ("gpu.memory >= 24GiB", False),
        ("not (gpu.memory >= 24GiB or workload.network != vgg16)", True),
        ("gpu.memory < 17 GB", False),  # 16 GiB are 17.18 GB
        ("workload.batch_size <= 32", True),
        ("workload.network == vgg16", True),
        ("workload.network != 'vgg16'", False),
        ("policy == 'vdnn_all(m)'", True),
        ('policy == "vdnn_all(p)"', False),
        ("not workload.batch_size > 32", True),
        ("not not workload.batch_size > 32", False),
        ("not " * 230 + "workload.batch_size > 32", False),
        # and binds closer than or: true or (false and false)
        ("workload.batch_size == 32 or gpu.memory == 1 GiB and gpu.memory == 1 GiB", True),
        ("(workload.batch_size == 32 or gpu.memory == 1 GiB) and gpu.memory == 1 GiB", False),
    ],
)
def test_conditions(text: str, expected: bool) -> None:  # noqa: FBT001  # what is expected
    assert holds(text) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpu.memry == 1 GiB", "did you mean 'gpu.memory'?"),
        ("gpu.memory = 1 GiB", "found 'gpu.memory = 1 GiB', expected comparisons"),
        ("gpu.memory", "found 'gpu.memory', expected comparisons"),
        ("gpu.memory == ", "found 'gpu.memory ==', expected comparisons"),
        ("not == 1", "found '== 1', expected comparisons"),
        ("gpu.memory == 1 GiB policy", "found '1 GiB policy'"),
        ("gpu.memory == 1 GiB (policy == 'base(p)')", "expected comparisons as `gpu.memory >= 24 GiB` with and, or"),
        ("gpu.memory == 1 GiB ()", "expected comparisons"),
        ("gpu.memory == 1 GB/s", "found '1 GB/s', expected a number with one of the units"),
        ("gpu.memory == 1 GiB or", "expected comparisons"),
        ("(gpu.memory == 1 GiB", "expected comparisons"),
        ("gpu.memory == 1 GiB)", "expected comparisons"),
        ("policy < 'base(p)'", "found '<' after policy, which has no order; expected == or !="),
        ("__import__('os')", "found \"__import__('os')\", expected comparisons"),
        ("(" * 999, "expected comparisons"),
    ],
)
def test_wrong_conditions_are_refused_in_one_line(text: str, message: str) -> None:
    assert message in refusal(StudyError, holds, text)


_KEY = re.compile(
    r"[a-z_]+\.[A-Za-z_0-9.]+|(?<=[ ,])(?:hardware|gpus|gradients|memory_model|pinned_memory|execution)\b"
)


def test_the_help_names_every_key_that_can_be_varied() -> None:
    """With an example; keys of a cost model are one, and `policy` is left out."""
    known = {
        re.sub(r"^cost_model\..*", "cost_model.NAME", name) for name in study_keys(TYPES, Path()) if name != POLICY
    }
    assert sorted(_KEY.findall(keys_help())) == sorted(known)
    lines = keys_help().splitlines()
    assert "  gpu.granule               allocations are rounded up to it, as 512 B" in lines
    assert max(map(len, lines)) <= 78


def test_the_example_of_the_help_is_a_study(tmp_path: Path) -> None:
    """Three policies, two memories and links of 16, 32, 64, 128, 256 and 512 GB/s, less checkpoint with 12 GiB."""
    (tmp_path / "vgg416.yaml").write_bytes((ROOT / "scenarios" / "vgg416.yaml").read_bytes())
    path = tmp_path / "study.yaml"
    path.write_text(textwrap.dedent(STUDY.partition("A study:\n")[2]), encoding="utf-8")
    study = read_study(path)
    assert (study.grid_size, len(list(study.points()))) == (36, 30)
    assert [picture.name for picture in study.pictures] == ["speed"]


@pytest.mark.parametrize("name", ["batch", "crossover", "gpus", "memory", "nvlink"])
def test_the_report_of_a_study_is_of_its_grid(name: str) -> None:
    study = read_study(ROOT / "scenarios" / "studies" / f"{name}.yaml")
    report = ROOT / "reports" / "studies" / name
    rows = csv_rows(report / "results.csv")
    assert tuple(rows[0]) == table_header(study)
    assert [row["policy"] for row in rows] == [point["policy"].label for point in study.points()]  # type: ignore[union-attr]
    assert {row["error"] for row in rows} == {""}
    words = (report / "README.md").read_text(encoding="utf-8")
    for picture in study.pictures:
        assert (report / f"{picture.name}.png").is_file()
        assert f"({picture.name}.png)" in words
    manifest = json.loads((report / "run.json").read_text(encoding="utf-8"))
    assert manifest["points"] == {"done": len(rows), "failed": 0, "missing": 0}


GB = 10**9
GIB = 2**30


def axis(name: str, value: YamlValue) -> Axis:
    parent = Entry("s.yaml", "axes", {name: value}, StudyError)
    return read_axis(
        name, Entry("s.yaml", f"axes.{name}", value, StudyError), parent, study_keys(known_policies(), Path())
    )


def test_a_list_is_converted_to_si_units() -> None:
    found = axis("link.bandwidth", ["16 GB/s", "500 MB/s"])
    assert found.column == "link.bandwidth_bytes_per_s"
    assert found.values == (16e9, 0.5e9)


@pytest.mark.parametrize(
    ("name", "value", "values"),
    [
        # 16 x 2^i up to 100: 16, 32, 64; 128 is above.
        ("workload.batch_size", {"from": 16, "to": 100, "factor": 2}, (16, 32, 64)),
        # 8, 12, 16, 20 GiB; 24 is above.
        ("gpu.memory", {"from": "8 GiB", "to": "23 GiB", "step": "4 GiB"}, (8 * GIB, 12 * GIB, 16 * GIB, 20 * GIB)),
        # Four values with both ends: every third part of 9.
        ("gpu.compute_speed", {"from": 1, "to": 10, "count": 4}, (1.0, 4.0, 7.0, 10.0)),
        # The end is reached although 0.1 x 3 is not 0.3 in binary.
        ("gpu.compute_speed", {"from": 0.1, "to": 0.3, "step": 0.1}, (0.1, 0.2, 0.1 + 2 * 0.1)),
        ("gpus", {"from": 3, "to": 3, "step": 1}, (3,)),
    ],
)
def test_ranges(name: str, value: YamlValue, values: tuple[float, ...]) -> None:
    assert axis(name, value).values == values


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("link.bandwidths", ["1 GB/s"], "did you mean 'link.bandwidth'?"),
        ("link.bandwidth", [], "found an empty list, expected a list of values, or a range"),
        ("link.bandwidth", ["1 GiB"], "found '1 GiB', expected a number with one of the units"),
        ("gpu.memory", ["16 GiB", "16384 MiB"], "is in this axis already"),
        ("policy", ["vdnn_al"], "did you mean 'vdnn_all'?"),
        ("policy", {"from": 1, "to": 2, "step": 1}, "expected a list of values"),
        ("hardware", ["h20"], "did you mean 'h200'?"),
        ("workload.network", ["vgg17x"], "is not a network"),
        ("workload.network", [16], "found 16, expected text"),
        ("gpus", {"from": 1, "to": 4, "step": 1, "count": 4}, "found step and count of step, factor and count"),
        ("gpus", {"from": 1, "to": 4}, "found none of step, factor and count"),
        ("gpus", {"from": 4, "to": 1, "step": 1}, "found 1, expected no less than 4"),
        ("gpus", {"from": 1, "to": 4, "factor": 1}, "found 1, expected a factor above 1"),
        ("workload.batch_size", {"from": 1, "to": 2, "count": 4}, "expected a count with which all values are whole"),
        ("host.issue", {"from": "0 s", "to": "1 s", "factor": 2}, "found a factor of a range from zero"),
        ("host.issue", {"from": "0 s", "to": "1 s", "step": "0 s"}, "expected a step above zero"),
        ("host.issue", {"from": "0 s", "to": "1 s", "step": "1 ns"}, "expected a range of at most 1000000 values"),
        ("host.issue", {"from": "1 s", "to": "1 s", "count": 2}, "expected two ends that differ"),
        ("cost_model.tile_load_flop", {"from": 1e-300, "to": 1e6, "factor": 10}, "is 1e+306 times its start, expected"),
        ("gpu.compute_speed", [0], "found 0, expected a factor from 0.001 to 1000"),
    ],
)
def test_wrong_axes_are_refused_in_one_line(name: str, value: YamlValue, message: str) -> None:
    said = refusal(StudyError, axis, name, value)
    assert message in said
    assert said.startswith("s.yaml: axes")
