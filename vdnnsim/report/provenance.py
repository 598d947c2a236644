"""Where results come from: versions of the programs that made them, and the commit of the source tree."""

import json
import platform
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Commit:
    """A state of the source tree.

    Attributes:
        modified: whether tracked files of the package differ from that commit.
    """

    hash: str
    modified: bool


def versions() -> dict[str, str]:
    """Return the versions on which results may depend, by name."""
    return {"vdnnsim": version("vdnnsim"), "python": platform.python_version(), "simpy": version("simpy")}


def manifest(
    version: int, sources: Iterable[tuple[str, str]], said: Mapping[str, object], files: Iterable[str]
) -> bytes:
    """Return the manifest of a folder of files as JSON.

    Args:
        version: of its format.
        sources: name and SHA-256 of each file that was read.
        said: what it says besides of programs, source tree and inputs.
        files: the names of all files, its own among them.
    """
    commit = source_commit()
    content = {
        "format_version": version,
        "versions": versions(),
        "commit": None if commit is None else commit.hash,
        "commit_modified": None if commit is None else commit.modified,
        "inputs": [{"name": name, "sha256": sha256} for name, sha256 in sources],
        **said,
        "files": sorted(files),
    }
    return (json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def source_commit(package: Path = _PACKAGE) -> Commit | None:
    """Return the commit of the source tree at whose top a package stands; None for an installed one or without git."""
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed package may lie somewhere inside a repository of its user, whose commits say nothing about it.
    if top is None or Path(top).resolve() != package.resolve().parent:
        return None
    commit = _git(package, "rev-parse", "HEAD")
    changes = _git(package, "status", "--porcelain", "--untracked-files=no", "--", ".")
    return None if commit is None or changes is None else Commit(commit, modified=bool(changes))


def _git(folder: Path, *arguments: str) -> str | None:
    program = shutil.which("git")
    if program is None:
        return None
    try:
        answer = subprocess.run(  # noqa: S603  # the program is git, the arguments are those above
            (program, "-C", str(folder), *arguments), capture_output=True, text=True, check=True, timeout=_PATIENCE_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()
