"""Files are written whole or not at all, and read up to a limit if they are regular."""

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.refusals import refusal as refused_with
from vdnnsim.errors import OutputError, ProfileError, is_fault
from vdnnsim.files.atomic import replace_file, replace_files
from vdnnsim.files.regular import UnreadableError, read_regular_file

FILES = {"a.txt": b"new a", "b.txt": b"new b"}


@pytest.fixture
def disk_full_at_b(monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes = Path.write_bytes

    def write(path: Path, content: bytes) -> int:
        if path.name.startswith(".b.txt"):
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


@pytest.mark.parametrize("failure", [PermissionError(errno.EACCES, "Permission denied"), KeyboardInterrupt()])
def test_a_failure_leaves_no_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise failure

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises((OutputError, KeyboardInterrupt), match=r"run: cannot be written: Permission denied|^$"):
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


def test_a_pipe_is_written_through(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "a.txt").read_bytes()), daemon=True)
    reader.start()
    replace_file(tmp_path / "a.txt", b"new a")
    reader.join(timeout=10)
    assert read == [b"new a"]
    assert (tmp_path / "a.txt").is_fifo()


@pytest.mark.parametrize("name", ["out.txt", "link"])
def test_standard_output_is_written_from_its_position_on(tmp_path: Path, name: str) -> None:
    """As with `> out.txt`; the name of its file is as good as /dev/stdout."""
    (tmp_path / "link").symlink_to("/dev/stdout")
    write = f"replace_file(Path({str(tmp_path / name)!r}), b'new')"
    script = f"from pathlib import Path; from vdnnsim.files.atomic import replace_file; {write}"
    with (tmp_path / "out.txt").open("wb", buffering=0) as out:
        out.write(b"before ")
        subprocess.run((sys.executable, "-c", script), stdout=out, check=True)
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


def test_a_leftover_of_a_killed_writer_is_removed_after_an_hour(tmp_path: Path) -> None:
    """A younger one may be of a writer that runs."""
    for name, age_s in (("old", 3700), ("young", 60)):
        (tmp_path / f".a.txt.{name}.vdnnsim").touch()
        os.utime(tmp_path / f".a.txt.{name}.vdnnsim", times=(time.time() - age_s,) * 2)
    replace_files(tmp_path, FILES)
    assert everything_in(tmp_path) == {"a.txt", "b.txt", ".a.txt.young.vdnnsim"}


def refusal(path: Path, largest_bytes: int = 2**20) -> str:
    return refused_with(UnreadableError, read_regular_file, path, largest_bytes, "expected text")


def test_regular_files_are_read_up_to_the_limit(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1234")
    (tmp_path / "link").symlink_to("file")
    assert read_regular_file(tmp_path / "link", 4, "") == b"1234"
    # Of a sparse file of 3 GB, and of one byte too many.
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(3 * 10**9)
    assert refusal(tmp_path / "sparse", 64 * 2**20) == "is larger than 64 MiB, expected text"
    assert refusal(tmp_path / "sparse", 2**18) == "is larger than 256 KiB, expected text"
    # A pipe without a writer, a device without an end.
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name, found in (("pipe", "not a regular file"), ("endless", "not a regular file"), (".", "a folder")):
        assert refusal(tmp_path / name) == f"is {found}, expected text"


def test_failures_of_the_system_are_faults_and_wrong_files_are_not(tmp_path: Path) -> None:
    for name, fault in (("missing", True), (".", False), ("a\0b", False)):
        with pytest.raises(UnreadableError) as refused:
            read_regular_file(tmp_path / name, 1, "")
        assert is_fault(refused.value) is fault
    caused = ProfileError("cannot be read")
    caused.__cause__ = OSError()
    assert is_fault(caused)
    assert is_fault(MemoryError())
    assert not is_fault(ProfileError("wrong"))
