"""The command `pretend`."""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import FilePath, prints_table
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from calibration.pretend.card import Card
    from calibration.pretend.session import Outcome, Task
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.report.document import Document
    from vdnnsim.report.folder import Writer

_VIEWER: Final = "drop a snapshot onto https://pytorch.org/memory_viz, which sends it nowhere"
FORMAT_VERSION: Final = 1
"""Of run.json; raised when a key is renamed or removed."""


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--hardware", required=True, metavar="NAME", help="A hardware profile: the card that is pretended.")
@click.option("--gpus", default=1, show_default=True, metavar="N", help="How many such cards there are.")
@click.option(
    "--steps",
    "steady_steps",
    default=10,
    show_default=True,
    metavar="N",
    help="End the program once reserved memory has not grown for N steps of its optimizer.",
)
@click.option("--whole", is_flag=True, help="Let the program run to its own end; no step is timed then.")
@click.option("--minutes", default=10.0, show_default=True, metavar="M", help="End the program after M minutes.")
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/pretend/<script>/.")
@prints_table
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def pretend(  # an argument for each option
    hardware: str,
    gpus: int,
    steady_steps: int,
    whole: bool,  # noqa: FBT001  # as click gives it
    minutes: float,
    out: Path | None,
    output: Output,
    command: Sequence[str],
) -> None:
    """Run COMMAND, a PyTorch program, on a card that is not there.

    PyTorch's CUDA build runs as it is, with its allocator, cuDNN's true workspaces and a driver that is pretended.
    Kernels compute nothing, so what the program reads from the GPU is zero, and a boolean index is refused by name.
    Once reserved memory grows no more the step time is predicted from the profile's rates, and the program is ended in
    an optimizer's step by SystemExit. A program that runs out of memory is run again with enough of it, to say what it
    would take. The exit status is that of the program, 0 if it does not fit or was ended.
    """
    from calibration.pretend.card import card_of, operator_rates
    from calibration.pretend.report import MEMORY_COLUMNS, findings, memory_rows, refusal
    from calibration.pretend.session import Task
    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.report.folder import write_folder
    from vdnnsim.report.result_table import ResultTable

    _check(gpus, steady_steps, minutes)
    folder = report_folder(out, f"pretend/{_stem(command)}", ("run.json", "steps.csv"), _writer())
    profile = load_profile(find_profile(hardware, Path()))
    task = Task(steady_steps, whole, operator_rates(profile.server))
    card = card_of(profile.server)
    outcome, again, log = _run(command, _variables(card, gpus, command), task, minutes * 60)
    rows = memory_rows(outcome, profile.server.gpu.memory_bytes)
    told = [*refusal(outcome, again, _cards()), *findings(outcome, card, task.rates)]
    files = _files(profile, command, outcome, again, told) | ({} if log is None else {"again.log": log})
    write_folder(folder, files, _writer())
    viewer = f"; {_VIEWER}" if outcome.snapshots else ""
    table = ResultTable(MEMORY_COLUMNS, rows, _shown(profile, command, outcome, rows, told))
    output.show(table, f"wrote {len(files)} files to {folder}/{viewer}")
    if outcome.returncode and outcome.out_of_memory is None and not outcome.was_ended:
        # A program that a signal ended gets the status that a shell gives it.
        sys.exit(outcome.returncode if outcome.returncode > 0 else 128 - outcome.returncode)


def _check(gpus: int, steady_steps: int, minutes: float) -> None:
    from calibration.pretend.environment import MOST_GPUS

    if not 1 <= gpus <= MOST_GPUS:
        raise InputError(f"--gpus: found {gpus}, expected an integer from 1 to {MOST_GPUS}")
    if steady_steps < 1:
        raise InputError(f"--steps: found {steady_steps}, expected an integer from 1 on")
    if not 0 < minutes < float("inf"):
        raise InputError(f"--minutes: found {minutes:g}, expected a finite number above 0")


def _stem(command: Sequence[str]) -> str:
    """Return a name for what a command runs: of its script, else of its program."""
    script = next((each for each in command if each.endswith(".py")), command[0])
    return Path(script).stem or "command"


