"""Kills workers and schedulers of Dask clusters during sweeps: `python -m tests.study.deaths 20 5`.

A sweep whose worker dies is finished by the other one; one whose scheduler dies says so in one line and keeps what was
finished, and the same command on another cluster resumes. Both end with the bytes of an undisturbed study.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.study.kills import MAIN, begin, look, study_file
from tests.toy import ROOT

_BATCHES: Final = 60
_SCHEDULER: Final = ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-jupyter")
_WORKER: Final = ("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard")
_LOST: Final = "the scheduler was lost; what was finished is kept, the same command goes on\n"
Process = subprocess.Popen[str]


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / f"scheduler{time.time_ns()}.json"
        self.scheduler = self._dask(*_SCHEDULER, "--scheduler-file", str(self._file))
        while not self._file.exists():
            time.sleep(0.05)
        self.workers = [self.worker(), self.worker()]

    @property
    def address(self) -> str:
        address: str = json.loads(self._file.read_text(encoding="utf-8"))["address"]
        return address

    def worker(self) -> Process:
        return self._dask(*_WORKER, "--scheduler-file", str(self._file))

    def close(self) -> None:
        for each in (self.scheduler, *self.workers):
            each.kill()
            each.wait()

    def _dask(self, *words: str) -> Process:
        return subprocess.Popen(
            (sys.executable, "-m", "dask", *words),
            cwd=self._folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
        )


@contextmanager
def cluster_in(folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.close()


def sweep(study: Path, out: Path, cluster: Cluster) -> Process:
    command = (*MAIN, "sweep", str(study), "--out", str(out), "--cluster", cluster.address)
    return subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill_amid(victim: Process, sweeping: Process, out: Path, draw: random.Random) -> tuple[int, str]:
    """Kill a process of the cluster during a sweep; return how many points were kept, and its standard error."""
    after = draw.randrange(2 * _BATCHES)
    while sweeping.poll() is None and len(look(out).keys) <= after:
        time.sleep(0.01)
    before = look(out)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    _, said = sweeping.communicate()
    found = look(out)
    assert found.sound, "the database is damaged"
    assert found.torn == 0, f"{found.torn} rows are torn"
    assert before.keys <= found.keys, f"{len(before.keys - found.keys)} finished points are lost"
    return len(before.keys), said


def main(workers: int, schedulers: int) -> None:
    """Kill so many workers and schedulers, and print the results."""
    with tempfile.TemporaryDirectory() as name:
        folder, draw = Path(name), random.Random(7)  # noqa: S311  # equal draws each time
        study = study_file(folder, _BATCHES)
        assert begin(study, folder / "undisturbed").wait() == 0, "a sweep failed"
        expected = (folder / "undisturbed" / "results.csv").read_bytes()
        kept: list[int] = []
        with cluster_in(folder) as cluster:
            for number in range(workers):
                out = folder / f"worker{number}"
                sweeping = sweep(study, out, cluster)
                killed, said = kill_amid(cluster.workers[number % 2], sweeping, out, draw)
                assert sweeping.returncode == 0, said
                assert (out / "results.csv").read_bytes() == expected, "results differ"
                cluster.workers[number % 2] = cluster.worker()
                kept.append(killed)
        _say(f"{workers} workers", kept)
        kept.clear()
        for number in range(schedulers):
            out = folder / f"scheduler{number}"
            with cluster_in(folder) as cluster:
                sweeping = sweep(study, out, cluster)
                killed, said = kill_amid(cluster.scheduler, sweeping, out, draw)
                assert sweeping.returncode == 1
                assert said.endswith(_LOST), said
                assert said.count("\n") == 1, said
            with cluster_in(folder) as cluster:
                assert sweep(study, out, cluster).wait() == 0, "a sweep failed"
            assert (out / "results.csv").read_bytes() == expected, "results differ"
            kept.append(killed)
        _say(f"{schedulers} schedulers", kept)


def _say(who: str, kept: list[int]) -> None:
    if kept:
        sys.stdout.write(f"{who} died, with {min(kept)} to {max(kept)} points kept; equal bytes\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
