"""The command `whatif`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import CSV, POLICY_MODULE, FilePath, policies_with
from vdnnsim.cli.output import has_all, print_result
from vdnnsim.cli.study_help import StudyCommand

if TYPE_CHECKING:
    from vdnnsim.report.tables.fitted import FittedTable
    from vdnnsim.study.results.rows import StudyRow
    from vdnnsim.study.what_if import Change

_TIMES = ("before", "after")


@click.command(name="whatif", cls=StudyCommand)
@click.argument("scenario", type=FilePath(), required=False)
@takes_model
@POLICY
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    required=True,
    help="A value of the scenario or a figure of its machine, as link.bandwidth=300GB/s; may be given several times.",
)
@CSV
@POLICY_MODULE
def what_if(
    scenario: Path | None,
    policies: Sequence[str],
    settings: Sequence[str],
    csv_file: Path | None,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Replay every policy of SCENARIO, or of --model, as it is, and as it would be with other values.

    The numbers of a row that does not fit are of a replay on a GPU without a capacity.
    """
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.dnn.samples import sample_of
    from vdnnsim.report.caveats import capture_lines
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.findings import caption
    from vdnnsim.report.scale import per_second
    from vdnnsim.report.tables.summary import FOOTNOTE
    from vdnnsim.report.tables.terminal import titled_table
    from vdnnsim.study.points.outcome import OUTCOME
    from vdnnsim.study.what_if import what_if as ask

    types = policies_with(policy_modules)
    question = asked_for(scenario, words, types, policies)
    asked = question.scenario
    with SearchLine() as line:
        line.tell("every policy, before and after")
        changes = ask(asked, question.folder, settings, types)
    rows = [
        (change.label, when, row)
        for change in changes
        for when, row in zip(_TIMES, (change.before, change.after), strict=True)
    ]
    if csv_file is not None:
        cells = (
            (label, when, *("" if (cell := row.cell(name)) is None else cell for name in OUTCOME), row.error)
            for label, when, row in rows
        )
        write_csv(csv_file, ("policy", "when", *OUTCOME, "error"), cells)
    unit = per_second(sample_of(asked.workload.graph))
    several = any(row.resolved.scenario is not None and row.resolved.scenario.gpus > 1 for _, _, row in rows)
    table = _table(rows, f"{unit} of all GPUs" if several else unit, has_all(csv_file))
    notes = [FOOTNOTE] if any(row.cell("refusal") for _, _, row in rows) else []
    title = f"{caption(asked)}, before and after {', '.join(settings)}"
    print_result(
        titled_table(title, table, notes, (*_reasons(changes), *_kernel_times(changes), *capture_lines(asked.captured)))
    )


def _reasons(changes: Sequence["Change"]) -> list[str]:
    """Return why policies do not fit or fail, in a line for each reason."""
    reasons: dict[str, list[str]] = {}
    for change in changes:
        before, after = (row.error or str(row.cell("refusal") or "") for row in (change.before, change.after))
        whens = ((before, "before and after"),) if before == after else ((before, "before"), (after, "after"))
        for reason, when in whens:
            if reason:
                reasons.setdefault(reason, []).append(f"{change.label} {when}")
    return [f"{', '.join(which)}: {reason}" for reason, which in reasons.items()]


def _kernel_times(changes: Sequence["Change"]) -> tuple[str, ...]:
    """Return where kernel times come from; of before and after apart where they are not the same."""
    from vdnnsim.analysis.kernel_origins import joined_origins
    from vdnnsim.report.caveats import kernel_times

    before = kernel_times(joined_origins(change.kernels_before for change in changes))
    after = kernel_times(joined_origins(change.kernels_after for change in changes))
    if before == after:
        return before
    return (*(f"before: {line}" for line in before), *(f"after: {line}" for line in after))


def _table(rows: Sequence[tuple[str, str, "StudyRow"]], unit: str, everything: str) -> "FittedTable":
    from vdnnsim.analysis.columns import COLUMNS
    from vdnnsim.report.scale import percents, rate_cells
    from vdnnsim.report.tables.fitted import plain_table

    done = [row for _, _, row in rows if not row.error]
    rates = rate_cells([row.number("server_images_per_s") for row in done])
    shares = percents(row.number("performance_ratio") for row in done)
    told = {id(row): (rate, share) for row, rate, share in zip(done, rates, shares, strict=True)}
    cells = (
        ("" if when == "after" else label, when, *_cells(row, *told.get(id(row), ("", ""))))
        for label, when, row in rows
    )
    time, share = COLUMNS["iteration_s"].short, COLUMNS["performance_ratio"].short
    memory, stalled = COLUMNS["max_memory_bytes"].title, COLUMNS["stall_s"].short
    header = ("policy", "", "fits", time, unit, memory, stalled, share)
    return plain_table(header, cells, everything, (stalled, unit, share, memory))


def _cells(row: "StudyRow", rate: str, share: str) -> tuple[str, ...]:
    from vdnnsim.report.tables.summary import NOT_FITTING
    from vdnnsim.units import format_bytes, format_seconds

    if row.error:
        return ("failed", *("",) * 5)
    return (
        "yes" if row.cell("fits") else NOT_FITTING,
        format_seconds(row.number("iteration_s")),
        rate,
        format_bytes(row.number("max_memory_bytes")),
        format_seconds(row.number("stall_s")),
        share,
    )
