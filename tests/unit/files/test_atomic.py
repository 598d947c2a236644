"""Files come whole or not at all; what stood there stays until then."""

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
    """The disk is full when b.txt is written."""
    write_bytes = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if path.name == "b.txt":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return write_bytes(path, content)

    monkeypatch.setattr(Path, "write_bytes", write)


def everything_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    folder = tmp_path / "reports" / "run"
    assert replace_files(folder, FILES) == (folder / "a.txt", folder / "b.txt")
    assert everything_in(tmp_path) == {"reports", "reports/run", "reports/run/a.txt", "reports/run/b.txt"}
    assert (folder / "b.txt").read_bytes() == b"new b"


def test_an_existing_folder_keeps_its_other_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old a")
    (tmp_path / "mine.txt").write_text("mine")
    replace_files(tmp_path, FILES)
    assert {name: (tmp_path / name).read_text() for name in everything_in(tmp_path)} == {
        "a.txt": "new a",
        "b.txt": "new b",
        "mine.txt": "mine",
    }


@pytest.mark.usefixtures("disk_full_at_b")
def test_a_full_disk_leaves_an_existing_folder_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old a")
    with pytest.raises(OutputError) as failure:
        replace_files(tmp_path, FILES)
    assert str(failure.value) == f"{tmp_path}: cannot be written: No space left on device"
    assert everything_in(tmp_path) == {"a.txt"}
    assert (tmp_path / "a.txt").read_text() == "old a"


@pytest.mark.usefixtures("disk_full_at_b")
def test_a_full_disk_leaves_no_new_folder_nor_its_parents(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No space left"):
        replace_files(tmp_path / "reports" / "deep" / "run", FILES)
    assert everything_in(tmp_path) == set()


@pytest.mark.usefixtures("disk_full_at_b")
def test_parents_that_others_use_meanwhile_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Someone writes into the new parent before the disk is full, so it cannot be removed."""
    mkdir = Path.mkdir

    def make(path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: FBT001, FBT002  # as Path.mkdir has it
        mkdir(path, mode, parents, exist_ok)
        if path.name == "reports":
            (path / "theirs.txt").touch()

    monkeypatch.setattr(Path, "mkdir", make)
    with pytest.raises(OutputError, match="No space left"):
        replace_files(tmp_path / "reports" / "run", FILES)
    assert everything_in(tmp_path) == {"reports", "reports/theirs.txt"}


def test_an_interruption_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_path: Path, _content: bytes) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupt)
    with pytest.raises(KeyboardInterrupt):
        replace_files(tmp_path / "run", FILES)
    assert everything_in(tmp_path) == set()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("not a folder")
    with pytest.raises(OutputError) as failure:
        replace_files(tmp_path / "run", FILES)
    assert str(failure.value) == f"{tmp_path / 'run'}: is a file, expected a folder to write to"
    assert (tmp_path / "run").read_text() == "not a folder"


def test_a_folder_in_place_of_a_file_is_refused_before_anything_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "b.txt").mkdir()
    with pytest.raises(OutputError, match=r"b\.txt: is a folder, expected a file or nothing"):
        replace_files(tmp_path, FILES)
    assert everything_in(tmp_path) == {"b.txt"}


@pytest.mark.parametrize("name", ["", "run"])
def test_a_folder_without_permission_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Refused by a stand-in, for whoever runs the tests as root may write anywhere."""

    def refuse(**_where: object) -> str:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(tempfile, "mkdtemp", refuse)
    with pytest.raises(OutputError) as failure:
        replace_files(tmp_path / name, FILES)
    assert str(failure.value) == f"{tmp_path / name}: cannot be written: Permission denied"
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


def test_a_broken_pipe_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.csv")

    def refuse(*_where: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("vdnnsim.files.atomic._write_through", refuse)
    with pytest.raises(OutputError) as failure:
        replace_file(tmp_path / "pipe.csv", b"new")
    assert str(failure.value) == f"{tmp_path / 'pipe.csv'}: cannot be written: Broken pipe"


@pytest.mark.parametrize("name", ["link", "number"])
def test_what_leads_to_an_open_file_writes_on_from_where_it_is(tmp_path: Path, name: str) -> None:
    """As /dev/stdout does, whose target another name would leave behind."""
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


def test_content_may_come_in_pieces(tmp_path: Path) -> None:
    replace_files(tmp_path, {"a.txt": (piece for piece in (b"new", b" ", b"a"))})
    replace_file(tmp_path / "b.txt", iter([b"new b"]))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == FILES


def test_who_may_read_a_file_may_read_what_replaces_it(tmp_path: Path) -> None:
    """Nobody but its owner, and behind a link the same."""
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).touch(mode=0o600)
    (tmp_path / "link.txt").symlink_to("b.txt")
    replace_files(tmp_path, {"a.txt": b"new a", "link.txt": b"new b"})
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("a.txt", "b.txt")] == [0o600, 0o600]
    assert (tmp_path / "b.txt").read_bytes() == b"new b"


def test_what_stands_meanwhile_stands_before_the_first_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that ends at its second file, as kill -9 would have it, leaves word of it."""
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
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {
        "a.txt": b"new a",
        "run.json": b"unfinished",
    }


def test_what_a_killed_writer_left_goes_with_the_next(tmp_path: Path) -> None:
    (tmp_path / ".vdnnsim-left").mkdir()
    (tmp_path / ".vdnnsim-left" / "a.txt").write_text("half")
    replace_files(tmp_path, FILES)
    assert everything_in(tmp_path) == {"a.txt", "b.txt"}


def test_what_another_writer_is_at_stays(tmp_path: Path) -> None:
    """It holds the lock that all share; the second can have it, but not alone."""

    def second() -> Iterator[bytes]:
        replace_file(tmp_path / "b.txt", b"new b")
        yield b"new a"

    replace_file(tmp_path / "a.txt", second())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == FILES


def test_a_folder_that_others_lock_or_that_may_not_be_read_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`flock DIR make` holds the lock for itself; what is left stays then."""
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
