"""Sweeps in processes of this machine: their chunks, Ctrl-C from a terminal to all of them at once, kills."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.study.kills import MAIN, begin, kill_once, look, study_file
from tests.toy import ROOT
from vdnnsim.errors import StudyError
from vdnnsim.study.points.compute import failed
from vdnnsim.study.points.resolve import Resolved
from vdnnsim.study.sweep import Chunk, Finished, local_workers
from vdnnsim.study.version import model_version

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


def test_a_study_that_is_killed_ends_with_the_bytes_of_one_that_is_not(tmp_path: Path) -> None:
    study = study_file(tmp_path, 30)
    undisturbed, out = tmp_path / "undisturbed", tmp_path / "out"
    assert begin(study, undisturbed).wait() == 0
    for delay_s in (0.9, 1.2):
        kill_once(study, out, delay_s)
    assert begin(study, out).wait() == 0
    assert (out / "results.csv").read_bytes() == (undisturbed / "results.csv").read_bytes()


NOWHERE = Resolved("key", None, error="no such machine")


def chunks(count: int, model: str) -> Iterator[Chunk]:
    return (Chunk(number, model, (NOWHERE, NOWHERE)) for number in range(count))


@pytest.mark.parametrize("processes", [1, 2])
def test_every_chunk_is_returned_once(processes: int) -> None:
    found: list[Finished] = list(local_workers(processes)(chunks(9, model_version())))
    assert sorted(number for number, _ in found) == list(range(9))
    assert all(outcomes == [failed("no such machine")] * 2 for _, outcomes in found)


def test_a_process_with_another_version_of_the_model_computes_nothing() -> None:
    with pytest.raises(StudyError, match=r"expected 0\.0\.0"):
        list(local_workers(1)(chunks(1, "0.0.0")))


def test_a_process_that_is_killed_ends_the_study_in_one_line() -> None:
    with pytest.raises(StudyError, match="a process of this study was killed") as refused:
        list(local_workers(2)(iter([Chunk(0, model_version(), (Deadly(),))])))
    assert "\n" not in str(refused.value)


class Deadly(Resolved):
    """A point that kills the process which unpickles it."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("key", None, error="deadly")

    def __reduce__(self) -> tuple[object, ...]:
        """Be unpickled as the end of the process."""
        return (os._exit, (1,))