def _variables(card: "Card", gpus: int, command: Sequence[str]) -> Mapping[str, str]:
    """Return what the environment of a command says of the card, whose runtime is compiled if it is not yet."""
    from calibration.pretend.build import build_runtime, find_torch
    from calibration.pretend.environment import environment, package_folders

    runtime = build_runtime(find_torch(package_folders(command[0])))
    return environment(card, runtime, inherited=os.environ, gpus=gpus)


def _run(
    command: Sequence[str], variables: Mapping[str, str], task: "Task", limit_s: float
) -> "tuple[Outcome, Outcome | None, bytes | None]":
    """Run a command; one that ran out of memory again with enough of it, and return what it printed then."""
    from tempfile import TemporaryDirectory

    from calibration.pretend.environment import with_enough_memory
    from calibration.pretend.session import run_command

    with TemporaryDirectory(prefix="vdnnsim-pretend-") as folder:
        outcome = run_command(command, variables, task, limit_s, Path(folder))
    if outcome.out_of_memory is None:
        return outcome, None, None
    click.echo("it does not fit; run again with memory enough, to see what it would take", err=True)
    more = with_enough_memory(variables)
    with TemporaryDirectory(prefix="vdnnsim-pretend-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            again = run_command(command, more, task, limit_s, Path(folder), output)
        return outcome, again, log.read_bytes()


def _cards() -> "dict[str, Card]":
    """Return the card of each machine that comes with vdnnsim."""
    from calibration.pretend.card import card_of
    from vdnnsim.hardware.profile import shipped_profiles

    return {each.server.name: card_of(each.server) for each in shipped_profiles()}


def _shown(
    profile: "Profile", command: Sequence[str], outcome: "Outcome", rows: list[tuple[str, ...]], told: list[str]
) -> "Document":
    from calibration.pretend.report import HOLDER_COLUMNS, MEMORY_COLUMNS, fullest, holder_rows
    from vdnnsim.report.document import Bullets, Document, Heading, plain_table
    from vdnnsim.units import format_bytes

    server = profile.server
    title = f"{_stem(command)} on a pretended {server.gpu.name}, {format_bytes(server.gpu.memory_bytes)}"
    found = fullest(outcome)
    held = holder_rows(found[1]) if found else []
    shown = ((MEMORY_COLUMNS, rows), (HOLDER_COLUMNS, held if rows else []))
    tables = (plain_table(header, cells, "run.json has all") for header, cells in shown if cells)
    return Document((Heading(title), *tables, *((Bullets(tuple(told)),) if told else ())))


def _writer() -> "Writer":
    """Return who writes the folder of a run on a pretended GPU."""
    from vdnnsim.report.folder import Writer

    return Writer(
        noun="run on a pretended GPU",
        manifest="run.json",
        wrote=lambda content: {"command", "findings", "processes", "files"} <= content.keys(),
        names=re.compile(r"run\.json|steps\.csv|again\.log|[\w.-]+\.pickle"),
    )


def _files(
    profile: "Profile", command: Sequence[str], outcome: "Outcome", again: "Outcome | None", told: list[str]
) -> dict[str, bytes]:
    """Return the files of a run by name: the manifest, the steps, and PyTorch's snapshots."""
    import msgspec

    from calibration.pretend.report import STEP_COLUMNS, snapshot_names, step_rows
    from vdnnsim.report.folder import manifest
    from vdnnsim.report.result_table import csv_text

    snapshots = dict(zip(snapshot_names(outcome.processes), outcome.snapshots, strict=True))
    steps = {"steps.csv": csv_text(STEP_COLUMNS, step_rows(outcome)).encode()}
    said = {
        "hardware": profile.server.name,
        "command": list(command),
        "exit_status": outcome.returncode,
        "findings": told,
        "processes": msgspec.to_builtins(outcome.processes),
        "with_memory_enough": None if again is None else msgspec.to_builtins(again.processes),
    }
    files = {**snapshots, **steps}
    names = *files, "run.json", *(() if again is None else ("again.log",))
    return files | {"run.json": manifest(FORMAT_VERSION, profile.sources, said, names)}
