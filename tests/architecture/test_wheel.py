"""The wheel alone is enough: installed in a fresh environment, it runs a scenario from another folder."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

import vdnnsim

ROOT = Path(__file__).parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

FIVE_LINES = """\
import vdnnsim
question = vdnnsim.load("vgg16_256").under("base(p)", "vdnn_all(m)")
print(vdnnsim.__file__, question.run().to_pandas()["fits"].tolist(), sep="\\n")
ranked = vdnnsim.machines(question, "rtx_4090", "h200", policy="base(p)").to_pandas()
print(*ranked.dropna(subset="rank")["machine"])
print(*question.run().fitting)
"""
EXTRAS = re.compile(r"(?:vdnnsim|'\.)\[([a-z,]+)\]")


def files_below(folder: str) -> set[str]:
    """Every file of a folder of the source tree but compiled ones, by its path from the root."""
    paths = (path for path in (ROOT / folder).rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(ROOT).as_posix() for path in paths}


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Run a command away from the source tree; returns its standard output."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTHON", "PYTEST"))}
    result = subprocess.run(command, cwd=cwd, env=kept, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_it_holds_packages_profiles_and_scenarios_alone() -> None:
    names = {each.distribution_path for each in WheelBuilder(str(ROOT)).recurse_included_files()}
    packages = {name for folder in ("vdnnsim", "calibration") for name in files_below(folder)}
    beside = {f"vdnnsim/{name}" for folder in ("hw_profiles", "scenarios") for name in files_below(folder)}
    scenarios = ("vgg416.yaml", "studies/batch.yaml", "studies/hw_profiles/p100_x8_one_switch.yaml")
    assert {"vdnnsim/hw_profiles/h200.yaml", *(f"vdnnsim/scenarios/{name}" for name in scenarios)} <= beside
    assert "vdnnsim/py.typed" in packages
    assert packages | beside == names


def test_named_extras_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    sources = [path for folder in ("vdnnsim", "calibration", "docs") for path in (ROOT / folder).rglob("*.*")]
    texts = [path.read_text(encoding="utf-8") for path in sources if path.suffix in {".py", ".md"}]
    texts += [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md")]
    named = {each for text in texts for names in EXTRAS.findall(text) for each in names.split(",")}
    assert "calibrate" in named
    assert named <= extras.keys()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={folder}", ROOT], folder)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def fresh_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel, and borrows what the wheel depends on from this one."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    run([*PIP, f"--python={programs / 'python'}", "install", "--no-deps", "--no-index", wheel], folder)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    # Python reads no .pth file in a folder that a .pth file names, so the source tree of this environment stays out.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return programs


@pytest.mark.slow
def test_it_works_from_an_empty_folder(fresh_environment: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    (tmp_path / "five.py").write_text(FIVE_LINES, encoding="utf-8")
    imported, *answers = run([fresh_environment / "python", tmp_path / "five.py"], folder).splitlines()
    assert Path(imported).is_relative_to(fresh_environment.parent)
    assert answers == ["[False, True]", "h200", "vdnn_all(m)"]

    def rows(*words: str) -> list[dict[str, Any]]:
        return list(json.loads(run([fresh_environment / "vdnnsim", *words, "--json"], folder)))

    table = rows("run", "alexnet", "--out", "out")
    compared = rows("compare", "vgg16_256", "--policies", "base(p),vdnn_all(m)", "--out", "out")
    assert [row["machine"] for row in rows("machines", "alexnet", "--hardware", "v100")] == ["v100"]
    assert {row["policy"]: row["outcome"] for row in compared} == {"vdnn_all(m)": "fits", "base(p)": "does not fit"}
    assert {"report.html", "compare.html"} <= {path.name for path in (folder / "out").iterdir()}
    assert [row["fits"] for row in table if row["policy"] in {"base(p)", "vdnn_dyn"}] == [True, True]


@pytest.mark.slow
def test_it_carries_the_version_of_the_package(wheel: Path) -> None:
    assert wheel.name.startswith(f"vdnnsim-{vdnnsim.__version__}-")
