"""Computes what is missing of a study and keeps it, point by point finished."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from vdnnsim.study.points.resolve import Point, Resolved, shown
from vdnnsim.study.results.rows import StudyRow, batches, study_rows
from vdnnsim.study.results.store import Store
from vdnnsim.study.study import Study
from vdnnsim.study.version import model_version
from vdnnsim.study.workers.chunk import POINTS, Chunk, Fault, Workers


@dataclass(frozen=True, slots=True)
class Faults:
    """Points that are still missing because input, output or memory failed.

    Attributes:
        reason: that of the first; empty where there are none.
    """

    points: int = 0
    reason: str = ""


class Watcher(Protocol):
    """Is told how a sweep goes."""

    def advance(self, points: int, failed: int) -> None:
        """Learn of points that are finished, and how many of them failed."""


def sweep(study: Study, store: Store, workers: Workers, watcher: Watcher) -> Faults:
    """Compute the points of a study that its store does not have; those that fail are kept as such.

    Returns:
        what could not be computed now, and is not kept.

    Raises:
        StudyError: the processes that compute were lost.
        OutputError: the store cannot be written.
    """
    model = model_version()
    asked: dict[int, list[tuple[Point, Resolved]]] = {}

    def chunks() -> Iterator[Chunk]:
        known = set[str]()
        missing = (row for row in study_rows(study, store, study.points_by_plan()) if row.outcome is None)
        for number, rows in enumerate(batches(_once(missing, known), POINTS)):
            asked[number] = [(row.point, row.resolved) for row in rows]
            yield Chunk(number, model, tuple(row.resolved for row in rows))

    faults = Faults()
    for number, outcomes in workers(chunks()):
        rows = []
        for (point, resolved), outcome in zip(asked.pop(number), outcomes, strict=True):
            if isinstance(outcome, Fault):
                faults = Faults(faults.points + 1, faults.reason or outcome.reason)
            else:
                rows.append((resolved.key, {key: shown(value) for key, value in point.items()}, outcome))
        store.add(rows, model)
        watcher.advance(len(rows), sum(bool(outcome[0]) for _, _, outcome in rows))
    return faults


def _once(rows: Iterator[StudyRow], known: set[str]) -> Iterator[StudyRow]:
    """Leave out points that are the same as one before, as 16 GiB is of a machine that has them."""
    for row in rows:
        if row.resolved.key not in known:
            known.add(row.resolved.key)
            yield row
