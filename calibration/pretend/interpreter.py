"""Which Python a command runs in, and where that one finds packages: PyTorch may be another environment's."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from vdnnsim.errors import InputError

_PATIENCE_S: Final = 60.0
_ASK: Final = "import json, sys; print(json.dumps(sys.path))"


def package_folders(program: str) -> list[str]:
    """Return where the Python behind a program looks for packages.

    It is the program itself if that is a Python, or the one that a script names in its first line, as `torchrun` and
    `accelerate` do; else this one.

    Raises:
        InputError: there is no such program, or its Python does not answer.
    """
    found = shutil.which(program)
    if found is None:
        raise InputError(f"{program}: there is no such program; a command begins with one: -- python train.py")
    python = _python_behind(Path(found))
    if python is None:
        return sys.path
    try:
        # -I would leave out what PYTHONPATH adds, which the command sees.
        told = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True, timeout=_PATIENCE_S)  # noqa: S603
        return [str(each) for each in json.loads(told.stdout.splitlines()[-1])]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        raise InputError(f"{program}: its Python, {python}, does not say where it finds packages") from None


def _python_behind(program: Path) -> str | None:
    if program.name.startswith("python"):
        return str(program)
    with program.open("rb") as file:
        first = file.readline(512).decode(errors="replace")
    words = first[2:].split() if first.startswith("#!") else []
    if len(words) > 1 and Path(words[0]).name == "env":
        words = words[1:]
    if words and Path(words[0]).name.startswith("python"):
        return shutil.which(words[0])
    return None
