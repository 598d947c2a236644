"""Commands on the policies of a scenario: `run`, `compare`, `whatif`, and `check`, which only reads."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.completion import POLICY_LIST
from vdnnsim.cli.options import (
    POLICY_MODULE,
    REQUIRE_FIT,
    TIME_LIMIT,
    UNFIT,
    NamedFile,
    limited,
    out_option,
    policies_with,
    prints_table,
)
from vdnnsim.cli.output import Output, report_folder, write_result
from vdnnsim.cli.question import POLICY, Question, asks_scenario
from vdnnsim.cli.study import StudyCommand
from vdnnsim.errors import PolicyError
from vdnnsim.files.messages import listed
from vdnnsim.files.packaged import PROFILES, SCENARIOS, STUDIES

if TYPE_CHECKING:
    from vdnnsim.policies.interface import Policy
    from vdnnsim.report.folder import Written
    from vdnnsim.study.what_if import Change

_LARGE_BYTES = 10 * 2**20
_ALL = "all"
_OUT = out_option("reports/<scenario name>/")


@click.command()
@POLICY
@_OUT
@prints_table
@TIME_LIMIT
@REQUIRE_FIT
@asks_scenario
def run(question: Question, out: Path | None, output: Output, time_limit: str | None, *, require_fit: bool) -> None:
    """Replay policies: what fits, how fast, with a report in DIR.

    Those of SCENARIO, or of a PyTorch model of yours, captured now: --model my_model.py:make --batch 8 --hardware
    rtx_4090. One table here; CSV, report, pictures and traces in DIR.

    What an earlier run wrote into DIR is replaced or removed; nothing else there ever is.
    """
    from vdnnsim.api.scenarios import Simulation, run_and_answer
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.report.run.folder import ALWAYS, RUN_WRITER, replaced_report, write_report
    from vdnnsim.scenario.check import refuse_misfits

    scenario = question.scenario
    folder = report_folder(out, scenario.name, ALWAYS, RUN_WRITER)
    if question.path is not None:
        refuse_misfits(question.path, scenario)
    with SearchLine() as line:
        result = run_and_answer(limited(scenario, time_limit), question.types, line.tell, line.tried)
        line.tell("the report")
        replaced = replaced_report(result, folder)
        written = write_report(result, folder)
    output.show(Simulation.of(result), f"{_summary(written)}{replaced} to {folder}/; read {folder / 'report.md'} first")
    if require_fit and not any(row.fits for row in result.slowest):
        sys.exit(UNFIT)


def _summary(written: "Written") -> str:
    """Return the number of written files, a large size, and the number of removed files."""
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
    from vdnnsim.study.read import check_study, is_study

    checked = check_study if not file.name.endswith(SUFFIX) and is_study(file) else check_file
    write_result(checked(file, policies_with(policy_modules)) + "\n")


@click.command()
@click.option(
    "--policies",
    "names",
    type=POLICY_LIST,
    metavar="all|A,B,...",
    default=_ALL,
    help="What to compare: all that there are, by default, or those named, as none,vdnn_all(m), with options as "
    "'swap(p, interval=2)'.",
)
@_OUT
@prints_table
@asks_scenario
def compare(question: Question, names: str, out: Path | None, output: Output) -> None:
    """Rank policies by time and memory, and mark those none beats.

    The table here and a CSV and a picture in DIR; what does not fit is listed apart, and why. Under `all` the policies
    that SCENARIO names with options of their own are compared as well. In the place of SCENARIO may stand a PyTorch
    model, which is captured now: --model my_model.py:make --batch 8 --hardware rtx_4090.
    """
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.report import comparison as report
    from vdnnsim.report.folder import write_folder
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.scenario.experiment import compare_policies

    policies = _compared(names, question)
    folder = report_folder(out, question.scenario.name, report.COMPARISON_FILES, report.COMPARISON_WRITER)
    with ProgressBar() as bar:
        bar.expect(len(policies))
        found = compare_policies(question.scenario, policies, bar.done)
    files = write_folder(folder, report.comparison_files(found), report.COMPARISON_WRITER).files
    table = ResultTable(report.COMPARED, report.comparison_rows(found), report.comparison_table(found))
    output.show(table, f"wrote {listed([str(file) for file in files])}")


def _compared(names: str, question: Question) -> list["Policy"]:
    from vdnnsim.policies.registry import resolve_policy, split_policies
    from vdnnsim.validation.method import every_policy

    if names == _ALL:
        chosen = [*every_policy(question.types), *question.scenario.policies]
    else:
        specs = [_spec(name) for name in split_policies(names)]
        try:
            chosen = [resolve_policy(spec, question.types) for spec in specs]
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
def what_if(question: Question, settings: Sequence[str], output: Output, *, require_fit: bool) -> None:
    """Replay policies before and after a change, and say what it did.

    Every policy of SCENARIO, or of --model. The numbers of a row that does not fit are of a replay with unlimited
    memory.
    """
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.dnn.samples import sample_of
    from vdnnsim.report.caveats import capture_lines, glossary, remarks
    from vdnnsim.report.document import titled_table
    from vdnnsim.report.findings import caption
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.scale import per_second
    from vdnnsim.report.tables.summary import FOOTNOTE
    from vdnnsim.study.points.compute import OUTCOME
    from vdnnsim.study.what_if import change_table, sentence
    from vdnnsim.study.what_if import what_if as ask

    asked = question.scenario
    with SearchLine() as line:
        line.tell("every policy, before and after")
        changes = ask(asked, question.folder, settings, question.types)
    rows = [(each.label, *row) for each in changes for row in (("before", each.before), ("after", each.after))]
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
    marks = [*remarks(asked.workload), *glossary((change.label for change in changes), asked.workload), *notes]
    output.show(ResultTable(("policy", "when", *OUTCOME, "error"), cells, titled_table(title, table, marks, said)))
    if require_fit and not any(change.after.cell("fits") for change in changes):
        sys.exit(UNFIT)


def _reasons(changes: Sequence["Change"]) -> list[str]:
    """Return a line for each reason for which policies do not fit or fail."""
    reasons: dict[str, list[str]] = {}
    for change in changes:
        before, after = (row.error or str(row.cell("refusal") or "") for row in (change.before, change.after))
        whens = ((before, "before and after"),) if before == after else ((before, "before"), (after, "after"))
        for reason, when in whens:
            if reason:
                reasons.setdefault(reason, []).append(f"{change.label} {when}")
    return [f"{', '.join(which)}: {reason}" for reason, which in reasons.items()]


def _kernel_times(changes: Sequence["Change"]) -> tuple[str, ...]:
    """Return the origins of kernel times, before and after separately where they differ."""
    from vdnnsim.analysis.kernel_origins import joined_origins
    from vdnnsim.report.caveats import kernel_times

    before = kernel_times(joined_origins(change.kernels_before for change in changes))
    after = kernel_times(joined_origins(change.kernels_after for change in changes))
    if before == after:
        return before
    return (*(f"before: {line}" for line in before), *(f"after: {line}" for line in after))
