"""`report.md`: what was run, what came of it, and how to read the numbers."""

from collections import Counter
from collections.abc import Iterable, Mapping

from vdnnsim.analysis.columns import COLUMNS, RUN
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.hardware.server import Origin
from vdnnsim.report import markdown
from vdnnsim.report.budgets import budgets
from vdnnsim.report.caveats import (
    capture_lines,
    contention_lines,
    glossary,
    kernel_times,
    part_statistics,
    remarks,
    without_plan,
)
from vdnnsim.report.certificates import certificates
from vdnnsim.report.findings import caption, conclusions, refusals
from vdnnsim.report.tables.summary import FOOTNOTE, summary
from vdnnsim.report.trials import profiling


def page_text(
    result: ScenarioResult, pictures: Mapping[str, str], traces: Iterable[str], snapshots: Iterable[str] = ()
) -> str:
    """Return the report.

    Args:
        result: what came of the scenario.
        pictures: file name and one-line description of each picture, in order.
        traces: file names of the traces for Perfetto.
        snapshots: file names of the memory snapshots.
    """
    columns = summary(result)
    notes = [] if all(each.fits for each in result.results) else [FOOTNOTE]
    notes += [*kernel_times(result.kernels), *capture_lines(result.captured), *part_statistics(result)]
    return markdown.page(
        (
            markdown.heading(result.name, 1),
            markdown.escape(". ".join((caption(result), *remarks(result.workload))) + "."),
            markdown.bullets(glossary(row.policy for row in result.slowest)),
            *map(markdown.escape, (*conclusions(result), budgets(result))),
            markdown.table(
                [column.title for column in columns],
                zip(*(column.cells for column in columns), strict=True),
                left=sum(column.is_text for column in columns),
            ),
            *(markdown.escape(f"{note}.") for note in notes),
            *(markdown.image(text, name) for name, text in pictures.items()),
            *markdown.section("What do the GPUs do to each other?", contention_lines(result)),
            *markdown.section("How near is it to the best possible, and why?", certificates(result)),
            *markdown.section("Why does a policy not fit?", refusals(result)),
            *markdown.section("Which policies have no plan?", without_plan(result)),
            *markdown.section("What would make it fit?", result.advice),
            *markdown.section("What did it cost to decide?", profiling(result)),
            *markdown.section("Where do the numbers come from?", _sources(result)),
            markdown.heading("What do the columns of results.csv mean?"),
            markdown.definitions((name, COLUMNS[name].documented(result.gpus)) for name in RUN),
            *markdown.section(
                "What else is here?",
                (
                    "results.csv: one row per policy and GPU; sizes in bytes, times in seconds",
                    "run.json: versions, inputs with their hashes, every figure of the profile, every metric",
                    *(f"{name}: a timeline to open at https://ui.perfetto.dev" for name in traces),
                    *(f"{name}: PyTorch's allocator, to open at https://pytorch.org/memory_viz" for name in snapshots),
                ),
            ),
        )
    )


def _sources(result: ScenarioResult) -> tuple[str, ...]:
    counts = Counter(figure.origin for figure in result.server.figures)
    origins = ", ".join(f"{counts[origin]} {origin.value}" for origin in Origin if counts[origin]) or "none"
    return (
        f"figures of the hardware profile {result.server.name} by origin: {origins}; run.json has each with its source",
        "times are simulated; the iteration follows the plan of each policy operation by operation",
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in result.sources),
    )
