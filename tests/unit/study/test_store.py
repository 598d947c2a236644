"""The database of a study."""

import os
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from vdnnsim.errors import OutputError, StudyError
from vdnnsim.study.points.compute import OUTCOME, Outcome, failed
from vdnnsim.study.store import DATABASE, reading, writing

FINISHED: Outcome = ("", "p", True, 0.1, *(7 for _ in OUTCOME[4:]), "")
MODEL = "1"


def fill(folder: Path, rows: int) -> None:
    with writing(folder) as store:
        store.add([(f"key{row}", {"row": row}, FINISHED) for row in range(rows)], MODEL)


def test_outcomes_are_found_by_the_next_process(tmp_path: Path) -> None:
    with writing(tmp_path / "new") as store:
        store.add([("a", {}, FINISHED), ("b", {}, failed("no such link"))], MODEL)
    with reading(tmp_path / "new") as store:
        assert store.outcomes(["b", "a", "c"]) == {"a": FINISHED, "b": failed("no such link")}
        assert store.outcomes(["a"])["a"][2] is True
        assert store.errors() == {"a": "", "b": "no such link"}
    # More keys than one question may have.
    fill(tmp_path, 1200)
    with reading(tmp_path) as store:
        assert len(store.outcomes([f"key{row}" for row in range(2000)])) == 1200
    # Forgotten points are missing.
    fill(tmp_path, 3)
    with writing(tmp_path) as store:
        store.forget(["key0", "key2", "nothing"])
        assert set(store.outcomes(["key0", "key1", "key2"])) == {"key1"}


def test_a_folder_without_a_database_has_nothing_and_stays_so(tmp_path: Path) -> None:
    with reading(tmp_path) as store:
        assert store.outcomes(["a"]) == {}
        assert store.errors() == {}
    assert list(tmp_path.iterdir()) == []


def test_a_second_sweep_is_refused_with_the_holder(tmp_path: Path) -> None:
    with (
        writing(tmp_path),
        pytest.raises(StudyError, match="expected one sweep at a time") as refused,
        writing(tmp_path),
    ):
        pass

    assert f"process {os.getpid()}, since " in str(refused.value)
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
    with pytest.raises(StudyError, match="is damaged"), reading(tmp_path):
        pass
    assert "\n" not in str(refused.value)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize(
    ("rows", "statement", "message"),
    [
        (0, "CREATE TABLE points (key TEXT)", "is not a database of a study"),
        # `samples_per_s` was of all GPUs together then.
        (1, "ALTER TABLE points DROP COLUMN server_samples_per_s", "was written by another version of vdnnsim"),
    ],
)
def test_a_database_of_others_is_refused_and_kept(tmp_path: Path, rows: int, statement: str, message: str) -> None:
    if rows:
        fill(tmp_path, rows)
    connection = sqlite3.connect(tmp_path / DATABASE)
    connection.execute(statement)
    connection.close()
    before = (tmp_path / DATABASE).read_bytes()
    with pytest.raises(StudyError, match=message) as refused, writing(tmp_path):
        pass
    assert "\n" not in str(refused.value)
    assert (tmp_path / DATABASE).read_bytes() == before


def test_a_full_disk_keeps_earlier_outcomes(tmp_path: Path) -> None:
    """SQLite has the same error for a limit of pages."""
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


def test_a_database_that_is_locked_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path, 1)
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: connect(*args, **{**options, "timeout": 0}))
    holder = sqlite3.connect(tmp_path / DATABASE)
    holder.execute("PRAGMA locking_mode=EXCLUSIVE")
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")

    with pytest.raises(OutputError, match="cannot be read or written: database is locked"), reading(tmp_path):
        pass

    holder.close()


def test_a_folder_where_nothing_can_be_written_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in, for root may write anywhere."""
    fill(tmp_path, 3)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with reading(tmp_path) as store:
        assert len(store.outcomes(["key1", "key2"])) == 2
    assert {path.name for path in tmp_path.iterdir()} == {DATABASE, "study.lock"}


def test_what_is_quoted_of_a_damaged_database_is_printable(tmp_path: Path) -> None:
    """SQLite quotes the statement that made the table."""
    fill(tmp_path, 1)
    path = tmp_path / DATABASE
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE", b"CREATE \x1bABLE"))
    with pytest.raises(StudyError, match="is damaged") as refused, reading(tmp_path):
        pass
    assert str(refused.value).isprintable()


def test_pages_that_changed_places_are_damage(tmp_path: Path) -> None:
    fill(tmp_path, 400)
    path = tmp_path / DATABASE
    data = bytearray(path.read_bytes())
    pages = [at for at in range(4096, len(data), 4096) if data[at] == 0x0A]
    one, other = (slice(at, at + 4096) for at in pages[1:3])
    data[one], data[other] = data[other], data[one]
    path.write_bytes(data)
    with pytest.raises(StudyError, match="is damaged"), reading(tmp_path):
        pass


@pytest.mark.parametrize("cell", ["'text'", "x'ff'", "NULL", "CAST(x'ff' AS TEXT)"])
@pytest.mark.parametrize("column", ["iteration_s", "fits", "error", "algorithms"])
def test_a_row_with_impossible_cells_is_damage(tmp_path: Path, column: str, cell: str) -> None:
    """Bits that flipped within a cell; the database is as sound as any."""
    if (column, cell) == ("algorithms", "'text'"):
        pytest.skip("is one")
    fill(tmp_path, 1)
    connection = sqlite3.connect(tmp_path / DATABASE)
    with suppress(sqlite3.IntegrityError):  # an error is there, or empty
        connection.execute(f"UPDATE points SET {column} = {cell}")  # noqa: S608  # of this file
        connection.commit()
        connection.close()
        with pytest.raises(StudyError, match="is damaged"), reading(tmp_path) as store:
            store.outcomes(["key0"])


def test_a_folder_or_a_lock_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    """The file behind a link that is called as the lock stays."""
    (tmp_path / "mine.txt").write_text("mine")
    (tmp_path / "study.lock").symlink_to("mine.txt")
    for folder, message in ((tmp_path / "mine.txt" / "out", "cannot be written"), (tmp_path, "Too many levels")):
        with pytest.raises(OutputError, match=message), writing(folder):
            pass
    assert (tmp_path / "mine.txt").read_text() == "mine"
