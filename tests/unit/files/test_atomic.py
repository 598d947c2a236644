"""Files are written whole or not at all."""

import errno
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.files.atomic import replace_file, replace_files

FILES = {"a.txt": b"new a", "b.txt": b"new b"}


@pytest.fixture
def disk_full_at_b(monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if path.name == "b.txt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "run"
    assert replace_files(folder, FILES) == (folder / "a.txt", folder / "b.txt")
    assert everything_in(tmp_path) == {"reports", "reports/run", "reports/run/a.txt", "reports/run/b.txt"}


def test_an_existing_folder_keeps_its_other_files(tmp_path: Path) -> None:
    """Content may come in pieces."""
    (tmp_path / "a.txt").write_text("old a")
    (tmp_path / "mine.txt").write_text("mine")
    replace_files(tmp_path, {"a.txt": (piece for piece in (b"new", b" ", b"a"))})
    replace_file(tmp_path / "b.txt", iter([b"new b"]))
    assert contents(tmp_path) == {**FILES, "mine.txt": b"mine"}


@pytest.mark.usefixtures("disk_full_at_b")
def test_a_full_disk_leaves_an_existing_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old a")
    with pytest.raises(OutputError, match=f"^{tmp_path}: cannot be written: No space left on device"):
        replace_files(tmp_path, FILES)
    assert contents(tmp_path) == {"a.txt": b"old a"}


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failure_leaves_no_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises((OutputError, KeyboardInterrupt)):
        replace_files(tmp_path / "reports" / "deep" / "run", FILES)
    assert everything_in(tmp_path) == set()


@pytest.mark.usefixtures("disk_full_at_b")
def test_new_parents_in_use_by_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file appears in the new parent before the disk is full."""
    mkdir = Path.mkdir

    def make(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002  # as Path.mkdir has it
        mkdir(path, mode, parents, exist_ok)
        if path.name == "reports":
            (path / "theirs.txt").touch()

    monkeypatch.setattr(Path, "mkdir", make)
    with pytest.raises(OutputError, match="No space left"):
        replace_files(tmp_path / "reports" / "run", FILES)
    assert everything_in(tmp_path) == {"reports", "reports/theirs.txt"}


def test_a_file_in_place_of_a_folder_and_a_folder_in_place_of_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(OutputError, match="run: is a file, expected a folder to write to"):
        replace_files(tmp_path / "run", FILES)
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(OutputError, match=r"b\.txt: is a folder, expected a file or nothing"):
        replace_files(tmp_path, FILES)
    assert everything_in(tmp_path) == {"run", "b.txt"}
    assert (tmp_path / "run").read_text() == "not a folder"


@pytest.mark.parametrize("name", ["", "run"])
def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By a stand-in, for root may write anywhere."""

    def refuse(**_where: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(OutputError, match=f"^{tmp_path / name}: cannot be written: Permission denied"):
        replace_files(tmp_path / name, FILES)
    assert everything_in(tmp_path) == set()


def test_a_pipe_among_the_files_of_a_folder_is_written_through(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "a.txt").read_bytes()), daemon=True)
    reader.start()
    replace_files(tmp_path, FILES)
    reader.join(timeout=10)
    assert read == [b"new a"]
    assert (tmp_path / "a.txt").is_fifo()
    assert (tmp_path / "b.txt").read_bytes() == b"new b"


def test_a_broken_pipe_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")

    def refuse(*_where: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("vdnnsim.files.atomic._write_through", refuse)
    with pytest.raises(OutputError, match=r"pipe\.csv: cannot be written: Broken pipe"):
        replace_file(tmp_path / "pipe.csv", b"new")


@pytest.mark.parametrize("name", ["link", "number"])
def test_an_open_file_is_written_from_its_position_on(tmp_path: Path, name: str) -> None:
    with (tmp_path / "out.txt").open("wb", buffering=0) as out:
        out.write(b"before ")
        number = Path("/proc/self/fd") / str(out.fileno())
        (tmp_path / "link").symlink_to(number)
        replace_file(tmp_path / "link" if name == "link" else number, b"new")
        out.write(b" after")
    assert (tmp_path / "out.txt").read_bytes() == b"before new after"
    assert everything_in(tmp_path) == {"link", "out.txt"}


def test_a_link_stays_one_and_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "target.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("there/target.csv")
    replace_file(tmp_path / "link.csv", b"new")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "there" / "target.csv").read_bytes() == b"new"
    assert everything_in(tmp_path) == {"link.csv", "there", "there/target.csv"}


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link.csv").symlink_to("other.csv")
    (tmp_path / "other.csv").symlink_to("link.csv")
    with pytest.raises(OutputError, match="Too many levels of symbolic links"):
        replace_file(tmp_path / "link.csv", b"new")
    assert everything_in(tmp_path) == {"link.csv", "other.csv"}


def test_permissions_are_kept(tmp_path: Path) -> None:
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "link.txt").symlink_to("b.txt")
    replace_files(tmp_path, {"a.txt": b"new a", "link.txt": b"new b"})
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.txt", "b.txt")] == [0o600, 0o600]
    assert (tmp_path / "b.txt").read_bytes() == b"new b"


def test_files_that_stand_meanwhile_are_written_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer that is killed at its second file leaves them."""
    (tmp_path / "a.txt").write_text("old a")
    replace, places = Path.replace, list[str]()

    def end(path: Path, target: Path) -> Path:
        places.append(target.name)
        if len(places) == 3:
            raise KeyboardInterrupt
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", end)
    with pytest.raises(KeyboardInterrupt):
        replace_files(tmp_path, FILES, meanwhile={"run.json": b"unfinished"})
    assert places == ["run.json", "a.txt", "b.txt"]
    assert contents(tmp_path) == {"a.txt": b"new a", "run.json": b"unfinished"}


def test_leftovers_of_a_killed_writer_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".vdnnsim-left").mkdir()
    (tmp_path / ".vdnnsim-left" / "a.txt").write_text("half")
    replace_files(tmp_path, FILES)
    assert everything_in(tmp_path) == {"a.txt", "b.txt"}

    # Both share the lock.
    def second() -> Iterator[bytes]:
        replace_file(tmp_path / "b.txt", b"new b")
        yield b"new a"

    replace_file(tmp_path / "a.txt", second())
    assert contents(tmp_path) == FILES


def test_a_folder_that_is_locked_or_unreadable_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leftovers stay while others hold the lock, as `flock DIR make`."""
    (tmp_path / ".vdnnsim-left").mkdir()
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    replace_file(tmp_path / "a.txt", b"new a")
    os.close(holder)

    opened = os.open

    def refuse(path: Path | str, flags: int, *mode: int, dir_fd: int | None = None) -> int:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return opened(path, flags, *mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", refuse)
    replace_file(tmp_path / "b.txt", b"new b")
    assert everything_in(tmp_path) == {".vdnnsim-left", "a.txt", "b.txt"}
