"""What an earlier run left in a folder, by its own word: the files that its `run.json` names.

A folder is that of one run. Only what an earlier run wrote there is replaced or removed; whatever else is there comes
from somebody else.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from vdnnsim.errors import OutputError
from vdnnsim.report.perfetto import BEGINNING

MANIFEST: Final = "run.json"
ALWAYS: Final = (MANIFEST, "results.csv", "report.md", "policies.png", "memory.png", "timeline.png")
"""What every run writes, whatever its policies are."""

_OF_POLICIES: Final = re.compile(r"trace_[\w.]+\.json|(gpus|links)_[\w.]+\.png")
"""Names that a run gives to its other files; a manifest that names yet others is not believed."""

_LARGEST_BYTES: Final = 64 * 2**20


def earlier_files(folder: Path) -> frozenset[str]:
    """Return the names of the files that an earlier run wrote into a folder; none where there was none."""
    path = folder / MANIFEST
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_BYTES:
            return frozenset()
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    # A sweep writes a file of this name as well, but it has no scenario.
    if not isinstance(content, dict) or not {"format_version", "scenario", "results"} <= content.keys():
        return frozenset()
    names = content.get("files")
    if not isinstance(names, list):
        return frozenset()
    texts = (name for name in names if isinstance(name, str))
    return frozenset(name for name in texts if name in ALWAYS or _OF_POLICIES.fullmatch(name))


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Refuse to write over what no earlier run wrote.

    Raises:
        OutputError: a file of one of these names is there, and no earlier run says that it is its own; nor is it a
            trace that a run before that has left, as those of older versions did.
    """
    ours = earlier_files(folder)
    for name in names:
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()) and not (ours and _is_trace(path)):
            raise OutputError(f"{path}: was not written by an earlier run; move it away, or write elsewhere")


def _is_trace(path: Path) -> bool:
    beginning = BEGINNING.encode()
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def remove_outdated(folder: Path, names: Iterable[str]) -> int:
    """Remove files of an earlier run; return how many.

    Raises:
        OutputError: one of them cannot be removed.
    """
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
