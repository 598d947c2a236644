"""Commands that read a scenario: `run` and `check`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import CSV, POLICY_MODULE, TIME_LIMIT, FilePath, limited, policies_with
from vdnnsim.cli.output import print_result, write_result

if TYPE_CHECKING:
    from vdnnsim.report.folder import Written

_LARGE_BYTES = 10 * 2**20


@click.command()
@click.argument("scenario", type=FilePath(), required=False)
@takes_model
@POLICY
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<scenario name>/.")
@CSV
@TIME_LIMIT
@POLICY_MODULE
def run(
    scenario: Path | None,
    policies: Sequence[str],
    out: Path | None,
    csv_file: Path | None,
    time_limit: str | None,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Replay every policy of SCENARIO: one table here; CSV, report, pictures and traces in DIR.

    Or of a PyTorch model of yours, captured now: --model my_model.py:make --batch 8 --hardware rtx_4090.

    What an earlier run wrote into DIR is replaced or removed; nothing else there ever is.
    """
    from vdnnsim.advice import advice
    from vdnnsim.analysis.columns import RUN, result_rows
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.experiment import run_scenario
    from vdnnsim.nearby import nearby
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.report.run.page import result_table
    from vdnnsim.report.run.write import ALWAYS, RUN_WRITER, write_report
    from vdnnsim.scenario.check import refuse_misfits

    types = policies_with(policy_modules)
    asked = asked_for(scenario, words, types, policies)
    folder = Path("reports") / asked.scenario.name if out is None else out
    refuse_foreign(folder, ALWAYS, RUN_WRITER)
    if scenario is not None:
        refuse_misfits(scenario, asked.scenario)
    with SearchLine() as line:
        result = run_scenario(limited(asked.scenario, time_limit), line.tell)
    result = replace(
        result, advice=advice(asked.scenario, result, types, asked.recapture), nearby=nearby(asked.scenario, result)
    )
    written = write_report(result, folder)
    if csv_file is not None:
        write_csv(csv_file, RUN, result_rows(result))
    print_result(result_table(result), f"{_said(written)} to {folder}/; read {folder / 'report.md'} first")


def _said(written: "Written") -> str:
    """Return what was written; how much where that is a lot, and what is gone where something is."""
    from vdnnsim.units import format_bytes

    size = f" ({format_bytes(written.nbytes)})" if written.nbytes > _LARGE_BYTES else ""
    removed = f", removed {written.removed} of an earlier run," if written.removed else ""
    return f"wrote {len(written.files)} files{size}{removed}"


@click.command()
@click.argument("file", type=FilePath())
@POLICY_MODULE
def check(file: Path, policy_modules: Sequence[str]) -> None:
    """Read and resolve FILE, a scenario, a study, a hardware profile or a captured step, and run nothing."""
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.check import check_file
    from vdnnsim.study.file.read import check_study, is_study

    checked = check_study if not file.name.endswith(SUFFIX) and is_study(file) else check_file
    write_result(checked(file, policies_with(policy_modules)) + "\n")
