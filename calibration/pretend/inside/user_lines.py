"""The user's own line of code in a stack: neither of the standard library, nor of an installed package."""

import os
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

_INSTALLED = tuple(
    f"{path}/" for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_CALIBRATION = Path(__file__).resolve().parents[2]
_NOT_OWN = (
    *(f"{_CALIBRATION}/{each}/" for each in ("pretend/inside", "apply", "capture")),
    os.environ.get("TORCHINDUCTOR_CACHE_DIR", f"{tempfile.gettempdir()}/torchinductor_"),
    "<",
)
"""Code of the recorder, of applied plans and of Inductor, which is called within a program."""
_NOT_SHOWN = ("torch/", "torch\\")


def user_line_here() -> str:
    """Return `file:line` of the innermost running line of the user's own code; empty where there is none."""
    return user_line(_frames(sys._getframe(1)))  # noqa: SLF001  # what inspect.currentframe is made of


def is_called_from(*parts: str) -> bool:
    """Return whether the innermost running Python code beyond this package is in one of some folders."""
    files = (file for file, _ in _frames(sys._getframe(1)) if not file.startswith(_NOT_OWN))  # noqa: SLF001
    innermost = next(files, "")
    return any(part in innermost for part in parts)


def user_line_of(frames: Iterable[Mapping[str, Any]]) -> str:
    """Return the same for frames of PyTorch's memory history, innermost first."""
    return user_line((each["filename"], each["line"]) for each in frames)


def user_line(frames: Iterable[tuple[str, int]]) -> str:
    """Return the innermost line of the user's own; where there is none, the innermost of a package beyond PyTorch.

    Frames are a file and a line each, innermost first.
    """
    other = ""
    for file, line in frames:
        if file.startswith(_NOT_OWN) or not file:
            continue
        if not file.startswith(_INSTALLED):
            return f"{file}:{line}"
        package = file.rpartition("-packages/")[2] if "-packages/" in file else ""
        if not other and package and not package.startswith(_NOT_SHOWN):
            other = f"{file}:{line}"
    return other


def _frames(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
