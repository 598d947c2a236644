"""Lists lines and branches that no test ran, and fails if there are too many: `python -m tests.covered`.

Branches out of lines with `# pragma: no branch`, as of a `match` that names every case, are not expected.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

import click

FOUND: Final = Path(".coverage.json")
LEAST_PERCENT: Final = 95.0
"""Of all lines and branches."""
COMPLETE: Final = tuple(f"vdnnsim/{room}/" for room in ("plans", "planning", "policies", "engine", "analysis"))
"""Rooms of which every line and branch is run."""


def missed(name: str, file: dict[str, Any]) -> str:
    """Return the lines that were not run, and the branches as `from->to`."""
    text = Path(name).read_text(encoding="utf-8").splitlines()
    branches = [each for each in file["missing_branches"] if "# pragma: no branch" not in text[each[0] - 1]]
    return ", ".join([*map(str, file["missing_lines"]), *(f"{start}->{end or 'exit'}" for start, end in branches)])


def main() -> int:
    found = json.loads(FOUND.read_text(encoding="utf-8"))
    incomplete = {name: what for name, file in sorted(found["files"].items()) if (what := missed(name, file))}
    for name, what in incomplete.items():
        click.echo(f"{name}: {what}")
    percent, short = found["summary"]["percent_covered"], [each for each in incomplete if each.startswith(COMPLETE)]
    click.echo(f"{percent:.2f} % of all lines and branches were run, expected {LEAST_PERCENT:g}")
    if short:
        click.echo(f"expected every line and branch of {', '.join(short)}")
    return int(percent < LEAST_PERCENT or bool(short))


if __name__ == "__main__":
    sys.exit(main())
