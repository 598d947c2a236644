"""Computes what is missing of a study and keeps it, point by point finished."""

from collections.abc import Callable, Iterator

from vdnnsim.errors import StudyError
from vdnnsim.study.points.resolve import Point, Resolved, shown
from vdnnsim.study.results.rows import StudyRow, batches, study_rows
from vdnnsim.study.results.store import Store
from vdnnsim.study.study import Study
from vdnnsim.study.version import model_version
from vdnnsim.study.workers.chunk import POINTS, Chunk, Workers


def sweep(study: Study, store: Store, workers: Workers, tell: Callable[[int, int], object] = lambda _, __: None) -> str:
    """Compute the points of a study that its store does not have; those that fail are kept as such.

    Args:
        study: what is asked.
        store: what keeps it.
        workers: who computes.
        tell: is told of points that are finished, and how many of them failed.

    Returns:
        why a point could not be computed now, and is not kept, of the first one; empty where there is none.

    Raises:
        StudyError: the processes that compute were lost.
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
        tell(len(rows), sum(bool(outcome[0]) for _, _, outcome in rows))
    return fault


def _once(rows: Iterator[StudyRow]) -> Iterator[StudyRow]:
    """Leave out points that are the same as one before, as 16 GiB is of a machine that has them."""
    known = set[str]()
    for row in rows:
        if row.resolved.key not in known:
            known.add(row.resolved.key)
            yield row
