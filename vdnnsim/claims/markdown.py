"""Checked claims in Markdown, for the page of any paper."""

from collections.abc import Iterable, Sequence

from vdnnsim.claims.claim import Verdict
from vdnnsim.claims.row import ClaimRow

_COLUMNS = ("claim", "where", "metric", "paper", "replay", "error", "verdict")


def claims_table(rows: Sequence[ClaimRow]) -> str:
    """Return every row: what the paper states, what the replay shows, the verdict."""
    texts = ((row.id, row.where, row.metric, row.expected, row.simulated, row.error) for row in rows)
    cells = ((*map(escape, text), _verdict(row.verdict)) for text, row in zip(texts, rows, strict=True))
    return markdown_table(_COLUMNS, cells)


def reasons(rows: Sequence[ClaimRow]) -> tuple[str, ...]:
    """Return a section with the reason of each row that has one; nothing where none has."""
    lines = [f"- `{row.id}` ({_verdict(row.verdict)}): {escape(row.reason)}" for row in rows if row.reason]
    return ("### Why, and what to know of them", "\n".join(lines)) if lines else ()


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> str:
    """Return a table of texts that are ready for Markdown; the first `left` columns read from the left, or all."""
    rule = ["---" if left is None or number < left else "---:" for number in range(len(columns))]
    lines = [columns, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """Return a text without meaning in Markdown."""
    for character in "\\|*<":
        text = text.replace(character, f"\\{character}")
    return text


def _verdict(verdict: Verdict) -> str:
    return "**not reproduced**" if verdict is Verdict.NOT_REPRODUCED else verdict.value
