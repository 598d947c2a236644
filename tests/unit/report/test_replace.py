"""Files come whole or not at all; what stood there stays until then."""

import errno
import os
import tempfile
from pathlib import Path

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.report.replace import replace_file, replace_files

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


def test_a_new_folder_has_the_permissions_of_any_new_folder(tmp_path: Path) -> None:
    replace_files(tmp_path / "run", FILES)
    (tmp_path / "other").mkdir()
    assert (tmp_path / "run").stat().st_mode == (tmp_path / "other").stat().st_mode


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


def test_a_file_on_the_way_to_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError) as failure:
        replace_files(tmp_path / "file" / "deep" / "run", FILES)
    assert str(failure.value) == f"{tmp_path / 'file'}: is a file, expected a folder to write to"
    assert everything_in(tmp_path) == {"file"}


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


def test_one_file_is_replaced_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    replace_file(tmp_path / "a.txt", b"new")
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert everything_in(tmp_path) == {"a.txt"}
