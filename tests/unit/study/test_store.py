"""The database of a study: what it keeps, and what it says when something is wrong."""

import os
import sqlite3
from pathlib import Path

import pytest

from vdnnsim.errors import OutputError, StudyError
from vdnnsim.study.points.outcome import OUTCOME, Outcome, failed
from vdnnsim.study.results.store import DATABASE, Store, writing

FINISHED: Outcome = ("", "p", True, 0.1, *(7 for _ in OUTCOME[4:]), "")
MODEL = "1"


def fill(folder: Path, rows: int) -> None:
    with writing(folder) as store:
        store.add([(f"key{row}", {"row": row}, FINISHED) for row in range(rows)], MODEL)


def test_what_was_added_is_found_by_the_next_process(tmp_path: Path) -> None:
    """Floats, truth values and errors come back as what they were."""
    with writing(tmp_path / "new") as store:
        store.add([("a", {}, FINISHED), ("b", {}, failed("no such link"))], MODEL)

    with Store.reading(tmp_path / "new") as store:
        assert store.outcomes(["b", "a", "c"]) == {"a": FINISHED, "b": failed("no such link")}
        assert store.outcomes(["a"])["a"][2] is True


def test_more_keys_than_one_question_may_have(tmp_path: Path) -> None:
    fill(tmp_path, 1200)

    with Store.reading(tmp_path) as store:
        assert len(store.outcomes([f"key{row}" for row in range(2000)])) == 1200


def test_a_folder_without_a_database_has_nothing_and_stays_so(tmp_path: Path) -> None:
    with Store.reading(tmp_path) as store:
        assert store.outcomes(["a"]) == {}

    assert list(tmp_path.iterdir()) == []


def test_the_second_of_two_sweeps_is_told_who_holds_the_study(tmp_path: Path) -> None:
    with (
        writing(tmp_path),
        pytest.raises(StudyError, match="expected one sweep at a time") as refused,
        writing(tmp_path),
    ):
        pass

    assert f"process {os.getpid()} on " in str(refused.value)
    with writing(tmp_path):
        pass  # it is free again


@pytest.mark.parametrize("where", [0, 40, 5000])
def test_a_damaged_database_is_refused_and_kept(tmp_path: Path, where: int) -> None:
    """In the magic number, in the header, or in the middle of a page."""
    fill(tmp_path, 200)
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    data[where : where + 3000] = b"\xff" * 3000
    path.write_bytes(data)

    with pytest.raises(StudyError, match="is damaged") as refused, writing(tmp_path):
        pass
    with pytest.raises(StudyError, match="is damaged"):
        Store.reading(tmp_path)
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == bytes(data)


def test_a_database_of_somebody_else_is_refused_and_kept(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("CREATE TABLE points (key TEXT)")
    connection.close()
    before = (tmp_path / DATABASE).read_bytes()

    with pytest.raises(StudyError, match="is no database of a study"), writing(tmp_path):
        pass

    assert (tmp_path / DATABASE).read_bytes() == before


def test_a_database_of_an_earlier_version_is_refused_and_kept(tmp_path: Path) -> None:
    """`images_per_s` was of all GPUs together, and `server_images_per_s` was not there."""
    fill(tmp_path, 1)
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute("ALTER TABLE points DROP COLUMN server_images_per_s")
    connection.close()
    before = (tmp_path / DATABASE).read_bytes()

    with pytest.raises(StudyError, match="was written by another version of vdnnsim") as refused, writing(tmp_path):
        pass

    assert "\n" not in str(refused.value)
    assert (tmp_path / DATABASE).read_bytes() == before


def test_a_full_disk_is_one_line_and_what_was_kept_stays(tmp_path: Path) -> None:
    """SQLite says of a database that may have no more pages what it says of a full disk."""
    fill(tmp_path, 10)

    with writing(tmp_path) as store:
        assert store._connection is not None  # noqa: SLF001  # nothing else fills a disk in a test
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]  # noqa: SLF001
        store._connection.execute(f"PRAGMA max_page_count={pages}")  # noqa: SLF001
        with pytest.raises(OutputError, match="database or disk is full") as refused:
            store.add([(f"other{row}", {}, FINISHED) for row in range(1000)], MODEL)
        assert "\n" not in str(refused.value)
        assert len(store.outcomes([f"key{row}" for row in range(10)])) == 10
        assert store.outcomes([f"other{row}" for row in range(1000)]) == {}


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OutputError, match="cannot be written"), writing(tmp_path / "file" / "out"):
        pass
