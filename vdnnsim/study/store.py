"""The database of a study: finished points with their outcomes or errors in SQLite, written by one process at a time.

Rows are added in whole transactions over a write-ahead log, so a process that ends in any way loses only unfinished
points. A damaged database is refused and left as it is.
"""

import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from errno import ELOOP
from pathlib import Path
from typing import Final
from urllib.parse import quote

from vdnnsim.errors import InputError, OutputError, StudyError
from vdnnsim.files.messages import one_line
from vdnnsim.study.points.compute import OUTCOME, Outcome

DATABASE: Final = "study.sqlite"
_LOCK: Final = "study.lock"
_APPLICATION: Final = 0x76444E4E
"""Of SQLite's `application_id`."""
_NAMES: Final = ("error", *OUTCOME)
# Columns without a type keep integers, floats and text as they are; a truth value is read as an integer.
_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS points (key TEXT PRIMARY KEY, model TEXT NOT NULL, point TEXT NOT NULL, "
    f"error TEXT NOT NULL, {', '.join(OUTCOME)}) WITHOUT ROWID"
)
_COLUMNS: Final = ("key", "model", "point", *_NAMES)
_BOOLEAN: Final = 1 + OUTCOME.index("fits")
_KINDS: Final = {"algorithms": "('text')", "refusal": "('text')", "fits": "('integer')"}
_NUMBER: Final = "('integer', 'real')"
_COMPUTED: Final = " AND ".join(f"typeof({name}) IN {_KINDS.get(name, _NUMBER)}" for name in OUTCOME)
_FAILED: Final = f"coalesce({', '.join(OUTCOME)}) IS NULL"
_TORN: Final = (
    "SELECT count(*) FROM points WHERE typeof(error) != 'text' "  # noqa: S608  # names of ours
    f"OR NOT CASE error WHEN '' THEN {_COMPUTED} ELSE {_FAILED} END"
)
"""Counts rows that are no outcome."""
_PRIMARY: Final = 0xFF
"""Mask of the primary code in SQLite's error codes."""
_UNAVAILABLE: Final = (
    *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_INTERRUPT),
)


class Store:
    """The results of one study: `reading` opens them, `writing` to add some."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use a connection to the file that messages name."""
        self._path = path
        self._connection = connection

    def outcomes(self, keys: Sequence[str]) -> Mapping[str, Outcome]:
        found: dict[str, Outcome] = {}
        query = f"SELECT key, {', '.join(_NAMES)} FROM points WHERE key IN (SELECT value FROM json_each(?))"  # noqa: S608  # names of ours
        with self._speaking():
            for key, *cells in self._connection.execute(query, [json.dumps(keys)]):
                if not cells[0]:
                    cells[_BOOLEAN] = bool(cells[_BOOLEAN])
                found[key] = tuple(cells)
        return found

    def errors(self) -> Mapping[str, str]:
        """Return the error of each finished point by key; empty if it did not fail."""
        with self._speaking():
            return dict(self._connection.execute("SELECT key, error FROM points"))

    def add(self, rows: Sequence[tuple[str, Mapping[str, object], Outcome]], model: str) -> None:
        """Add the outcomes of points, given as (key, values, outcome), all or none."""
        marks = ", ".join("?" * (3 + len(_NAMES)))
        with self._speaking(), self._connection:
            self._connection.executemany(
                f"INSERT OR IGNORE INTO points VALUES ({marks})",  # noqa: S608  # question marks
                [(key, model, json.dumps(point, ensure_ascii=False), *outcome) for key, point, outcome in rows],
            )

    def forget(self, keys: Sequence[str]) -> None:
        """Remove points, which are missing then."""
        with self._speaking(), self._connection:
            self._connection.executemany("DELETE FROM points WHERE key = ?", [(key,) for key in keys])

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError, OverflowError) as failure:
            raise _database_error(self._path, failure) from None


