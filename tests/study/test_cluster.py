"""A study on a real Dask cluster, one worker of which is killed."""

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import LocalCluster
from distributed.comm.core import CommClosedError

from tests.command_line import vdnnsim
from tests.study.kills import study_file
from vdnnsim.errors import StudyError
from vdnnsim.files.atomic import replace_file
from vdnnsim.study import cluster as cluster_module
from vdnnsim.study.cluster import cluster_workers
from vdnnsim.study.read import read_study
from vdnnsim.study.results import progress_of, results_csv
from vdnnsim.study.store import writing
from vdnnsim.study.sweep import sweep


class KillsOne:
    """Kills a worker when the first points are finished."""

    def __init__(self, pid: int) -> None:
        self._pid: int | None = pid
        self.points = 0

    def advance(self, points: int, failed: int) -> None:
        assert failed == 0
        self.points += points
        if self._pid is not None:
            os.kill(self._pid, signal.SIGKILL)
            self._pid = None


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster:  # type: ignore[no-untyped-call]
        yield cluster


def test_the_bytes_are_those_of_one_process_though_a_worker_dies(tmp_path: Path, cluster: LocalCluster) -> None:
    """50 batches, 2 links and 2 policies are 200 points, each computed once."""
    file = study_file(tmp_path, 50)
    vdnnsim("sweep", str(file), "--out", "local", "--workers", "1", folder=tmp_path)
    study = read_study(file)
    watcher = KillsOne(next(iter(cluster.workers.values())).pid)

    with writing(tmp_path / "cluster") as store:
        sweep(study, store, cluster_workers(cluster.scheduler_address), watcher.advance)
        assert progress_of(study, store).done == 200
        replace_file(tmp_path / "cluster" / "results.csv", results_csv(study, store))

    assert watcher.points == 200
    assert (tmp_path / "cluster" / "results.csv").read_bytes() == (tmp_path / "local" / "results.csv").read_bytes()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "tcp://127.0.0.1", "ucx://h:1", "h:0", "h:65536", "", "a b:1", "://h:1"]
)
def test_a_wrong_address_is_refused_at_once(address: str) -> None:
    """Dask would try for 20 s, and then print where it was."""
    with pytest.raises(StudyError, match=r"^--cluster: found .*, expected the address of a scheduler"):
        cluster_workers(address)


def test_a_cluster_without_its_certificates_is_refused() -> None:
    with pytest.raises(StudyError, match="Dask knows no certificates, expected"):
        next(cluster_workers("tls://127.0.0.1:9")(iter(())))


@dataclass
class Cut:
    """A client of a lost scheduler, or of one without workers, and its queue."""

    status: str

    def nthreads(self) -> dict[str, int]:
        return {}

    def has_ready(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("status", "why"), [("closed", "the scheduler was lost"), ("running", "has had no worker for 0 s")]
)
def test_a_cluster_that_dies_is_not_waited_for(status: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdnnsim.study.cluster._PATIENCE_S", 0)
    with pytest.raises(StudyError, match=f"{why}; finished points are kept, and the same command continues"):
        cluster_module._next(Cut(status), Cut(status))  # noqa: SLF001  # a scheduler that dies takes seconds to start


def test_a_dead_scheduler_ends_the_sweep() -> None:
    class Asked(Cut):
        def has_ready(self) -> bool:
            return True

        def __next__(self) -> "Asked":
            return self

        def result(self) -> object:
            raise CommClosedError("in <TCP (closed)>")

    with pytest.raises(
        StudyError, match="the scheduler was lost; finished points are kept, and the same command continues"
    ):
        cluster_module._next(Asked("running"), Cut("running"))  # noqa: SLF001  # as above


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody listens at the port of `discard`."""
    monkeypatch.setattr("vdnnsim.study.cluster._CONNECT_S", 1)
    file = study_file(tmp_path, 1)
    done = vdnnsim("sweep", str(file), "--cluster", "tcp://127.0.0.1:9", folder=tmp_path, status=1)
    assert done.stderr.startswith("vdnnsim: --cluster: tcp://127.0.0.1:9: no scheduler answers: ")
    assert done.stderr.count("\n") == 1
