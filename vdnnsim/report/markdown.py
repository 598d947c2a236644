"""`report.md`: what was run, what came of it, and how to read the numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.hardware.server import Origin
from vdnnsim.report.columns import COLUMNS
from vdnnsim.report.findings import caption, profiling, refusals, verdict
from vdnnsim.report.kernel_times import kernel_times
from vdnnsim.report.part_statistics import part_statistics
from vdnnsim.report.summary import FOOTNOTE, summary
from vdnnsim.report.summary_columns import SummaryColumn
from vdnnsim.report.together import together


def markdown_text(result: ScenarioResult, pictures: Mapping[str, str], traces: Iterable[str]) -> str:
    """Return the report.

    Args:
        result: what came of the scenario.
        pictures: file name and one-line description of each picture, in order.
        traces: file names of the traces for Perfetto.
    """
    fits = all(each.fits for each in result.results)
    sections = [
        f"# {_escape(result.name)}",
        _escape(caption(result)) + ".",
        _escape(verdict(result)),
        _table(summary(result)),
        *([] if fits else [_escape(FOOTNOTE) + "."]),
        *(_escape(line) + "." for line in (*kernel_times(result.kernels), *part_statistics(result))),
        *(f"![{_escape(text)}]({name})" for name, text in pictures.items()),
        *_listed("What do the GPUs do to each other?", together(result)),
        *_listed("Why does a policy not fit?", refusals(result)),
        *_listed("What did it cost to decide?", profiling(result)),
        *_listed("Where do the numbers come from?", _sources(result)),
        "## What do the columns of results.csv mean?",
        "\n".join(f"- `{column.name}`: {_escape(column.meaning)}" for column in COLUMNS),
        *_listed(
            "What else is here?",
            (
                "results.csv: one row per policy and GPU; sizes in bytes, times in seconds",
                "run.json: versions, inputs with their hashes, every figure of the profile, every metric",
                *(f"{name}: a timeline to open at https://ui.perfetto.dev" for name in traces),
            ),
        ),
    ]
    return "\n\n".join(sections) + "\n"


def _table(columns: tuple[SummaryColumn, ...]) -> str:
    header = [column.title for column in columns]
    rule = ["---" if column.is_text else "---:" for column in columns]
    rows = zip(*(column.cells for column in columns), strict=True)
    cells = (header, rule, *([_escape(cell) for cell in row] for row in rows))
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _listed(question: str, lines: tuple[str, ...]) -> tuple[str, ...]:
    """Return a section with one item per line, or no section where there is nothing to say."""
    return (f"## {question}", "\n".join(f"- {_escape(line)}" for line in lines)) if lines else ()


def _sources(result: ScenarioResult) -> tuple[str, ...]:
    counts = Counter(figure.origin for figure in result.server.figures)
    origins = ", ".join(f"{counts[origin]} {origin.value}" for origin in Origin if counts[origin]) or "none"
    return (
        f"figures of the hardware profile {result.server.name} by origin: {origins}; run.json has each with its source",
        "times are simulated; the iteration follows the plan of each policy operation by operation",
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in result.sources),
    )


def _escape(text: str) -> str:
    for character in "\\|*<":
        text = text.replace(character, f"\\{character}")
    return text
