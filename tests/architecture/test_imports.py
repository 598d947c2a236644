"""The direction of imports, and what the command line may load before it knows what it is asked."""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = frozenset({"calibration", "jinja2", "matplotlib", "numpy", "pandas", "rich", "scipy", "simpy", "torch", "yaml"})
"""What `--help` would take a third of a second longer with; `make bench` has its time."""


def environment() -> dict[str, str]:
    """The environment without what coverage and pytest put into it for their own processes."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}


def test_import_contracts_are_kept() -> None:
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_command_line_loads_nothing_heavy() -> None:
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys, vdnnsim.cli; print(sorted({name.partition('.')[0] for name in sys.modules}))",
        ],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert HEAVY.isdisjoint(ast.literal_eval(loaded))
