"""Folders of results: ownership of files, interrupted writers, versions and commits."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

import pytest

from vdnnsim.errors import OutputError
from vdnnsim.files.atomic import UNFINISHED
from vdnnsim.report.folder import Commit, Writer, earlier_files, source_commit, versions, write_folder

WRITER = Writer.of("test", ("run.json",), "test", others=r"\w\.csv")
FIRST = {"a.csv": b"1", "b.csv": b"1", "run.json": b'{"test": 1, "files": ["a.csv", "b.csv"]}'}
SECOND = {"a.csv": b"2", "c.csv": b"2", "run.json": b'{"test": 2, "files": ["a.csv", "c.csv"]}'}


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("renames", range(5))
def test_an_interrupted_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, renames: int) -> None:
    """Of 4 renames the first puts an unfinished manifest there, the last the whole one."""
    folder = tmp_path / "out"
    write_folder(folder, FIRST, WRITER)
    (folder / "d.csv").write_bytes(b"mine")
    replace, left = Path.replace, renames

    def end(path: Path, target: Path) -> Path:
        nonlocal left
        if not left:
            raise KeyboardInterrupt
        left -= 1
        return replace(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt) if renames < 4 else patch.context():
        patch.setattr(Path, "replace", end)
        write_folder(folder, SECOND, WRITER)
    manifest = json.loads((folder / "run.json").read_bytes())
    assert (UNFINISHED in manifest) is (0 < renames < 4)
    if renames == 0:
        assert content(folder) == FIRST | {"d.csv": b"mine"}
    assert write_folder(folder, SECOND, WRITER).files == tuple(folder / name for name in SECOND)
    assert content(folder) == SECOND | {"d.csv": b"mine"}


@pytest.mark.parametrize("is_new", [True, False])
def test_concurrent_writers_are_serialized(tmp_path: Path, is_new: bool) -> None:  # noqa: FBT001
    folder = tmp_path / "new" / "out" if is_new else tmp_path
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            for each in pool.map(lambda files: write_folder(folder, files, WRITER), (FIRST, SECOND) * 4):
                assert each.files, f"round {number}"
            assert content(folder) in (FIRST, SECOND)


def test_a_lock_that_is_never_released_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdnnsim.files.atomic._PATIENCE_S", 0.03)
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    write_folder(tmp_path / "out", FIRST, WRITER)
    os.close(holder)
    assert content(tmp_path / "out") == FIRST


def test_a_folder_that_cannot_be_written_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OutputError, match="No space left"):
        write_folder(tmp_path / "new" / "out", FIRST, WRITER)
    assert list(tmp_path.iterdir()) == []


def test_a_manifest_without_names_covers_all_that_its_command_may_write(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"test": 1}')
    for name in ("a.csv", "note.txt"):
        (tmp_path / name).touch()
    assert earlier_files(tmp_path, WRITER) == {"run.json", "a.csv"}
    # Versions name what results may depend on.
    assert list(versions()) == ["vdnnsim", "python", "simpy"]
    assert versions()["vdnnsim"] == version("vdnnsim")


def test_failed_removal_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path, FIRST, WRITER)

    def refuse(_path: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OutputError, match=r"b\.csv: cannot be removed: Operation not permitted"):
        write_folder(tmp_path, SECOND, WRITER)


needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="makes a repository")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "module.py").write_text("1\n")
    git = str(shutil.which("git"))
    for command in (
        ("init", "-q"),
        ("add", "package"),
        ("-c", "user.name=n", "-c", "user.email=e", "commit", "-q", "-m", "m"),
    ):
        subprocess.run((git, "-C", str(tmp_path), *command), check=True)
    return folder


@needs_git
def test_the_commit_of_a_source_tree(package: Path) -> None:
    commit = source_commit(package)
    assert commit is not None
    assert (len(commit.hash), commit.modified) == (40, False)
    (package / "new.py").touch()
    (package.parent / "results.csv").touch()
    assert source_commit(package) == commit
    (package / "module.py").write_text("2\n")
    assert source_commit(package) == Commit(commit.hash, modified=True)


@needs_git
def test_a_package_inside_a_repository_of_its_user_has_no_commit(package: Path) -> None:
    installed = package / "site-packages" / "vdnnsim"
    installed.mkdir(parents=True)
    assert source_commit(installed) is None


@needs_git
def test_a_repository_without_a_commit_has_none(package: Path) -> None:
    git = str(shutil.which("git"))
    subprocess.run((git, "-C", str(package), "update-ref", "-d", "HEAD"), check=True)
    assert source_commit(package) is None


def test_no_commit_without_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert source_commit() is None
