"""Processes of this machine that compute chunks."""

import os
from collections.abc import Iterator

import pytest

from vdnnsim.errors import StudyError
from vdnnsim.study.points.compute import failed
from vdnnsim.study.points.resolve import Resolved
from vdnnsim.study.sweep import Chunk, Finished, local_workers
from vdnnsim.study.version import model_version

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
