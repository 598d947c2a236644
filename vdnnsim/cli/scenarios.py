"""Commands that read a scenario: `run` and `check`."""

from collections.abc import Sequence
from pathlib import Path

import click

from vdnnsim.cli.options import CSV, POLICY_MODULE, FilePath, policies_with
from vdnnsim.cli.output import print_result, write_result


@click.command()
@click.argument("scenario", type=FilePath())
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<scenario name>/.")
@CSV
@POLICY_MODULE
def run(scenario: Path, out: Path | None, csv_file: Path | None, policy_modules: Sequence[str]) -> None:
    """Replay every policy of SCENARIO: one table here; CSV, report, pictures and traces in DIR."""
    from vdnnsim.experiment import run_scenario
    from vdnnsim.report.columns import column_names, result_rows
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.table import result_table
    from vdnnsim.report.write import write_report
    from vdnnsim.scenario.read import read_scenario

    result = run_scenario(read_scenario(scenario, policies_with(policy_modules)))
    folder = Path("reports") / result.name if out is None else out
    files = write_report(result, folder)
    if csv_file is not None:
        write_csv(csv_file, column_names(), result_rows(result))
    print_result(result_table(result), f"wrote {len(files)} files to {folder}/; read {folder / 'report.md'} first")


@click.command()
@click.argument("file", type=FilePath())
@POLICY_MODULE
def check(file: Path, policy_modules: Sequence[str]) -> None:
    """Read and resolve FILE, a scenario, a study or a hardware profile, and run nothing."""
    from vdnnsim.scenario.check import check_file
    from vdnnsim.study.check import check_study, is_study

    checked = check_study if is_study(file) else check_file
    write_result(checked(file, policies_with(policy_modules)) + "\n")