@contextmanager
def reading(folder: Path) -> Iterator[Store]:
    """Open the database of a folder, which may not exist yet, for reading alone.

    Raises:
        StudyError: the database is damaged, or not of a study.
    """
    path = folder / DATABASE
    is_there = path.exists()
    with closing(_connect(path, writes=False) if is_there else sqlite3.connect(":memory:")) as connection:
        if is_there:
            _check(path, connection)
        else:
            _begin(connection)
        yield Store(path, connection)


@contextmanager
def writing(folder: Path) -> Iterator[Store]:
    """Create folder and database if they are missing, and lock them.

    Raises:
        StudyError: another process has locked them, or the database is damaged.
        OutputError: they cannot be written.
    """
    path = folder / DATABASE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as failure:
        at_fault = folder / _LOCK if failure.errno == ELOOP else folder
        raise OutputError(f"{at_fault}: cannot be written: {failure.strerror or failure}") from None
    try:
        _hold(folder, lock)
        with reading(folder):
            pass  # refuses a damaged database before anything is written
        with closing(_connect(path, writes=True)) as connection:
            store = Store(path, connection)
            with store._speaking():  # noqa: SLF001  # of the same module
                connection.execute("PRAGMA journal_mode=WAL")
                connection.execute("PRAGMA synchronous=FULL")
                if connection.execute("PRAGMA application_id").fetchone() != (_APPLICATION,):
                    _begin(connection)
            yield store
    finally:
        os.close(lock)


def _begin(connection: sqlite3.Connection) -> None:
    """Create the table and set the application id, both or none."""
    connection.executescript(f"BEGIN; {_SCHEMA}; PRAGMA application_id={_APPLICATION}; COMMIT")


def _hold(folder: Path, lock: int) -> None:
    """Lock a file, which the system unlocks when this process ends."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(lock, 200).decode(errors="replace").strip() or "another process"
        raise StudyError(f"{folder}: {holder} is computing this study, expected one sweep at a time") from None
    os.ftruncate(lock, 0)
    since = datetime.now(tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    os.pwrite(lock, f"process {os.getpid()}, since {since},".encode(), 0)


def _connect(path: Path, *, writes: bool) -> sqlite3.Connection:
    """Open a database, as immutable where nothing can be written."""
    writable = os.access(path.parent, os.W_OK) and os.access(path, os.W_OK)
    mode = "rwc" if writes else "rw" if writable else "ro&immutable=1"
    try:
        return sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode={mode}", uri=True, timeout=10)
    except sqlite3.Error as failure:
        raise OutputError(f"{path}: cannot be opened: {failure}") from None


def _check(path: Path, connection: sqlite3.Connection) -> None:
    """Refuse a database that is damaged, of another program or of another version."""
    try:
        verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        columns = tuple(row[1] for row in connection.execute("PRAGMA table_info(points)"))
        torn = columns == _COLUMNS and connection.execute(_TORN).fetchone()[0]
    except (sqlite3.Error, UnicodeDecodeError) as failure:
        raise _database_error(path, failure) from None
    if verdict != "ok":
        raise _damaged(path, verdict)
    if tables and application != _APPLICATION:
        raise StudyError(
            f"{path}: is not a database of a study of vdnnsim, expected one or no file; it was left as it is"
        )
    if tables and columns != _COLUMNS:
        raise StudyError(
            f"{path}: was written by another version of vdnnsim, whose results have other columns; it was left as it "
            "is, move it away to compute the study anew"
        )
    if torn:
        raise _damaged(path, f"{torn} rows hold no outcome of a point")


def _database_error(path: Path, failure: Exception) -> InputError:
    """Return the error of a database: damaged, or unavailable, which may pass."""
    # Errors that Python raises for a cell have no code.
    if getattr(failure, "sqlite_errorcode", 0) & _PRIMARY in _UNAVAILABLE:
        return OutputError(f"{path}: cannot be read or written: {failure}")
    return _damaged(path, failure)


def _damaged(path: Path, why: object) -> StudyError:
    return StudyError(
        f"{path}: is damaged ({one_line(str(why))}); it was left as it is, move it away to compute the study anew"
    )
