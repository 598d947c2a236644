"""The user's cache: folders of files that can be made again, each limited in size."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from vdnnsim.errors import OutputError
from vdnnsim.files.atomic import replace_file

MOST_KEPT_BYTES: Final = 2**30
"""Limit of a folder: some hundred captures of large models."""


def user_cache(name: str) -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vdnnsim" / name


def keep(file: Path, content: bytes) -> None:
    """Write a file if that is possible, and remove the least recently used ones beyond the limit, never this one."""
    with suppress(OutputError, OSError):
        replace_file(file, content)
        used = {each: each.stat() for each in file.parent.glob("*.json") if each != file}
        left = MOST_KEPT_BYTES - file.stat().st_size
        for each in sorted(used, key=lambda other: used[other].st_mtime_ns, reverse=True):
            left -= used[each].st_size
            if left < 0:
                each.unlink(missing_ok=True)
