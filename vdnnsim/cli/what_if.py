"""The command `whatif`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import POLICY_MODULE, REQUIRE_FIT, SCENARIO, UNFIT, policies_with, prints_table
from vdnnsim.cli.output import Output
from vdnnsim.cli.study_help import StudyCommand

if TYPE_CHECKING:
    from vdnnsim.study.what_if import Change

_TIMES = ("before", "after")


@click.command(name="whatif", cls=StudyCommand)
@SCENARIO
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
@prints_table
@REQUIRE_FIT
@POLICY_MODULE
def what_if(
    scenario: Path | None,
    *,
    policies: Sequence[str],
    settings: Sequence[str],
    output: Output,
    require_fit: bool,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Replay policies before and after a change, and say what it did.

    Every policy of SCENARIO, or of --model. The numbers of a row that does not fit are of a replay on a GPU without a
    capacity.
    """
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.dnn.samples import sample_of
    from vdnnsim.report.caveats import capture_lines, glossary, remarks
    from vdnnsim.report.document import titled_table
    from vdnnsim.report.findings import caption
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.scale import per_second
    from vdnnsim.report.tables.summary import FOOTNOTE
    from vdnnsim.study.changes import change_table, sentence
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
    cells = [
        (label, when, *("" if (cell := row.cell(name)) is None else cell for name in OUTCOME), row.error)
        for label, when, row in rows
    ]
    unit = per_second(sample_of(asked.workload.graph))
    several = any(row.resolved.scenario is not None and row.resolved.scenario.gpus > 1 for _, _, row in rows)
    table = change_table(changes, f"{unit} of all GPUs" if several else unit, output.has_all)
    notes = [FOOTNOTE] if any(row.cell("refusal") for _, _, row in rows) else []
    title = f"{caption(asked)}, before and after {', '.join(settings)}"
    said = (sentence(changes, settings), *_reasons(changes), *_kernel_times(changes), *capture_lines(asked.captured))
    marks = [*remarks(asked.workload), *glossary(change.label for change in changes), *notes]
    output.show(ResultTable(("policy", "when", *OUTCOME, "error"), cells, titled_table(title, table, marks, said)))
    if require_fit and not any(change.after.cell("fits") for change in changes):
        sys.exit(UNFIT)


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
