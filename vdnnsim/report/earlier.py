"""What an earlier command wrote into a folder, by the word of the manifest that it left there.

Only that is replaced; whatever else is there comes from somebody else.
"""

import json
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

from vdnnsim.errors import OutputError

_LARGEST_BYTES: Final = 64 * 2**20


def named_files(manifest: Path, keys: AbstractSet[str]) -> frozenset[str]:
    """Return the names that a manifest says to be of files beside it; none where it is no manifest with these keys."""
    try:
        if not manifest.is_file() or manifest.stat().st_size > _LARGEST_BYTES:
            return frozenset()
        content = json.loads(manifest.read_bytes())
    except (OSError, ValueError, RecursionError):
        return frozenset()
    if not isinstance(content, dict) or not keys <= content.keys():
        return frozenset()
    names = content.get("files")
    return frozenset(name for name in names if isinstance(name, str)) if isinstance(names, list) else frozenset()


def refuse_others(folder: Path, names: Iterable[str], ours: AbstractSet[str]) -> None:
    """Refuse to write over what is not ours.

    Raises:
        OutputError: a file of one of these names is there and is none of ours.
    """
    for name in names:
        path = folder / name
        if name not in ours and (path.exists() or path.is_symlink()):
            raise OutputError(f"{path}: was not written by an earlier run; move it away, or write elsewhere")
