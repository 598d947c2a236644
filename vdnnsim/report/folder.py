"""Folders of results: manifests, versions and commits, and the replacement of earlier results."""

import json
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, TypeVar

from vdnnsim.errors import OutputError
from vdnnsim.files.atomic import UNFINISHED, Content, alone_in, replace_file, replace_files
from vdnnsim.files.regular import UnreadableError, read_regular_file
from vdnnsim.units import format_bytes

_PACKAGE = Path(__file__).parents[1]
_PATIENCE_S = 5.0


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit, and whether tracked files of the package differ from it."""

    hash: str
    modified: bool


def versions() -> dict[str, str]:
    """Return the versions on which results depend, by name."""
    return {"vdnnsim": version("vdnnsim"), "python": platform.python_version(), "simpy": version("simpy")}


def manifest(
    version: int, sources: Iterable[tuple[str, str]], said: Mapping[str, object], files: Iterable[str]
) -> bytes:
    """Return a manifest as JSON: format, versions, commit, inputs with SHA-256, results, names of all files."""
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
    """Return the commit of the source tree of a package; None for an installed one or without git."""
    top = _git(package, "rev-parse", "--show-toplevel")
    # An installed package may lie inside an unrelated repository of its user.
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


_LARGEST_BYTES: Final = 64 * 2**20
_LARGE_BYTES: Final = 10 * 2**20
"""Size of a folder from which it is told."""
QUESTION: Final = "question"
Drawn = TypeVar("Drawn")
"""Key of a manifest: workload and machine in a line."""


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes folders of results.

    Attributes:
        files: those of every folder, of which the JSON is the manifest.
        wrote: whether the content of a manifest is of this command.
        others: pattern of its other files; further names in a manifest are ignored, and one without names, as of older
            versions, covers all files that match.
        version: of the manifest; raised when a key is renamed or removed.
    """

    noun: str
    files: tuple[str, ...]
    wrote: Callable[[Mapping[str, Any]], bool]
    others: str = ""
    version: int = 1

    @classmethod
    def of(cls, noun: str, files: tuple[str, ...], *keys: str, others: str = "", version: int = 1) -> "Writer":
        """Return a writer whose manifests have these keys."""
        return cls(noun, files, lambda content: content.keys() >= set(keys), others, version)

    @property
    def manifest(self) -> str:
        return next(name for name in self.files if name.endswith(".json"))

    def writes(self, name: str) -> bool:
        return name in self.files or re.fullmatch(self.others, name) is not None

    def with_manifest(
        self, sources: Iterable[tuple[str, str]], said: Mapping[str, object], contents: Mapping[str, str | bytes]
    ) -> dict[str, bytes]:
        """Return files, with what their manifest says of them."""
        files = {name: each.encode() if isinstance(each, str) else each for name, each in contents.items()}
        return {self.manifest: manifest(self.version, sources, said, (*files, self.manifest)), **files}


@dataclass(frozen=True, slots=True)
class Written:
    """Paths written, their bytes, and the number of older files removed.

    Attributes:
        is_other: whether the report that was there answered another question.
    """

    files: tuple[Path, ...]
    nbytes: int
    removed: int
    is_other: bool = False

    def notice(self, folder: Path, first: str) -> str:
        """Return what was written, and in place of what; `first` is the file to read first."""
        size = f" ({format_bytes(self.nbytes)})" if self.nbytes > _LARGE_BYTES else ""
        removed = f", removed {self.removed} of an earlier report" if self.removed else ""
        what = f"{len(self.files)} files{size}{removed}{',' * bool(removed)}"
        replaced = ", replacing another question's (--out DIR keeps both)" if self.is_other else ""
        return f"wrote {what} to {folder}/{replaced}; read {folder / first} first"


def earlier_files(folder: Path, writer: Writer) -> frozenset[str]:
    content = _manifest(folder / writer.manifest)
    if content is None or not writer.wrote(content):
        return frozenset()
    names = content.get("files", [path.name for path in folder.iterdir()])
    if not isinstance(names, list):
        return frozenset()
    texts = (name for name in names if isinstance(name, str))
    return frozenset((writer.manifest, *filter(writer.writes, texts)))


def question_in(folder: Path, writer: Writer) -> str:
    """Return the question that a report of an earlier command answers; empty where there is none."""
    found = (_manifest(folder / writer.manifest) or {}).get(QUESTION)
    return found if isinstance(found, str) else ""


def refuse_foreign(folder: Path, names: Iterable[str], writer: Writer) -> None:
    """Raise OutputError where one of these files exists and is not from an earlier command of the same kind."""
    ours = earlier_files(folder, writer)
    for name in names:
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()):
            raise OutputError(f"{path}: was not written by an earlier {writer.noun}; move it away, or write elsewhere")


def write_folder(folder: Path, files: Mapping[str, Content], writer: Writer) -> Written:
    """Replace the files of an earlier command; the manifest is among them.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier command.
    """
    with alone_in(folder):
        refuse_foreign(folder, files, writer)
        ours, manifest = earlier_files(folder, writer), files[writer.manifest]
        assert isinstance(manifest, bytes), "a manifest is short"
        before = question_in(folder, writer)
        unfinished = _unfinished(manifest, ours | files.keys(), writer.noun)
        others = {name: content for name, content in files.items() if name != writer.manifest}
        replace_files(folder, others, {writer.manifest: unfinished})
        removed = _remove(folder, sorted(ours - files.keys()))
        replace_file(folder / writer.manifest, manifest)
        paths = tuple(folder / name for name in files)
        is_other = before not in ("", json.loads(manifest).get(QUESTION))
        return Written(paths, sum(path.stat().st_size for path in paths), removed, is_other)


def write_drawn(
    folder: Path,
    draw: Callable[[], Mapping[str, Drawn]],
    files: Callable[[Mapping[str, Drawn]], Mapping[str, Content]],
    writer: Writer,
) -> Written:
    """Write files with their pictures by name; where these cannot be drawn, all else before that is raised."""
    try:
        pictures = draw()
    except Exception:
        write_folder(folder, files({}), writer)
        raise
    return write_folder(folder, files(pictures), writer)


def _manifest(path: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(read_regular_file(path, _LARGEST_BYTES, "expected a manifest"))
    except (UnreadableError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _unfinished(manifest: bytes, names: Collection[str], noun: str) -> bytes:
    """Return the new manifest marked as unfinished, for the time in which files are replaced."""
    said = f"a {noun} was writing these files; some of them may be older. The same command writes them anew"
    content = {UNFINISHED: said, **json.loads(manifest), "files": sorted(names)}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _remove(folder: Path, names: Iterable[str]) -> int:
    removed = 0
    for name in names:
        path = folder / name
        try:
            if path.is_file() or path.is_symlink():
                path.unlink()
                removed += 1
        except OSError as failure:
            raise OutputError(f"{path}: cannot be removed: {failure.strerror or failure}") from failure
    return removed
