"""The version of the model: of vdnnsim, and of every line that decides a result.

Whoever changes the model without a new number of its version would otherwise mix old results with new ones.
"""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from vdnnsim import __version__

_NO_RESULT: Final = frozenset({"cli", "report", "claims", "validation", "__pycache__"})
"""Parts that show results, or hold them against others."""

_OF_STUDIES: Final = frozenset({"compute.py", "kept.py", "machine.py", "outcome.py", "resolve.py"})
"""Modules of this package that decide a result; the others ask for it, keep it or show it."""


@cache
def model_version() -> str:
    """Return the version and a digest of the source."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        asks = name.parts[0] == "study" and name.name not in _OF_STUDIES
        if name.parts[0] not in _NO_RESULT and not asks:
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:16]}"
