"""`vdnnsim pretend` as its users run it, on small programs."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


MAIN = "from vdnnsim.cli import main; main()"


@dataclass(frozen=True)
class Done:
    """Output and files of the command."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def told(self) -> str:
        """The table and the sentences, however their lines are broken."""
        return " ".join(self.stdout.split())

    @property
    def record(self) -> dict[str, Any]:
        manifest = json.loads((self.folder / "run.json").read_text())
        (process,) = manifest["processes"]
        assert isinstance(process, dict)
        return process


class Pretend:
    """Runs a program on a pretended RTX 3090: 23.7 GiB; its context takes 488 MiB."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, program: str, *options: str, launcher: tuple[str, ...] = ()) -> Done:
        script, out = self._folder / "train.py", self._folder / "out"
        script.write_text(program)
        where = ("--hardware", "rtx_3090", "--out", str(out))
        done = run(self._folder, "-c", MAIN, "pretend", *where, *options, "--", sys.executable, *launcher, str(script))
        return Done(done.returncode, done.stdout, done.stderr, out)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the GPU that this test runs on; the command brings its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VDNNSIM_PRETEND", "LD_PRELOAD"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=kept | {"PYTHONPATH": str(ROOT)},
    )
