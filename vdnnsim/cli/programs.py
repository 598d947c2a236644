"""Commands that run a user's PyTorch program: `apply` by a plan in less memory, `pretend` on a pretended GPU."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import HARDWARE, POLICIES, out_option, prints_table, read_option
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import InputError

if TYPE_CHECKING:
    from calibration.pretend.card import Card
    from calibration.pretend.session import Outcome, Task
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.report.document import Document

BEYOND_LIMIT: Final = 5
"""Exit status where PyTorch reserved more than --memory and the program ended with 0."""
_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--memory", metavar="SIZE", help="Memory limit of PyTorch, as 20GiB; by default none.")
@click.option(
    "--hardware", type=HARDWARE, default="auto", show_default=True, help="A hardware profile; auto for the GPU's own."
)
@click.option(
    "--policy", type=POLICIES, default="optimal", show_default=True, help="The policy that plans, as in a scenario."
)
@click.option("--real", is_flag=True, help="Capture with real tensors: for a forward that reads values.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def apply(
    memory: str | None,
    hardware: str,
    policy: str,
    real: bool,  # noqa: FBT001  # as click gives it
    command: Sequence[str],
) -> None:
    """Run COMMAND, a PyTorch program, in less memory, by a plan.

    The program is not changed. Its model is found by the first backward. The first steps run without a plan, with all
    saved tensors on the host, until two in a row have inputs of the same shapes. Then the step is planned, and the
    following ones run by the plan, with the same results to the bit. A step that differs leaves the plan, and keeps
    what does not fit on the host. If no plan can be made, the reason is printed and the exit status is 1; if PyTorch
    has reserved more than --memory and the program ends with 0, it is 5; else it is the program's own. Without a GPU
    give --hardware.
    """
    from tempfile import TemporaryDirectory

    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.policies.registry import known_policies, resolve_policy
    from vdnnsim.units import Dimension, parse_quantity

    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]}: there is no such program; a command begins with one: -- python train.py")
    _note_another_python(command[0])
    if memory is not None:
        read_option("--memory", parse_quantity, memory, Dimension.BYTES)
    if hardware != "auto":
        load_profile(find_profile(hardware, Path()))
    resolve_policy(policy, known_policies(), advice="")
    asked = {"hardware": hardware, "memory": memory, "policy": policy, "real": real}
    startup = Path(__file__).parents[2] / "calibration" / "startup"
    folders = [str(startup), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        **os.environ,
        "VDNNSIM_APPLY_BY": "vdnnsim.api.script:follow_script",
        "PYTHONPATH": os.pathsep.join(folders),
    }
    with TemporaryDirectory(prefix="vdnnsim-apply-") as folder:
        # Processes of torchrun cannot report otherwise.
        asked |= {"notes_folder": folder}
        status = _exit_status(command, {**variables, "VDNNSIM_APPLY": json.dumps(asked)})
        notes = {each.name.partition(".")[0] for each in Path(folder).iterdir()}
    if not status and not notes:
        click.echo("vdnnsim: no backward of a model's loss was seen, so no plan was made", err=True)
    sys.exit(status or (BEYOND_LIMIT if "beyond" in notes else 0))


def _note_another_python(program: str) -> None:
    """Say which Python runs where it is not that of this program, whose packages it may lack."""
    found = Path(shutil.which(program) or program)
    if found.name.startswith("python") and found.absolute().parent != Path(sys.executable).parent:
        click.echo(f"vdnnsim: {program} is {found}, not the Python of vdnnsim, {sys.executable}", err=True)


def _exit_status(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command, forward signals to it, and return its exit status as a shell does."""
    started: list[subprocess.Popen[bytes]] = []

    def forward(number: int, _frame: FrameType | None) -> None:
        for each in started:
            each.send_signal(number)

    # A terminal interrupts both.
    handlers = {signal.SIGINT: lambda *_: None, **dict.fromkeys(_FORWARDED, forward)}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        started.append(subprocess.Popen(command, env=variables))  # noqa: S603  # as above
        return _as_shell(started[0].wait())
    except OSError as failure:
        raise InputError(f"{command[0]}: cannot be run: {(failure.strerror or 'unknown error').lower()}") from None
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _as_shell(status: int) -> int:
    """Return the exit status as a shell does: 128 more than the number of a signal."""
    return status if status >= 0 else 128 - status


