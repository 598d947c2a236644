"""Commands that read a scenario: `run` and `check`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import (
    POLICY_MODULE,
    REQUIRE_FIT,
    SCENARIO,
    TIME_LIMIT,
    UNFIT,
    FilePath,
    NamedFile,
    limited,
    policies_with,
    prints_table,
)
from vdnnsim.cli.output import Output, report_folder, write_result
from vdnnsim.files.packaged import PROFILES, SCENARIOS, STUDIES

if TYPE_CHECKING:
    from vdnnsim.report.folder import Written

_LARGE_BYTES = 10 * 2**20


@click.command()
@SCENARIO
@takes_model
@POLICY
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<scenario name>/.")
@prints_table
@TIME_LIMIT
@REQUIRE_FIT
@POLICY_MODULE
def run(  # one for each option
    scenario: Path | None,
    *,
    policies: Sequence[str],
    out: Path | None,
    output: Output,
    time_limit: str | None,
    require_fit: bool,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Replay policies: what fits, how fast, with a report in DIR.

    Those of SCENARIO, or of a PyTorch model of yours, captured now: --model my_model.py:make --batch 8 --hardware
    rtx_4090. One table here; CSV, report, pictures and traces in DIR.

    What an earlier run wrote into DIR is replaced or removed; nothing else there ever is.
    """
    from vdnnsim.analysis.columns import RUN, result_rows
    from vdnnsim.api.run_analysis import answer
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.run.folder import ALWAYS, RUN_WRITER, write_report
    from vdnnsim.report.run.page import result_table
    from vdnnsim.scenario.check import refuse_misfits

    types = policies_with(policy_modules)
    asked = asked_for(scenario, words, types, policies)
    folder = report_folder(out, asked.scenario.name, ALWAYS, RUN_WRITER)
    if scenario is not None:
        refuse_misfits(scenario, asked.scenario)
    with SearchLine() as line:
        result = answer(limited(asked.scenario, time_limit), types, asked.recapture, line.tell)
        line.tell("the report")
        written = write_report(result, folder)
    table = ResultTable(RUN, result_rows(result), result_table(result))
    output.show(table, f"{_said(written)} to {folder}/; read {folder / 'report.md'} first")
    if require_fit and not any(row.fits for row in result.slowest):
        sys.exit(UNFIT)


def _said(written: "Written") -> str:
    """Return what was written; how much where that is a lot, and what is gone where something is."""
    from vdnnsim.units import format_bytes

    size = f" ({format_bytes(written.nbytes)})" if written.nbytes > _LARGE_BYTES else ""
    removed = f", removed {written.removed} of an earlier run," if written.removed else ""
    return f"wrote {len(written.files)} files{size}{removed}"


@click.command()
@click.argument("file", type=NamedFile(SCENARIOS, STUDIES, PROFILES))
@POLICY_MODULE
def check(file: Path, policy_modules: Sequence[str]) -> None:
    """Read FILE, say what is wrong with it, and run nothing.

    A scenario, a study, a hardware profile or a captured step.
    """
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.check import check_file
    from vdnnsim.study.file.read import check_study, is_study

    checked = check_study if not file.name.endswith(SUFFIX) and is_study(file) else check_file
    write_result(checked(file, policies_with(policy_modules)) + "\n")
