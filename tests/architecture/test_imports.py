"""The direction of imports, and what the command line may load before it knows what it is asked."""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = frozenset({"calibration", "matplotlib", "numpy", "scipy", "simpy", "torch", "yaml"})
HELP_LIMIT_S = 0.3


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


@pytest.mark.slow
def test_help_answers_at_once() -> None:
    def help_s() -> float:
        start_s = time.perf_counter()
        subprocess.run(
            [Path(sys.executable).with_name("vdnnsim"), "--help"], env=environment(), capture_output=True, check=True
        )
        return time.perf_counter() - start_s

    # The best of several, since another worker may hold the core.
    assert min(help_s() for _ in range(7)) < HELP_LIMIT_S
