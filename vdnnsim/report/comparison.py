"""Comparison of policies: its table, findings and folder of files."""

from collections.abc import Iterator
from typing import Final

from vdnnsim.analysis.columns import COLUMNS, Measured, Row, Value, cells
from vdnnsim.analysis.comparison import Comparison, Standing
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report.caveats import glossary, known, remarks, without_plan
from vdnnsim.report.document import Column, Document, Fold, Table, text_column, titled_table
from vdnnsim.report.findings import caption, counted, how_many_fit, question_text, refusals, workload_text
from vdnnsim.report.folder import QUESTION, Writer
from vdnnsim.report.labels import joined_labels
from vdnnsim.report.result_table import csv_text
from vdnnsim.report.scale import byte_scale
from vdnnsim.report.tables.summary import (
    BEYOND,
    JUST,
    JUST_NOTE,
    fits_column,
    holds_more,
    left_out_first,
    quantity_column,
    rate_column,
    reserved_ahead,
)
from vdnnsim.units import format_bytes, format_seconds

COMPARED: Final = (
    *("network", "batch_size", "policy", "algorithms", "outcome", "time_rank", "memory_rank", "on_front"),
    *("iteration_s", "samples_per_s", "allocated_bytes", "offloaded_bytes", "host_memory_bytes"),
    *("performance_ratio", "reserved_bytes", "process_bytes", "server_samples_per_s", "reason"),
)
"""Columns of `compare.csv`; on several GPUs the numbers are of the slowest one."""

FITS, JUST_FITS, DOES_NOT_FIT, NO_PLAN = "fits", "just fits", "does not fit", "no plan"
FRONT = "*"
FRONT_NOTE = f"{FRONT} no other policy is better in time or memory and no worse in the other"


_LEFT_OUT_FIRST: Final = (
    *(
        "offloaded_bytes",
        "samples_per_s",
        "performance_ratio",
        "rank by memory",
        "reserved_bytes",
        "process_bytes",
        "rank",
    ),
    "iteration_s",
)
"""Columns that a narrow terminal drops, in this order."""


ALL_COMPARED: Final = (
    "Compared: all policies, by time, also those that nobody asked for; `--policies A,B` compares those that it names"
)


def comparison_table(comparison: Comparison, *compared: str) -> Document:
    """Return caption, ranked table, notes, and the reasons of policies that do not fit; last what was compared."""
    result, notes = comparison.result, [*remarks(comparison.result.workload)]
    table = ranked(comparison) if comparison.standings else None
    if table:
        notes += *glossary((row.policy for row in result.slowest), result.workload), FRONT_NOTE
        if any(map(result.just_fits, result.slowest)):
            notes.append(JUST_NOTE)
        notes += reserved_ahead(result)
    findings = f"{comparison_title(comparison)}.", *known(result), *unranked(comparison), *compared
    return titled_table(caption(result), table, notes, findings)


def ranked(comparison: Comparison) -> Table:
    """Return the table of the policies that fit."""
    columns = comparison_columns(comparison)
    return Table(columns, left_out_first(_LEFT_OUT_FIRST, columns, comparison.result), "compare.csv has all")


def comparison_rows(comparison: Comparison) -> tuple[Row, ...]:
    """Return the rows of `compare.csv`: policies that fit by rank, that do not fit, and without a plan."""
    result = comparison.result

    def row(
        policy: str, outcome: str, reason: str, found: PolicyResult | None, standing: Standing | None = None
    ) -> Row:
        ranks: dict[str, Value] = {"time_rank": "", "memory_rank": "", "on_front": False}
        if standing is not None:
            ranks = {name: getattr(standing, name) for name in ranks}
        workload: dict[str, Value] = {"network": result.workload.graph.name, "batch_size": result.workload.batch_size}
        stated = {**workload, "policy": policy, "outcome": outcome, "reason": reason, **ranks}
        return cells(COMPARED, stated, None if found is None else Measured.of(result, found))

    return (
        *(
            row(policy, JUST_FITS if result.just_fits(each.row) else FITS, reason, each.row, each)
            for each in comparison.standings
            for policy, reason in (
                (each.row.policy, ""),
                *((name, f"same plan as {each.row.policy}") for name in each.same_plan),
                *((name, f"same numbers as {each.row.policy}") for name in each.same_numbers),
            )
        ),
        *(
            row(each.policy, DOES_NOT_FIT, each.refusal.explain(), each)
            for each in comparison.unfit
            if each.refusal is not None
        ),
        *(row(each.policy, NO_PLAN, each.reason, None) for each in comparison.result.declined),
    )


