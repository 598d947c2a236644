"""Commands on the policies of a scenario: `run`, `compare`, `whatif`, and `check`, which only reads."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import (
    POLICY_LIST,
    POLICY_MODULE,
    REQUIRE_FIT,
    TIME_LIMIT,
    UNFIT,
    NamedFile,
    limited,
    out_option,
    parse_time_limit,
    policies_with,
    prints_table,
)
from vdnnsim.cli.output import Output, report_folder, write_result
from vdnnsim.cli.scenario_input import POLICY, ScenarioInput, asks_scenario
from vdnnsim.cli.study import StudyCommand
from vdnnsim.errors import PolicyError
from vdnnsim.files.packaged import PROFILES, SCENARIOS, STUDIES

if TYPE_CHECKING:
    from vdnnsim.analysis.results import ScenarioResult
    from vdnnsim.hardware.server import Server
    from vdnnsim.policies.interface import Policy

_ALL = "all"
_OUT = out_option("reports/<scenario name>/, of a model one for each question, named by model, command and machine")


@click.command()
@POLICY
@_OUT
@prints_table
@TIME_LIMIT
@REQUIRE_FIT
@asks_scenario
def run(given: ScenarioInput, out: Path | None, output: Output, time_limit: str | None, *, require_fit: bool) -> None:
    """Replay policies: what fits, how fast, with a report in DIR.

    The policies of SCENARIO, or of a PyTorch model of yours, captured now: --model my_model.py:make --batch 8
    --hardware rtx_4090. Prints one table; writes CSV, report, pictures and traces to DIR.

    Files of an earlier run in DIR are replaced or removed; no others are touched. If a policy of your own failed, the
    exit status is 1.
    """
    from vdnnsim.api.scenarios import Simulation, run_and_answer
    from vdnnsim.report.progress import SearchLine
    from vdnnsim.report.run.folder import RUN_WRITER, write_report
    from vdnnsim.scenario.check import refuse_misfits

    scenario = given.scenario
    folder = report_folder(out, given.folder_name("run"), RUN_WRITER, given.question)
    if given.path is not None:
        refuse_misfits(given.path, scenario)
    with SearchLine() as line:
        limit = None if time_limit is None else parse_time_limit(time_limit)
        result = run_and_answer(limited(scenario, time_limit), given.types, line.show, line.tried, limit)
    try:
        output.show(Simulation.of(result, output.has_all, "run.json has all"))
    finally:
        # Pictures take a second, for which nobody has to wait.
        with SearchLine() as line:
            line.show("the report")
            written = write_report(result, folder)
        click.echo(written.notice(folder, "report.md"), err=True)
    _refuse_failed(scenario.policies, result)
    if require_fit and not any(row.fits for row in result.slowest):
        sys.exit(UNFIT)


def _refuse_failed(policies: "Sequence[Policy]", result: "ScenarioResult") -> None:
    """Raise PolicyError where policies of a user's own failed; those that do not support a workload have not."""
    from vdnnsim.policies.interface import is_shipped

    own = {each.label for each in policies if not is_shipped(type(each))}
    own -= {each.label for each in policies if each.misfit(result.workload, result.memory_model)}
    if failed := [f"{each.policy}: {each.reason}" for each in result.declined if each.policy in own]:
        raise PolicyError("; ".join(failed))


@click.command()
@click.argument("file", type=NamedFile(SCENARIOS, STUDIES, PROFILES))
@POLICY_MODULE
def check(file: Path, policy_modules: Sequence[str]) -> None:
    """Read FILE, say what is wrong with it, and run nothing.

    A scenario, a study, a hardware profile or a captured step.
    """
    from calibration.pretend.card import capability_figure
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.check import check_file
    from vdnnsim.study.read import check_study, is_study

    def capability(server: "Server") -> str:
        found = capability_figure(server)
        return f"compute capability {found.text}, {found.source}"

    types = policies_with(policy_modules)
    studies = not file.name.endswith(SUFFIX) and is_study(file)
    write_result((check_study(file, types) if studies else check_file(file, types, capability)) + "\n")


@click.command()
@click.option(
    "--policies",
    "names",
    type=POLICY_LIST,
    metavar="all|A,B,...",
    default=_ALL,
    help="What to compare: all, by default, or those named, as none,vdnn_all(m), with options as "
    "'swap(p, interval=2)'.",
)
@_OUT
@prints_table
@asks_scenario
def compare(given: ScenarioInput, names: str, out: Path | None, output: Output) -> None:
    """Rank policies by time and memory, and mark those that no other beats.

    Prints a table, and writes a CSV and a picture to DIR; policies that do not fit are listed below, with the reason.
    Under `all` the policies that SCENARIO names with options of their own are compared as well. A PyTorch model,
    captured now, may take the place of SCENARIO: --model my_model.py:make --batch 8 --hardware rtx_4090. If a policy of
    your own failed, the exit status is 1.
    """
    from vdnnsim.report import comparison as report
    from vdnnsim.report.folder import write_folder
    from vdnnsim.report.progress import ProgressBar
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.scenario.experiment import compare_policies

    policies = _compared(names, given)
    folder = report_folder(out, given.folder_name("compare"), report.COMPARISON_WRITER, given.question)
    with ProgressBar() as bar:
        bar.expect(len(policies))
        found = compare_policies(given.scenario, policies, bar.done)
    written = write_folder(folder, report.comparison_files(found), report.COMPARISON_WRITER)
    compared = (report.ALL_COMPARED,) if names == _ALL else ()
    table = ResultTable(report.COMPARED, report.comparison_rows(found), report.comparison_table(found, *compared))
    output.show(table, written.notice(folder, "compare.html" if found.result.results else "compare.csv"))
    _refuse_failed(policies, found.result)


def _compared(names: str, given: ScenarioInput) -> list["Policy"]:
    from vdnnsim.policies.registry import resolve_policy, split_policies
    from vdnnsim.validation.method import every_policy

    if names == _ALL:
        chosen = [*every_policy(given.types), *given.scenario.policies]
    else:
        specs = [_spec(name) for name in split_policies(names)]
        try:
            chosen = [resolve_policy(spec, given.types) for spec in specs]
        except PolicyError as failure:
            raise PolicyError(f"--policies: {failure}") from None
    return list({policy.label: policy for policy in chosen}.values())


def _spec(name: str) -> object:
    """Return a policy as a scenario names it: a name, or a mapping in braces."""
    from vdnnsim.files.yaml_file import read_yaml_text

    if not name.strip().startswith("{"):
        return name
    return read_yaml_text(name, "--policies", PolicyError).value


@click.command(name="whatif", cls=StudyCommand)
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
@asks_scenario
def what_if(given: ScenarioInput, settings: Sequence[str], output: Output, *, require_fit: bool) -> None:
    """Replay policies before and after a change, and say what it did.

    Every policy of SCENARIO, or of --model. The numbers of a row that does not fit are of a replay with unlimited
    memory.
    """
    from vdnnsim.report.progress import SearchLine
    from vdnnsim.study.what_if import change_result
    from vdnnsim.study.what_if import what_if as ask

    asked = given.scenario
    with SearchLine() as line:
        line.show("every policy, before and after")
        changes = ask(asked, given.folder, settings, given.types)
    output.show(change_result(asked, changes, settings, output.has_all))
    if require_fit and not any(change.after.cell("fits") for change in changes):
        sys.exit(UNFIT)
