"""Folders of results, each of which is one command's: what an earlier one wrote there is replaced or removed.

Its manifest says which files are its own; whatever else is in a folder comes from somebody else and stays. A command
that is killed while it replaces files leaves a manifest with the key `unfinished`, and the same command goes on there.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from vdnnsim.errors import OutputError
from vdnnsim.files.atomic import UNFINISHED, Content, alone_in, replace_file, replace_files
from vdnnsim.files.regular import UnreadableError, read_regular_file

_LARGEST_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes folders of results.

    Attributes:
        noun: for messages, as in "an earlier run".
        manifest: name of the file that says what else is its own; JSON.
        wrote: says of the content of such a file whether this command wrote it.
        names: what it may call its files; a manifest that names yet others is not believed. One that names none, as
            those of older versions, speaks for all that may be called so.
    """

    noun: str
    manifest: str
    wrote: Callable[[Mapping[str, Any]], bool]
    names: re.Pattern[str]

    @classmethod
    def of(cls, noun: str, files: Sequence[str], *keys: str) -> "Writer":
        """Return one that writes always the same files, the manifest first, which has these keys."""
        return cls(
            noun, files[0], lambda content: content.keys() >= set(keys), re.compile("|".join(map(re.escape, files)))
        )


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a folder.

    Attributes:
        files: the paths of what was written.
        nbytes: of all of them.
        removed: how many files of an earlier command are no longer there.
    """

    files: tuple[Path, ...]
    nbytes: int
    removed: int


def earlier_files(folder: Path, writer: Writer) -> frozenset[str]:
    """Return the names of the files that an earlier command wrote into a folder; none where there was none."""
    content = _manifest(folder / writer.manifest)
    if content is None or not writer.wrote(content):
        return frozenset()
    names = content.get("files", [path.name for path in folder.iterdir()])
    if not isinstance(names, list):
        return frozenset()
    texts = (name for name in names if isinstance(name, str))
    return frozenset((writer.manifest, *(name for name in texts if writer.names.fullmatch(name))))


def refuse_foreign(folder: Path, names: Iterable[str], writer: Writer) -> None:
    """Refuse to write over what no earlier command of the same kind wrote.

    Raises:
        OutputError: a file of one of these names is there, and no earlier command says that it is its own.
    """
    ours = earlier_files(folder, writer)
    for name in names:
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()):
            raise OutputError(f"{path}: was not written by an earlier {writer.noun}; move it away, or write elsewhere")


def write_folder(folder: Path, files: Mapping[str, Content], writer: Writer) -> Written:
    """Write files, the manifest among them, in the place of those of an earlier command.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier command.
    """
    with alone_in(folder):
        refuse_foreign(folder, files, writer)
        ours, manifest, removed = earlier_files(folder, writer), files[writer.manifest], 0
        if not folder.exists():
            paths = replace_files(folder, files)
        else:
            assert isinstance(manifest, bytes), "a manifest is short"
            meanwhile = _unfinished(manifest, ours | files.keys(), writer.noun)
            others = {name: content for name, content in files.items() if name != writer.manifest}
            replace_files(folder, others, {writer.manifest: meanwhile})
            removed = _remove(folder, sorted(ours - files.keys()))
            replace_file(folder / writer.manifest, manifest)
            paths = tuple(folder / name for name in files)
        # Before another command replaces them.
        return Written(paths, sum(path.stat().st_size for path in paths), removed)


def _manifest(path: Path) -> Mapping[str, Any] | None:
    """Return what a manifest says; None where there is none, or something else."""
    try:
        content = json.loads(read_regular_file(path, _LARGEST_BYTES, "expected a manifest"))
    except (UnreadableError, ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _unfinished(manifest: bytes, names: Collection[str], noun: str) -> bytes:
    """Return what stands while files are replaced: the manifest to come, which says so of all that are concerned."""
    said = f"a {noun} was writing these files; some of them may be older. The same command writes them anew"
    content = {UNFINISHED: said, **json.loads(manifest), "files": sorted(names)}
    return (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode()


def _remove(folder: Path, names: Iterable[str]) -> int:
    """Remove files of an earlier command; return how many."""
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
