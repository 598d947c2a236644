import shutil
import subprocess
from pathlib import Path

import pytest

import vdnnsim
from vdnnsim.report.folder import Commit, source_commit, versions

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="makes a repository")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package at the top of a repository with one commit."""
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


def test_versions_name_what_results_may_depend_on() -> None:
    assert list(versions()) == ["vdnnsim", "python", "simpy"]
    assert versions()["vdnnsim"] == vdnnsim.__version__


@needs_git
def test_the_commit_of_a_source_tree(package: Path) -> None:
    commit = source_commit(package)
    assert commit is not None
    assert (len(commit.hash), commit.modified) == (40, False)
    # New files change nothing that was committed, reports among them.
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


def test_no_commit_where_git_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: str(tmp_path / "gone"))
    assert source_commit() is None