_VIEWER: Final = "drop a snapshot onto https://pytorch.org/memory_viz, which sends it nowhere"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--hardware", type=HARDWARE, required=True, help="A hardware profile: the card that is pretended.")
@click.option("--gpus", default=1, show_default=True, metavar="N", help="How many such cards.")
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
@out_option("reports/pretend/<script>/")
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

    PyTorch's CUDA build runs as it is, with its allocator and cuDNN's real workspaces, on a pretended driver. Kernels
    compute nothing, so that the program reads zeros from the GPU; a boolean index is refused. Once reserved memory
    grows no more, the step time is predicted from the rates of the profile, and SystemExit ends the program in a step
    of its optimizer. A program that runs out of memory is run again with enough of it, to say what it would take. The
    exit status is that of the program, 0 if it does not fit or was ended.
    """
    from calibration.pretend.card import card_of, operator_rates
    from calibration.pretend.report import MEMORY_COLUMNS, findings, memory_rows, refusal
    from calibration.pretend.session import Task
    from vdnnsim.hardware.profile import find_profile, load_profile, shipped_profiles
    from vdnnsim.report.folder import Writer, write_folder
    from vdnnsim.report.result_table import ResultTable

    _check(gpus, steady_steps, minutes)
    writer = Writer.of(
        "run on a pretended GPU",
        ("run.json", "steps.csv"),
        *("command", "findings", "processes", "files"),
        others=r"again\.log|[\w.-]+\.pickle",
    )
    folder = report_folder(out, f"pretend/{_stem(command)}", writer)
    profile = load_profile(find_profile(hardware, Path()))
    task = Task(steady_steps, whole, operator_rates(profile.server))
    card = card_of(profile.server)
    outcome, again, log = _run(command, _variables(card, gpus, command), task, minutes * 60)
    rows = memory_rows(outcome, profile.server.gpu.memory_bytes)
    cards = {each.server.name: card_of(each.server) for each in shipped_profiles()}
    said = [*refusal(outcome, again, cards), *findings(outcome, card, task.rates)]
    contents = {**_contents(outcome), **({} if log is None else {"again.log": log})}
    files = writer.with_manifest(profile.sources, _facts(profile, command, outcome, again, said), contents)
    write_folder(folder, files, writer)
    viewer = f"; {_VIEWER}" if outcome.snapshots else ""
    table = ResultTable(MEMORY_COLUMNS, rows, _shown(profile, command, outcome, rows, said))
    output.show(table, f"wrote {len(files)} files to {folder}/{viewer}")
    if outcome.returncode and outcome.out_of_memory is None and not outcome.was_ended:
        sys.exit(_as_shell(outcome.returncode))


def _check(gpus: int, steady_steps: int, minutes: float) -> None:
    from calibration.pretend.environment import MOST_GPUS

    if not 1 <= gpus <= MOST_GPUS:
        raise InputError(f"--gpus: found {gpus}, expected an integer from 1 to {MOST_GPUS}")
    if steady_steps < 1:
        raise InputError(f"--steps: found {steady_steps}, expected an integer from 1 on")
    if not 0 < minutes < float("inf"):
        raise InputError(f"--minutes: found {minutes:g}, expected a finite number above 0")


def _stem(command: Sequence[str]) -> str:
    """Return the stem of the script of a command, else of its program."""
    script = next((each for each in command if each.endswith(".py")), command[0])
    return Path(script).stem or "command"


def _variables(card: "Card", gpus: int, command: Sequence[str]) -> Mapping[str, str]:
    """Return the environment of a command on a pretended card, whose runtime is compiled if necessary."""
    from calibration.pretend.build import build_runtime, find_torch
    from calibration.pretend.environment import environment, package_folders

    runtime = build_runtime(find_torch(package_folders(command[0])))
    return environment(card, runtime, inherited=os.environ, gpus=gpus)


def _run(
    command: Sequence[str], variables: Mapping[str, str], task: "Task", limit_s: float
) -> "tuple[Outcome, Outcome | None, bytes | None]":
    """Run a command, and again with enough memory where it ran out; return outcomes and the second output."""
    from tempfile import TemporaryDirectory

    from calibration.pretend.environment import with_unlimited_memory
    from calibration.pretend.session import run_command

    with TemporaryDirectory(prefix="vdnnsim-pretend-") as folder:
        outcome = run_command(command, variables, task, limit_s, Path(folder))
    if outcome.out_of_memory is None:
        return outcome, None, None
    click.echo("it does not fit; run again with enough memory", err=True)
    more = with_unlimited_memory(variables)
    with TemporaryDirectory(prefix="vdnnsim-pretend-") as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            again = run_command(command, more, task, limit_s, Path(folder), output)
        return outcome, again, log.read_bytes()


def _shown(
    profile: "Profile", command: Sequence[str], outcome: "Outcome", rows: list[tuple[str, ...]], said: list[str]
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
    return Document((Heading(title), *tables, *((Bullets(tuple(said)),) if said else ())))


def _contents(outcome: "Outcome") -> dict[str, str | bytes]:
    """Return the steps and snapshots of a run by the names of their files."""
    from calibration.pretend.report import STEP_COLUMNS, snapshot_names, step_rows
    from vdnnsim.report.result_table import csv_text

    snapshots = dict(zip(snapshot_names(outcome.processes), outcome.snapshots, strict=True))
    return {**snapshots, "steps.csv": csv_text(STEP_COLUMNS, step_rows(outcome))}


def _facts(
    profile: "Profile", command: Sequence[str], outcome: "Outcome", again: "Outcome | None", said: list[str]
) -> dict[str, object]:
    import msgspec

    return {
        "hardware": profile.server.name,
        "command": list(command),
        "exit_status": outcome.returncode,
        "findings": said,
        "processes": msgspec.to_builtins(outcome.processes),
        "with_memory_enough": None if again is None else msgspec.to_builtins(again.processes),
    }
