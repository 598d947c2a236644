"""The version of the model under which results are kept: that of vdnnsim, and a digest of all that decides a result.

    0.1.0+ee4000dc28cd173c

Whoever changes the model without a new number of its version would otherwise mix old results with new ones. `run.json`
of a study states it as `model`, and as `model_covers` the digest of each part; so of two studies it shows which parts
of the model differ.

Covered is all that is not named as no part of it, of `study` the package `points` alone. A digest is of the contents of
a part's files, whatever these are called. What a point reads (its scenario, profile, kernel table, a policy of the
user's own) is no part of the model; it is in the key of the point.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

NOT_COVERED: Final[Mapping[str, str]] = {
    "__main__": "asks, and shows results",
    "api": "asks, and shows results",
    "claims": "holds results against papers",
    "cli": "asks, and shows results",
    "recordings": "reads what others recorded",
    "report": "shows results",
    "validation": "holds results against a device",
}
"""Packages and modules of vdnnsim that decide no result, nor how its error reads, and what they do instead."""

_PACKAGE: Final = Path(__file__).parents[1]
_DIGITS: Final = 16


@cache
def model_version() -> str:
    """Return the version."""
    return version_of(covered_digests())


def version_of(digests: Mapping[str, str]) -> str:
    """Return the version of a model whose parts have these digests."""
    return f"{version('vdnnsim')}+{_digest(sorted(digests.items()))}"


def covered_digests(package: Path = _PACKAGE) -> Mapping[str, str]:
    """Return the digest of each part that is covered, of vdnnsim as it stands in a folder."""
    parts = {each.name for each in iter_modules([str(package)])} - {"study"} | {"study.points"}
    digests = {}
    for part in sorted(parts - NOT_COVERED.keys()):
        path = package.joinpath(*part.split("."))
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        digests[part] = _digest(sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
    return digests


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:_DIGITS]
