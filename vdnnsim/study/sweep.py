"""Sweeps: the missing points of a study computed in chunks, in this process or in others.

Local processes are spawned and end with their parent. If the parent gives up, they end at once, within a point.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing.connection import Connection
from threading import Thread
from typing import Final, TypeAlias

from vdnnsim.engine.garbage_collection import collect_rarely
from vdnnsim.errors import StudyError
from vdnnsim.study.points.compute import Outcome, PointRunner
from vdnnsim.study.points.resolve import Point, Resolved, shown
from vdnnsim.study.results import StudyRow, batches, study_rows
from vdnnsim.study.store import Store
from vdnnsim.study.study import Study
from vdnnsim.study.version import model_version

POINTS: Final = 20
"""Of a chunk, about a second of work, which may be lost when a process is killed."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points to compute."""

    number: int
    model: str
    points: tuple[Resolved, ...]


Finished: TypeAlias = tuple[int, Sequence[Outcome | StudyError]]
"""The number of a chunk and the outcomes of its points in order; an error for one that may be computed later."""

Workers: TypeAlias = Callable[[Iterator[Chunk]], Iterator[Finished]]


def sweep(
    study: Study, store: Store, workers: Workers, progress: Callable[[int, int], object] = lambda _, __: None
) -> str:
    """Compute the points of a study that its store lacks, and add their outcomes and errors.

    `progress` gets how many points were added, and how many of them failed.

    Returns:
        why the first of the points that may be computed later was not; empty where there is none.

    Raises:
        StudyError: the worker processes were lost.
        OutputError: the store cannot be written.
    """
    model = model_version()
    asked: dict[int, list[tuple[Point, Resolved]]] = {}

    def chunks() -> Iterator[Chunk]:
        missing = (row for row in study_rows(study, store, study.points_by_plan()) if row.outcome is None)
        for number, rows in enumerate(batches(_once(missing), POINTS)):
            asked[number] = [(row.point, row.resolved) for row in rows]
            yield Chunk(number, model, tuple(row.resolved for row in rows))

    fault = ""
    for number, outcomes in workers(chunks()):
        rows = []
        for (point, resolved), outcome in zip(asked.pop(number), outcomes, strict=True):
            if isinstance(outcome, StudyError):
                fault = fault or str(outcome)
            else:
                rows.append((resolved.key, {key: shown(value) for key, value in point.items()}, outcome))
        store.add(rows, model)
        progress(len(rows), sum(bool(outcome[0]) for _, _, outcome in rows))
    return fault


def _once(rows: Iterator[StudyRow]) -> Iterator[StudyRow]:
    """Leave out repeated points, as a memory of 16 GiB on a machine that has it."""
    known = set[str]()
    for row in rows:
        if row.resolved.key not in known:
            known.add(row.resolved.key)
            yield row


def compute_chunk(chunk: Chunk) -> Finished:
    """Compute the points of a chunk in this process.

    Raises:
        StudyError: this process has another version of the model.
    """
    if chunk.model != model_version():
        raise StudyError(f"a worker has version {model_version()} of vdnnsim, expected {chunk.model}")
    return chunk.number, [_outcome(point) for point in chunk.points]


def _outcome(point: Resolved) -> Outcome | StudyError:
    try:
        return _runner().run(point)
    except StudyError as failure:
        return failure


@cache
def _runner() -> PointRunner:
    return PointRunner()


_AHEAD = 2
"""Queued chunks for each process."""


def local_workers(count: int) -> Workers:
    """Return workers of so many processes; one is this process itself."""
    return lambda chunks: map(compute_chunk, chunks) if count == 1 else _compute(chunks, count)


def _compute(chunks: Iterator[Chunk], count: int) -> Iterator[Finished]:
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with _left_to_parent():
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent, initargs=(theirs,))
    try:
        waiting = {_submit(pool, chunk) for chunk in islice(chunks, _AHEAD * count)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            finished = [each.result() for each in done]
            waiting |= {_submit(pool, chunk) for chunk in islice(chunks, len(done))}
            yield from finished
    except BrokenProcessPool:
        ours.close()
        why = "a process of this study was killed, perhaps for want of memory"
        raise StudyError(f"{why}; finished points are kept; run it again") from None
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()


def _submit(pool: ProcessPoolExecutor, chunk: Chunk) -> "Future[Finished]":
    with _left_to_parent():
        return pool.submit(compute_chunk, chunk)


@contextmanager
def _left_to_parent() -> Iterator[None]:
    """Block SIGINT and SIGHUP, which a terminal sends to all processes, in those that begin meanwhile."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(pipe: Connection) -> None:
    """Ignore interrupts, and end when the pipe to the parent is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()

    def watch() -> None:
        pipe.poll(None)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
