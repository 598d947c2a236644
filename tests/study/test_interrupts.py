"""Ctrl-C, which the terminal sends to a sweep and to all its processes at once."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.study.kills import MAIN, begin, look, study_file
from tests.toy import ROOT

BATCHES = 60
KEPT = re.compile(r"vdnnsim: interrupted: kept (\d+) of 240 points; the same command continues\n")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert begin(study_file(folder, BATCHES), folder / "out").wait() == 0
    return (folder / "out" / "results.csv").read_bytes()


@pytest.mark.parametrize(
    ("processes", "number"),
    [
        (2, signal.SIGINT),
        pytest.param(1, signal.SIGTERM, marks=pytest.mark.thorough),
        pytest.param(2, signal.SIGHUP, marks=pytest.mark.thorough),
    ],
)
def test_an_interrupted_sweep_resumes(tmp_path: Path, undisturbed: bytes, processes: int, number: int) -> None:
    """60 batch sizes, two links and two policies are 240 points.

    The database has the points that it reports as kept, and perhaps a few more. No process prints anything else.
    """
    study, out = study_file(tmp_path, BATCHES), tmp_path / "out"

    said, status = _interrupted(study, out, processes, number)
    assert status == 1
    kept = KEPT.fullmatch(said)
    assert kept is not None, said
    found = look(out)
    assert found.sound
    assert 0 < int(kept[1]) <= len(found.keys) < 240

    assert begin(study, out).wait() == 0
    assert (out / "results.csv").read_bytes() == undisturbed


def _interrupted(study: Path, out: Path, processes: int, number: int) -> tuple[str, int]:
    """Interrupt a sweep with some points; return its standard error and exit status."""
    command = (*MAIN, "sweep", str(study), "--out", str(out), "--workers", str(processes))
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while process.poll() is None and not look(out).keys:
        time.sleep(0.02)
    os.killpg(process.pid, number)
    _, said = process.communicate()
    return said, process.returncode
