"""Arguments in, exit codes out.

Exit status: 0 done (a network that does not fit is a result), 1 wrong input in one line on standard error, 2 usage,
3 a check failed.
Results go to standard output, talk to standard error. Everything heavy is imported inside the command that needs it,
so that `--help` answers at once.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

try:
    import click

    from vdnnsim import __version__
    from vdnnsim.errors import InputError, OutputError, VdnnsimError
except KeyboardInterrupt:
    sys.exit("Aborted!")

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vdnnsim.policies.registry import PolicyTypes


class _Path(click.Path):
    """A path of which the reader or the writer says what is wrong with it, in one line and with exit status 1."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # as click has it
        """Refuse the empty path, which would be the working directory."""
        if value == "" and param is not None:
            raise InputError(f"{param.opts[0]}: found '', expected a path")
        return super().convert(value, param, ctx)


_CSV = click.option("--csv", "csv_file", metavar="FILE", type=_Path(), help="Also write the table to FILE.")
_POLICY_MODULE = click.option(
    "--policy-module",
    "policy_modules",
    metavar="NAME",
    multiple=True,
    help="Import policies of your own from a Python module; may be given several times.",
)


def main() -> None:
    """Run the command line; wrong input ends in one line and exit status 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A name of a file may hold what the terminal's encoding does not.
            stream.reconfigure(errors="backslashreplace")
    try:
        cli()
    except KeyboardInterrupt:
        sys.exit("Aborted!")
    except OSError as failure:
        _forget_output()
        click.echo(f"vdnnsim: {failure}", err=True)
        sys.exit(1)
    except VdnnsimError as error:
        click.echo(f"vdnnsim: {error}", err=True)
        # The frames of a user's own policy.
        for note in getattr(error, "__notes__", ()):
            click.echo(note, err=True, nl=False)
        sys.exit(1)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vdnnsim")
def cli() -> None:
    """Simulate how a GPU trains a deep network that does not fit into its memory."""


@cli.command()
@click.argument("scenario", type=_Path())
@click.option("--out", metavar="DIR", type=_Path(), help="Where to write; by default reports/<scenario name>/.")
@_CSV
@_POLICY_MODULE
def run(scenario: Path, out: Path | None, csv_file: Path | None, policy_modules: Sequence[str]) -> None:
    """Replay every policy of SCENARIO: one table here; CSV, report, pictures and traces in DIR."""
    from vdnnsim.experiment import run_scenario
    from vdnnsim.report.columns import column_names, result_rows
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.table import result_table
    from vdnnsim.report.write import write_report
    from vdnnsim.scenario.read import read_scenario

    result = run_scenario(read_scenario(scenario, _policies(policy_modules)))
    folder = Path("reports") / result.name if out is None else out
    files = write_report(result, folder)
    if csv_file is not None:
        write_csv(csv_file, column_names(), result_rows(result))
    _print(result_table(result), f"wrote {len(files)} files to {folder}/; read {folder / 'report.md'} first")


@cli.group(name="list")
def list_() -> None:
    """List what scenarios may name."""


@list_.command()
@_CSV
def networks(csv_file: Path | None) -> None:
    """List the networks, with the work and the feature maps of one image in float32."""
    from vdnnsim.dnn.layers import LayerKind, Phase
    from vdnnsim.dnn.networks import NETWORKS
    from vdnnsim.dnn.workload import Workload

    header = ("name", "conv_layers", "fc_layers", "parameters", "forward_gflop", "feature_maps_mib")
    rows = []
    for name, build in NETWORKS.items():
        workload = Workload(build(), batch_size=1)
        graph = workload.graph
        kinds = [layer.kind for layer in graph.layers]
        flop = sum(workload.flop(layer, Phase.FORWARD) for layer in graph.layers)
        nbytes = sum(workload.map_bytes(each.index) for each in graph.maps)
        rows.append(
            (
                name,
                str(kinds.count(LayerKind.CONV)),
                str(kinds.count(LayerKind.FC)),
                str(graph.parameters),
                f"{flop / 1e9:.2f}",
                f"{nbytes / 2**20:.1f}",
            )
        )
    _print_list(header, rows, csv_file)


@list_.command()
@_CSV
@_POLICY_MODULE
def policies(csv_file: Path | None, policy_modules: Sequence[str]) -> None:
    """List the policies and what their options may be, the default first."""
    from vdnnsim.policies.registry import describe_options

    rows = [(name, describe_options(policy), policy.summary) for name, policy in _policies(policy_modules).items()]
    _print_list(("name", "options", "summary"), rows, csv_file)


@list_.command()
@_CSV
def hardware(csv_file: Path | None) -> None:
    """List the hardware profiles that are shipped."""
    from vdnnsim.hardware.profile import shipped_profiles
    from vdnnsim.units import format_bytes

    rows = [
        (
            profile.server.name,
            profile.server.gpu.name,
            format_bytes(profile.server.gpu.memory_bytes),
            profile.server.link.name,
            profile.description,
        )
        for profile in shipped_profiles()
    ]
    _print_list(("name", "gpu", "memory", "link", "description"), rows, csv_file)


@cli.command()
@click.argument("file", type=_Path())
@_POLICY_MODULE
def check(file: Path, policy_modules: Sequence[str]) -> None:
    """Read and resolve FILE, a scenario or a hardware profile, and run nothing."""
    from vdnnsim.scenario.check import check_file

    _write(check_file(file, _policies(policy_modules)) + "\n")


@cli.command()
@click.option("--paper", default="vdnn2016", show_default=True, metavar="PAPER", help="Whose claims to check.")
@click.option("--report", metavar="DIR", type=_Path(), help="Also write the paper's figures and tables to DIR.")
@_CSV
def claims(paper: str, report: Path | None, csv_file: Path | None) -> None:
    """Hold every number that a paper states against the replay; exit with 3 when a reproduced one no longer is."""
    from vdnnsim.claims.check import check_claim
    from vdnnsim.claims.claim import read_claims
    from vdnnsim.claims.report import paper_report
    from vdnnsim.claims.row import Verdict
    from vdnnsim.claims.runs import PaperRuns
    from vdnnsim.claims.table import COLUMNS, cells, summary
    from vdnnsim.hardware.profile import find_profile, read_profile
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.replace import replace_files
    from vdnnsim.report.table import plain_table

    file = read_claims(paper)
    profile = find_profile(file.hardware, Path())
    runs = PaperRuns(read_profile(profile))
    rows = [check_claim(claim, runs) for claim in file.claims]
    if csv_file is not None:
        write_csv(csv_file, COLUMNS, [cells(row) for row in rows])
    talk = [summary(rows)]
    if report is not None:
        written = replace_files(report, paper_report(file, rows, runs, profile))
        talk.append(f"wrote {len(written)} files to {report}/; read {report / 'README.md'} first")
    _print(plain_table(COLUMNS[:-1], [cells(row)[:-1] for row in rows]), *talk, piped_width=200)
    if any(row.recorded is Verdict.REPRODUCED and row.verdict is not Verdict.REPRODUCED for row in rows):
        sys.exit(3)


def _policies(modules: Sequence[str]) -> "PolicyTypes":
    from vdnnsim.policies.registry import known_policies

    if modules:
        # A console script does not look for modules where it was called, and that is where a user's policy lies.
        sys.path.insert(0, str(Path.cwd()))
    return known_policies(modules)


def _print_list(header: Sequence[str], rows: Sequence[Sequence[str]], csv_file: Path | None) -> None:
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.table import plain_table

    if csv_file is not None:
        write_csv(csv_file, header, rows)
    _print(plain_table(header, rows))


def _print(renderable: "RenderableType", *talk: str, piped_width: int = 120) -> None:
    """Print a result; then the talk, also where nobody reads the result to its end."""
    from rich.console import Console

    text, terminal = StringIO(), sys.stdout is not None and sys.stdout.isatty()
    # A pipe has no width of its own.
    Console(file=text, force_terminal=terminal, width=None if terminal else piped_width, highlight=False).print(
        renderable
    )
    try:
        _write(text.getvalue())
    finally:
        for line in talk:
            click.echo(line, err=True)


def _write(text: str) -> None:
    """Write a result to standard output; end quietly, with exit status 1, when its reader has gone."""
    if sys.stdout is None:
        raise OutputError("standard output is closed; results go there")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_output()
        sys.exit(1)
    except OSError as failure:
        _forget_output()
        raise OutputError(
            f"standard output: cannot be written: {(failure.strerror or 'unknown error').lower()}"
        ) from None


def _forget_output() -> None:
    """Lead standard output nowhere, or Python writes what is left in its buffer when it ends, and fails again."""
    with suppress(OSError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
