"""What was run, what came of it, and how to read the numbers: in brief for a terminal, and as a page, `report.md`."""

from collections import Counter
from collections.abc import Iterable, Mapping

from vdnnsim.analysis.columns import COLUMNS, RUN
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.hardware.server import Origin
from vdnnsim.report import markdown
from vdnnsim.report.budgets import budgets
from vdnnsim.report.caveats import contention_lines, glossary, known, remarks, without_plan
from vdnnsim.report.certificates import certificates
from vdnnsim.report.document import Block, Bullets, Definitions, Document, Heading, Note, Picture, Prose, section
from vdnnsim.report.findings import caption, conclusions, refusals
from vdnnsim.report.tables.summary import FOOTNOTE, summary
from vdnnsim.report.trials import profiling


def result_table(result: ScenarioResult) -> Document:
    """Return the results of a scenario in brief: a caption, the table, what it says, and why rows do not fit."""
    said = *conclusions(result), budgets(result), *certificates(result), *known(result), *contention_lines(result)
    refused = *refusals(result), *without_plan(result), *profiling(result)
    return Document(
        (
            Heading(caption(result)),
            *map(Note, remarks(result.workload)),
            summary(result),
            *map(Note, (*glossary(row.policy for row in result.slowest), *footnotes(result))),
            Bullets((*said, *refused)),
            *section("What would make it fit?", result.advice),
        )
    )


def page_text(
    result: ScenarioResult, pictures: Mapping[str, str], traces: Iterable[str], snapshots: Iterable[str] = ()
) -> str:
    """Return the report as Markdown: its pictures by file name with what each says, in their order."""
    notes = (f"{note}." for note in (*footnotes(result), *known(result)))
    return markdown.page(
        (
            Heading(result.name, 1),
            Prose(". ".join((caption(result), *remarks(result.workload))) + "."),
            Bullets(tuple(glossary(row.policy for row in result.slowest))),
            *map(Prose, (*conclusions(result), budgets(result))),
            summary(result),
            *map(Note, notes),
            *(Picture(text, name) for name, text in pictures.items()),
            *section("What would make it fit?", result.advice),
            *questions(result),
            *section("Where do the numbers come from?", sources(result)),
            *columns(result),
            *section(
                "What else is here?",
                (
                    "report.html: the same to look into, in a browser",
                    "results.csv: one row per policy and GPU; sizes in bytes, times in seconds",
                    "run.json: versions, inputs with their hashes, every figure of the profile, every metric",
                    *(f"{name}: a timeline to open at https://ui.perfetto.dev" for name in traces),
                    *(f"{name}: PyTorch's allocator, to open at https://pytorch.org/memory_viz" for name in snapshots),
                ),
            ),
        )
    )


def questions(result: ScenarioResult) -> tuple[Block, ...]:
    """Return what else there is to say, as answers to a reader's questions."""
    return (
        *section("What do the GPUs do to each other?", contention_lines(result)),
        *section("How near is it to the best possible, and why?", certificates(result)),
        *section("Why does a policy not fit?", refusals(result)),
        *section("Which policies have no plan?", without_plan(result)),
        *section("What did it cost to decide?", profiling(result)),
    )


def columns(result: ScenarioResult) -> tuple[Block, ...]:
    """Return what the columns of the CSV mean."""
    meanings = tuple((name, COLUMNS[name].documented(result.gpus)) for name in RUN)
    return Heading("What do the columns of results.csv mean?"), Definitions(meanings)


def sources(result: ScenarioResult) -> tuple[str, ...]:
    """Return where the numbers come from: figures by origin, and the files that were read."""
    counts = Counter(figure.origin for figure in result.server.figures)
    origins = ", ".join(f"{counts[origin]} {origin.value}" for origin in Origin if counts[origin]) or "none"
    return (
        f"figures of the hardware profile {result.server.name} by origin: {origins}; run.json has each with its source",
        "times are simulated; the iteration follows the plan of each policy operation by operation",
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in result.sources),
    )


def footnotes(result: ScenarioResult) -> tuple[str, ...]:
    """Return what the star of the table means, where it stands."""
    return () if all(each.fits for each in result.results) else (FOOTNOTE,)
