"""The import contracts, and packages that the command line must not import at start."""

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HEAVY = frozenset({"calibration", "jinja2", "matplotlib", "numpy", "pandas", "rich", "scipy", "simpy", "torch", "yaml"})
"""Together they take a third of a second to import; `make bench` has the time of `--help`."""


def run(command: list[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Run a command at the root, without the variables that coverage and pytest set for their own processes."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_import_contracts_are_kept() -> None:
    result = run([Path(sys.executable).with_name("lint-imports"), "--no-cache"])
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_command_line_loads_nothing_heavy() -> None:
    code = "import sys, vdnnsim.cli; print(sorted({name.partition('.')[0] for name in sys.modules}))"
    assert HEAVY.isdisjoint(ast.literal_eval(run([sys.executable, "-c", code]).stdout))
