"""Checked claims as a table."""

from collections.abc import Sequence

from vdnnsim.claims.row import ClaimCount, ClaimRow

COLUMNS = ("id", "where", "metric", "expected", "simulated", "error", "verdict", "reason", "scenario")
"""Columns of `vdnnsim claims`; the terminal leaves the last one to the CSV."""


def cells(row: ClaimRow) -> tuple[str, ...]:
    """One row in the order of the columns."""
    verdict = row.verdict.value
    return row.id, row.where, row.metric, row.expected, row.simulated, row.error, verdict, row.reason, row.scenario


def summary(rows: Sequence[ClaimRow]) -> str:
    """Return one line: how many claims and numbers of tables come out, and which rows differ from what is recorded."""
    count = ClaimCount.of(rows)
    text = f"{count}; {count.met} of {count.numbers} numbers of its tables" if count.numbers else str(count)
    moved = [row for row in rows if row.verdict is not row.recorded]
    if moved:
        text += "; other than recorded: " + ", ".join(f"{row.id} ({row.verdict.value})" for row in moved)
    return text
