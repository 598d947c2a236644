"""A few points that one process computes without a word in between, and how a process does."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from vdnnsim.errors import StudyError
from vdnnsim.study.points.compute import PointRunner
from vdnnsim.study.points.outcome import Outcome
from vdnnsim.study.points.resolve import Resolved
from vdnnsim.study.version import model_version

POINTS: Final = 20
"""About a second of work: so much may be lost when a process is killed, and so often is progress told."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Points to compute.

    Attributes:
        number: tells it from all others of its sweep.
        model: the version by which the points were asked for.
    """

    number: int
    model: str
    points: tuple[Resolved, ...]


Finished: TypeAlias = tuple[int, Sequence[Outcome | StudyError]]
"""The number of a chunk and the outcomes of its points, in their order; or why one has none yet."""

Workers: TypeAlias = Callable[[Iterator[Chunk]], Iterator[Finished]]
"""Whoever computes chunks, in any order."""


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
    """Return the runner of this process, which keeps what its next points may share."""
    return PointRunner()
