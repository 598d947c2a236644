"""Results of a run as a document for the terminal, and as the page `report.md`."""

from collections import Counter
from collections.abc import Iterable, Mapping

from vdnnsim.analysis.columns import COLUMNS, RUN
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.report import markdown
from vdnnsim.report.caveats import contention_lines, glossary, known, remarks, without_plan
from vdnnsim.report.certificates import certificates
from vdnnsim.report.document import Block, Bullets, Definitions, Document, Heading, Note, Picture, Prose, section
from vdnnsim.report.findings import budgets, caption, conclusions, refusals, report_title
from vdnnsim.report.tables.answer import answer_notes, answer_table, first_line
from vdnnsim.report.tables.summary import FOOTNOTE, reserved_ahead, summary
from vdnnsim.units import format_seconds

_MOST_PASSES = 8  # that are named one by one; vdnn_dyn takes 7 at most


def result_table(
    result: ScenarioResult, has_all: str = "results.csv has all", answer_has_all: str = "run.json has all"
) -> Document:
    """Return the results for a terminal: caption, table, findings, refusals; the answer first where nothing fits.

    `has_all` and `answer_has_all` say where columns are that do not fit.
    """
    said = *conclusions(result), budgets(result), *certificates(result), *known(result), *contention_lines(result)
    refused = *refusals(result), *without_plan(result), *profiling(result)
    first, last = answer_parts(result, answer_has_all)
    return Document(
        (
            *first,
            Heading(caption(result)),
            *map(Note, remarks(result.workload)),
            summary(result, has_all),
            *map(Note, (*glossary((row.policy for row in result.slowest), result.workload), *footnotes(result))),
            Bullets((*said, *refused)),
            *last,
        )
    )


def answer_parts(
    result: ScenarioResult, has_all: str = "run.json has all"
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """Return what stands of the answer above the results, where nothing fits, and below them."""
    table, notes = answer_table(result, has_all), answer_notes(result)
    if result.leader is None and table:
        return (Prose(first_line(result), strong=True), *table), notes
    return (), (*table, *notes)


def page_text(
    result: ScenarioResult, pictures: Mapping[str, str], traces: Iterable[str], snapshots: Iterable[str] = ()
) -> str:
    """Return the report as Markdown; `pictures` has the title of each by file name."""
    notes = (f"{note}." for note in (*footnotes(result), *known(result)))
    first, last = answer_parts(result)
    return markdown.page(
        (
            Heading(report_title(result), 1),
            *first,
            Prose(". ".join((caption(result), *remarks(result.workload))) + "."),
            Bullets(tuple(glossary((row.policy for row in result.slowest), result.workload))),
            *map(Prose, (*conclusions(result), budgets(result))),
            summary(result),
            *map(Note, notes),
            *(Picture(text, name) for name, text in pictures.items()),
            *last,
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
    """Return sections on contention, certificates, refusals and trials."""
    return (
        *section("What do the GPUs do to each other?", contention_lines(result)),
        *section("How near is it to the best possible, and why?", certificates(result)),
        *section("Why does a policy not fit?", refusals(result)),
        *section("Which policies have no plan?", without_plan(result)),
        *section("What did it cost to decide?", profiling(result)),
    )


def columns(result: ScenarioResult) -> tuple[Block, ...]:
    meanings = tuple((name, COLUMNS[name].documented(result.gpus)) for name in RUN)
    return Heading("What do the columns of results.csv mean?"), Definitions(meanings)


def sources(result: ScenarioResult) -> tuple[str, ...]:
    """Return the origins of figures, and the input files."""
    counts = Counter(figure.origin for figure in result.server.figures)
    origins = ", ".join(f"{counts[origin]} {origin.value}" for origin in Origin if counts[origin]) or "none"
    return (
        f"figures of the hardware profile {result.server.name} by origin: {origins}; run.json has each with its source",
        "times are simulated; the iteration follows the plan of each policy operation by operation",
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in result.sources),
    )


def footnotes(result: ScenarioResult) -> tuple[str, ...]:
    """Return the footnote of rows that do not fit, and lines of those that reserve memory ahead, if there are any."""
    return *(() if all(each.fits for each in result.results) else (FOOTNOTE,)), *reserved_ahead(result)


def profiling(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line with trials and their cost for each policy that ran some, then the cost of algorithm selection."""
    lines = []
    for each in result.slowest:
        passes = each.trace.plan.passes
        if passes:
            count = f"{len(passes)} {'pass' if len(passes) == 1 else 'passes'}"
            spent = _spent(sum(one.cost_s for one in passes), each.metrics.iteration_s)
            lines.append(f"{each.policy} settled on {each.algorithms} after {count}: {_tried(passes)}; {spent}")
    if lines and result.algorithm_profiling_s:
        lines.append(
            "trying every algorithm of every convolution once takes "
            f"{format_seconds(result.algorithm_profiling_s)}, as in any framework that picks the fastest"
        )
    return tuple(lines)


def _tried(passes: tuple[ProfilingPass, ...]) -> str:
    if len(passes) > _MOST_PASSES:
        fitting = sum(one.fits for one in passes)
        return f"{fitting} fit and {len(passes) - fitting} do not; run.json has each"
    costs = (format_seconds(one.cost_s) if one.cost_s else "at once" for one in passes)
    names = (f"{one.name} {'fits' if one.fits else 'does not fit'}" for one in passes)
    return ", ".join(f"{name} ({cost})" for name, cost in zip(names, costs, strict=True))


def _spent(seconds: float, iteration_s: float) -> str:
    if not seconds:
        return "no time is spent"
    iterations = seconds / iteration_s
    amount = f"{iterations:.1f} iterations' time" if iterations >= 0.1 else "less than a tenth of an iteration's time"
    return f"{format_seconds(seconds)} in all, {amount}, spent once"
