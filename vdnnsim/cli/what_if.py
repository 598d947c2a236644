"""The command `whatif`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import CSV, POLICY_MODULE, FilePath, policies_with
from vdnnsim.cli.output import has_all, print_result

if TYPE_CHECKING:
    from vdnnsim.study.results import StudyRow
    from vdnnsim.study.what_if import Change

_HEADER = ("policy", "", "fits", "iteration", "images/s", "max memory", "stalled", "speed/oracle")
_LEFT_OUT_FIRST = ("stalled", "images/s", "speed/oracle", "max memory")


@click.command(name="whatif")
@click.argument("scenario", type=FilePath())
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
def what_if(scenario: Path, settings: Sequence[str], csv_file: Path | None, policy_modules: Sequence[str]) -> None:
    """Replay every policy of SCENARIO as it is, and as it would be with other values.

    The numbers of a row that does not fit are of a replay on a GPU without a capacity.
    """
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.plain_table import plain_table
    from vdnnsim.report.table import with_findings
    from vdnnsim.study.outcome import OUTCOME
    from vdnnsim.study.what_if import what_if as ask

    changes = ask(scenario, settings, policies_with(policy_modules))
    rows = [
        (change.label, when, row)
        for change in changes
        for when, row in (("before", change.before), ("after", change.after))
    ]
    names = [name for name, _ in OUTCOME]
    if csv_file is not None:
        cells = (
            (label, when, *("" if (cell := row.cell(name)) is None else cell for name in names), row.error)
            for label, when, row in rows
        )
        write_csv(csv_file, ("policy", "when", *names, "error"), cells)
    shown = [_shown("" if when == "after" else label, when, row) for label, when, row in rows]
    reasons = [(f"{label} {when}", row.error or str(row.cell("refusal"))) for label, when, row in rows]
    table = with_findings(plain_table(_HEADER, shown, has_all(csv_file), _LEFT_OUT_FIRST), _kernel_times(changes))
    print_result(table, *(f"{which}: {reason}" for which, reason in reasons if reason))


def _kernel_times(changes: Sequence["Change"]) -> tuple[str, ...]:
    """Return where kernel times come from; of before and after apart where they are not the same."""
    from vdnnsim.analysis.kernel_origins import together
    from vdnnsim.report.kernel_times import kernel_times

    before = kernel_times(together(change.kernels_before for change in changes))
    after = kernel_times(together(change.kernels_after for change in changes))
    if before == after:
        return before
    return (*(f"before: {line}" for line in before), *(f"after: {line}" for line in after))


def _shown(label: str, when: str, row: "StudyRow") -> tuple[str, ...]:
    from vdnnsim.units import format_bytes, format_rate, format_seconds

    if row.error:
        return (label, when, "failed", "", "", "", "", "")
    return (
        label,
        when,
        "yes" if row.cell("fits") else "NO",
        format_seconds(row.number("iteration_s")),
        format_rate(row.number("images_per_s")),
        format_bytes(row.number("max_memory_bytes")),
        format_seconds(row.number("stall_s")),
        f"{row.number('performance_ratio'):.3f}",
    )
