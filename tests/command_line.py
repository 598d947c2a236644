"""The command line run within a test's process, and a small scenario for it."""

import csv
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from vdnnsim.cli import main

ROOT = Path(__file__).parents[1]
SMALL = """
schema_version: 1
workload: {network: alexnet, batch_size: 8, element_type: float32}
hardware: titan_x_maxwell
policies: [base(p), vdnn_all(m)]
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def vdnnsim(*arguments: str, folder: Path = Path(), status: int | None = 0) -> Done:
    """Run the command in this process, from another folder than the source tree; it ends with this status, if any."""
    stdout, stderr = StringIO(), StringIO()
    path = list(sys.path)
    with chdir(folder), redirect_stdout(stdout), redirect_stderr(stderr), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["vdnnsim", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
    sys.path[:] = path
    # What ends with a word, as Ctrl-C does, is exit status 1.
    code = end.value.code
    done = Done(code if isinstance(code, int) else int(code is not None), stdout.getvalue(), stderr.getvalue())
    assert status in (None, done.returncode), done
    return done


def csv_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
