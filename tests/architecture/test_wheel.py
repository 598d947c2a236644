"""The wheel alone is enough: installed in a fresh environment, it runs a scenario from another folder."""

import csv
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

import vdnnsim

ROOT = Path(__file__).parents[2]
SCENARIO = """\
schema_version: 1
workload: {network: alexnet, batch_size: 16, element_type: float32}
hardware: titan_x_maxwell
policies: [base(p), vdnn_all(m)]
"""

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")

pytestmark = pytest.mark.slow


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


def test_it_holds_the_packages_and_the_profiles_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    packages = {name for folder in ("vdnnsim", "calibration") for name in files_below(folder)}
    profiles = {f"vdnnsim/{name}" for name in files_below("hw_profiles")}
    assert profiles
    assert "vdnnsim/py.typed" in packages
    assert packages | profiles == names


def test_it_runs_a_scenario_from_another_folder(fresh_environment: Path, tmp_path: Path) -> None:
    imported = run([fresh_environment / "python", "-c", "import vdnnsim; print(vdnnsim.__file__)"], tmp_path)
    assert Path(imported.strip()).is_relative_to(fresh_environment.parent)
    (tmp_path / "alexnet.yaml").write_text(SCENARIO, encoding="utf-8")

    table = run([fresh_environment / "vdnnsim", "run", "alexnet.yaml", "--out", "results"], tmp_path)

    assert "vdnn_all" in table
    with (tmp_path / "results" / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["fits"].lower() for row in rows] == ["true", "true"]


def test_it_carries_the_version_of_the_package(wheel: Path) -> None:
    assert wheel.name.startswith(f"vdnnsim-{vdnnsim.__version__}-")
