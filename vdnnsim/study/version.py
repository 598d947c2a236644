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


@cache
def model_version() -> str:
    """Return the version and a digest of the source."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if name.parts[0] not in _NO_RESULT:
            digest.update(f"{name.as_posix()}\0".encode() + path.read_bytes())
    return f"{__version__}+{digest.hexdigest()[:16]}"
