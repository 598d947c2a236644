"""Files of a sweep beside its results: pictures and the manifest."""

import json
import struct
from pathlib import Path

import pytest

from tests.command_line import csv_rows, vdnnsim
from vdnnsim.study.version import model_version, version_of

STUDY = """\
schema_version: 1
scenario:
  schema_version: 1
  workload: {network: alexnet, batch_size: 16, element_type: float32}
  hardware: titan_x_maxwell
  policies: [base(m), vdnn_all(m)]
axes:
  gpu.memory: [512 MiB, 1 GiB, 12 GiB]
"""
PICTURE = """\
pictures:
  - {name: speed, title: Speed, kind: lines, x: gpu.memory_bytes, y: samples_per_s, by: policy}
"""


def swept(tmp_path: Path, text: str) -> tuple[int, str, Path]:
    study, out = tmp_path / "small.yaml", tmp_path / "out"
    study.write_text(text, encoding="utf-8")
    done = vdnnsim("sweep", str(study), "--out", str(out), "--workers", "1", folder=tmp_path, status=None)
    assert ("fastest that fits" in done.stdout) is out.exists(), "whatever else fails, the table is printed"
    return done.returncode, done.stderr, out


def test_a_sweep_writes_the_pictures_of_its_study_and_a_second_one_the_same_bytes(tmp_path: Path) -> None:
    code, output, out = swept(tmp_path, STUDY + PICTURE)
    assert code == 0, output
    assert struct.unpack(">II", (out / "speed.png").read_bytes()[16:24]) == (1600, 900)
    manifest = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert manifest["files"] == ["results.csv", "run.json", "speed.png"]
    assert manifest["model"] == version_of(manifest["model_covers"]) == model_version()
    assert manifest["axes"] == {"gpu.memory": [2**29, 2**30, 12 * 2**30], "policy": ["base(m)", "vdnn_all(m)"]}
    assert manifest["points"] == {"done": 6, "failed": 0, "missing": 0}
    assert [each["name"].rpartition("/")[2] for each in manifest["inputs"]] == ["small.yaml", "titan_x_maxwell.yaml"]
    assert len(csv_rows(out / "results.csv")) == 6
    first = [(out / name).read_bytes() for name in manifest["files"]]
    swept(tmp_path, STUDY + PICTURE)
    assert [(out / name).read_bytes() for name in manifest["files"]] == first


def test_the_machines_of_an_axis_are_inputs(tmp_path: Path) -> None:
    machines = "hardware: [titan_xp, titan_x_maxwell]"
    code, output, out = swept(tmp_path, STUDY.replace("gpu.memory: [512 MiB, 1 GiB, 12 GiB]", machines))
    assert code == 0, output
    inputs = json.loads((out / "run.json").read_text(encoding="utf-8"))["inputs"]
    names = [each["name"].rpartition("/")[2] for each in inputs]
    assert names == ["small.yaml", "titan_x_maxwell.yaml", "titan_xp.yaml"]


def test_a_machine_that_is_wrong_fails_its_points_alone(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").write_text("schema_version: 1\n", encoding="utf-8")
    machines = "hardware: [broken.yaml, titan_x_maxwell]"
    code, output, out = swept(tmp_path, STUDY.replace("gpu.memory: [512 MiB, 1 GiB, 12 GiB]", machines))
    assert (code, "2 points failed, the first: " in output) == (1, True)
    manifest = json.loads((out / "run.json").read_text(encoding="utf-8"))
    assert manifest["points"] == {"done": 2, "failed": 2, "missing": 0}
    assert not list(out.glob("*.png"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kind: lines", "kind: heat_map, value: refusal", "value: 'refusal' holds no numbers, expected a column that"),
        ("y: samples_per_s", "y: 2 * policy", "y: 'policy' holds no numbers, expected a column that"),
        (
            ", by: policy",
            "",
            "found lines with several points at each gpu.memory_bytes, for policy varies too",
        ),
        # What only rows can show.
        (", by: policy", ", by: network", "picture 'speed': found two points of one line at gpu.memory_bytes 0.5 GiB"),
        ("by: policy", "where: {policy: dyn}", "picture 'speed': found no row to draw"),
    ],
)
def test_wrong_pictures_are_refused_in_one_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    code, output, out = swept(tmp_path, (STUDY + PICTURE).replace(old, new))
    assert code == 1
    assert message in output
    assert out.exists() is message.startswith("picture")
    assert {"results.csv", "run.json"} <= {each.name for each in out.glob("*")} or not out.exists()
    assert out.exists() or output.count("\n") == 1
