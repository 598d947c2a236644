"""The command `frontier`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import POLICY_MODULE, SCENARIO, TIME_LIMIT, FilePath, limited, policies_with, prints_table
from vdnnsim.cli.output import Output, report_folder

if TYPE_CHECKING:
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario

_PLANNER: Final = "optimal"
_CAPACITIES: Final = 20


@click.command()
@SCENARIO
@takes_model
@POLICY
@click.option(
    "--capacities",
    metavar="N",
    type=click.IntRange(3, 200),
    default=_CAPACITIES,
    help=f"For how many sizes of memory to plan; {_CAPACITIES} by default.",
)
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<scenario name>/.")
@prints_table
@TIME_LIMIT
@POLICY_MODULE
def frontier(
    scenario: Path | None,
    policies: Sequence[str],
    capacities: int,
    out: Path | None,
    output: Output,
    time_limit: str | None,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Show what memory buys: the least time for each size of it.

    From the least GPU memory that can do to all that it needs: for each size the plan of the policy `optimal`, as
    SCENARIO has it, and the bound that no schedule is below; beside them the other policies of SCENARIO, where they
    fit. One table here; page, table and picture in DIR.
    """
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, remarks
    from vdnnsim.report.document import plain_table, titled_table
    from vdnnsim.report.findings import caption
    from vdnnsim.report.frontier import (
        FILES,
        FRONTIER,
        FRONTIER_WRITER,
        SHOWN,
        findings,
        frontier_rows,
        shown_rows,
        write_frontier,
    )
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.study.frontier import find_frontier

    types = policies_with(policy_modules)
    asked = limited(_with_planner(asked_for(scenario, words, types, policies).scenario, types), time_limit)
    folder = report_folder(out, asked.name, FILES, FRONTIER_WRITER)
    planner = next(each for each in asked.policies if each.name == _PLANNER)
    with ProgressBar() as bar:
        found = find_frontier(asked, planner, capacities, bar)
    written = write_frontier(asked, found, folder)
    table = plain_table(SHOWN, shown_rows(found), output.has_all, ("its time", "slower", "gap"), left=0)
    said = (*findings(asked, found), *kernel_times(found.kernels), *capture_lines(asked.captured))
    notes = *remarks(asked.workload), *glossary((each.label for each in asked.policies), of_speed=False)
    talk = f"wrote {', '.join(path.name for path in written)} to {folder}/"
    shown = titled_table(f"{caption(asked)}, by memory", table, notes, said)
    output.show(ResultTable(tuple(FRONTIER), tuple(frontier_rows(found)), shown), talk)


def _with_planner(scenario: "Scenario", types: "PolicyTypes") -> "Scenario":
    """Return a scenario with the policy that plans with a bound, as it is by default if none of its own does."""
    from vdnnsim.policies.registry import resolve_policy

    if any(each.name == _PLANNER for each in scenario.policies):
        return scenario
    return replace(scenario, policies=(*scenario.policies, resolve_policy(_PLANNER, types)))