def comparison_columns(comparison: Comparison) -> tuple[Column, ...]:
    standings = comparison.standings
    rows = [Measured.of(comparison.result, each.row) for each in standings]
    beyond = BEYOND if holds_more(comparison.result) else ()
    memory = byte_scale(COLUMNS[name].number(row) for name in ("allocated_bytes", *beyond) for row in rows)
    fits = fits_column(comparison.result, (each.row for each in standings))
    return (
        Column("rank", tuple(str(each.time_rank) for each in standings)),
        text_column("policy", map(_label, standings), Fold.LABEL),
        text_column("front", (FRONT if each.on_front else "" for each in standings)),
        *([fits] if JUST in fits.cells else []),
        quantity_column("iteration_s", rows),
        rate_column(sample_of(comparison.result.workload.graph), rows),
        *(quantity_column(name, rows, memory) for name in ("allocated_bytes", *beyond)),
        Column("rank by memory", tuple(str(each.memory_rank) for each in standings), header="rank by\nmemory"),
        quantity_column("offloaded_bytes", rows),
        quantity_column("performance_ratio", rows),
    )


def _label(standing: Standing) -> str:
    first = joined_labels((standing.row.policy, *standing.same_plan)) + " (one plan)" * bool(standing.same_plan)
    others = joined_labels(standing.same_numbers) + " (same numbers)"
    return f"{first}, {others}" if standing.same_numbers else first


def comparison_title(comparison: Comparison) -> str:
    """Return the title: how many fit, and the two ends of the Pareto front."""
    standings, capacity = comparison.standings, comparison.result.server.gpu.memory_bytes
    planned, declined = len(comparison.result.slowest), len(comparison.result.declined)
    if not standings:
        total = planned + declined
        tried = [*(each.policy for each in comparison.unfit), *(each.policy for each in comparison.result.declined)]
        which = f"{tried[0]} does not fit" if total == 1 else f"None of {counted(total)} fits"
        return f"{which} {workload_text(comparison.result)} into {format_bytes(capacity)}"
    front = [each for each in standings if each.on_front]
    fast, small = (_point(comparison, each.row) for each in (front[0], min(front, key=lambda each: each.memory_rank)))
    ends = f": {fast}" if fast == small else f": from {fast} to {small}"
    without = f"; {declined} without a plan" * bool(declined)
    return f"{how_many_fit(comparison.result, planned)}{ends}{without}"


def _point(comparison: Comparison, row: PolicyResult) -> str:
    return (
        f"{row.policy} {format_seconds(row.metrics.iteration_s)} in {format_bytes(comparison.result.needed_bytes(row))}"
    )


def unranked(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each reason for which policies do not fit, and one for those that have no plan."""
    yield from (f"does not fit: {line}" for line in refusals(comparison.result))
    match without_plan(comparison.result):
        case ():
            return
        case (line,):
            yield line
        case _:
            names = joined_labels(each.policy for each in comparison.result.declined)
            yield f"no plan: {names}; {_TABLE} says why"


_, _TABLE, _PICTURE, _PAGE = _FILES = ("compare.json", "compare.csv", "compare.png", "compare.html")
"""A run writes none of them, so both can share a folder."""
COMPARISON_WRITER: Final = Writer.of("comparison", _FILES, "format_version", "compared", "files")


def comparison_files(comparison: Comparison) -> dict[str, bytes]:
    # Importing matplotlib takes longer than most replays.
    from vdnnsim.report.plots.policies import draw_comparison

    result, rows = comparison.result, comparison_rows(comparison)
    files: dict[str, str | bytes] = {
        _TABLE: csv_text(COMPARED, rows),
        _PICTURE: draw_comparison(comparison, comparison_title(comparison)),
    }
    if result.results:
        files[_PAGE] = _page(comparison)
    compared = [row[COMPARED.index("policy")] for row in rows]
    asked = {QUESTION: question_text(result), "scenario": result.name, "hardware": result.server.name}
    said = {**asked, "compared": compared}
    return COMPARISON_WRITER.with_manifest(result.sources, said, files)


def _page(comparison: Comparison) -> str:
    from vdnnsim.report.run.browser import Shown, html_text

    standings = comparison.standings
    front = sum(len(each.policies) for each in standings if each.on_front)
    heading = f"{front} of {len(comparison.result.slowest)} are on the front of time and memory"
    notes = *((FRONT_NOTE,) if standings else ()), *known(comparison.result)
    said, beside = (f"{comparison_title(comparison)}.",), f"{_TABLE} and {COMPARISON_WRITER.manifest} lie"
    return html_text(comparison.result, Shown(said, heading, ranked(comparison), notes, beside))
