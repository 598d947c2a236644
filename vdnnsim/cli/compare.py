"""The command `compare`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import asked_for, takes_model
from vdnnsim.cli.options import POLICY_MODULE, SCENARIO, FilePath, policies_with, prints_table
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import PolicyError
from vdnnsim.files.messages import listed

if TYPE_CHECKING:
    from vdnnsim.policies.interface import Policy
    from vdnnsim.policies.registry import PolicyTypes

_ALL = "all"


@click.command()
@SCENARIO
@takes_model
@click.option(
    "--policies",
    "names",
    metavar="all|A,B,...",
    default=_ALL,
    help="What to compare: all that there are, by default, or those named, as none,vdnn_all(m), with options as "
    "'swap(p, interval=2)'.",
)
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<scenario name>/.")
@prints_table
@POLICY_MODULE
def compare(
    scenario: Path | None, names: str, out: Path | None, output: Output, policy_modules: Sequence[str], **words: object
) -> None:
    """Rank policies by time and memory, and mark those none beats.

    The table here and a CSV and a picture in DIR; what does not fit is listed apart, and why. Under `all` the policies
    that SCENARIO names with options of their own are compared as well. In the place of SCENARIO may stand a PyTorch
    model, which is captured now: --model my_model.py:make --batch 8 --hardware rtx_4090.
    """
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.report.comparison import (
        COMPARED,
        COMPARISON_FILES,
        COMPARISON_WRITER,
        comparison_files,
        comparison_rows,
        comparison_table,
    )
    from vdnnsim.report.folder import write_folder
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.scenario.compare import compare_policies

    types = policies_with(policy_modules)
    asked = asked_for(scenario, words, types, ()).scenario
    policies = _policies(names, types, asked.policies)
    folder = report_folder(out, asked.name, COMPARISON_FILES, COMPARISON_WRITER)
    with ProgressBar() as bar:
        bar.expect(len(policies))
        comparison = compare_policies(asked, policies, bar.done)
    files = write_folder(folder, comparison_files(comparison), COMPARISON_WRITER).files
    table = ResultTable(COMPARED, comparison_rows(comparison), comparison_table(comparison))
    output.show(table, f"wrote {listed([str(file) for file in files])}")


def _policies(names: str, types: "PolicyTypes", own: Sequence["Policy"]) -> list["Policy"]:
    """Return each policy once, in the order in which they were asked for."""
    from vdnnsim.policies.registry import resolve_policy, split_policies
    from vdnnsim.validation.method import every_policy

    if names == _ALL:
        chosen = [*every_policy(types), *own]
    else:
        asked = [_spec(name) for name in split_policies(names)]
        try:
            chosen = [resolve_policy(spec, types) for spec in asked]
        except PolicyError as failure:
            raise PolicyError(f"--policies: {failure}") from None
    return list({policy.label: policy for policy in chosen}.values())


def _spec(name: str) -> object:
    """Return a policy as a scenario names it: what stands in braces is the mapping that it is there."""
    from vdnnsim.files.yaml_file import read_yaml_text

    if not name.strip().startswith("{"):
        return name
    return read_yaml_text(name, "--policies", PolicyError).value
