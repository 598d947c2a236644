"""The version of the model under which results are kept: that of vdnnsim, and a digest of all that decides a result.

    0.1.0+ee4000dc28cd173c

So results of changed code are not mixed with old ones. `run.json` of a study has it as `model`, and the digest of each
part as `model_covers`. All parts count but those of `NOT_COVERED`, of `study` the package `points` alone. A digest is
of the contents of files, not of their names. Scenario, profile, kernel table and a user's policy are in the key of a
point.
"""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

NOT_COVERED: Final = frozenset({"__main__", "api", "claims", "cli", "recordings", "report", "validation"})
"""Packages and modules that decide neither a result nor the words of its error."""

_PACKAGE: Final = Path(__file__).parents[1]
_DIGITS: Final = 16


@cache
def model_version() -> str:
    return version_of(covered_digests())


def version_of(digests: Mapping[str, str]) -> str:
    """Return the version of a model by the digests of its parts."""
    return f"{version('vdnnsim')}+{_digest(sorted(digests.items()))}"


def covered_digests(package: Path = _PACKAGE) -> Mapping[str, str]:
    """Return the digest of each covered part of the package in a folder."""
    parts = {each.name for each in iter_modules([str(package)])} - {"study"} | {"study.points"}
    digests = {}
    for part in sorted(parts - NOT_COVERED):
        path = package.joinpath(*part.split("."))
        files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
        digests[part] = _digest(sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files))
    return digests


def _digest(parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:_DIGITS]
