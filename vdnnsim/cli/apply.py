"""The command `apply`."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

import click

from vdnnsim.cli.options import quantity
from vdnnsim.errors import InputError

BEYOND_LIMIT: Final = 5
"""Exit status where PyTorch reserved more than --memory, in a program that else ended with 0."""
_HANDED_ON: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--memory", metavar="SIZE", help="What PyTorch may take, as 20GiB; by default all that there is.")
@click.option(
    "--hardware", default="auto", show_default=True, metavar="NAME", help="A hardware profile; auto for the GPU's own."
)
@click.option("--policy", default="optimal", show_default=True, metavar="NAME", help="What plans, as in a scenario.")
@click.option("--real", is_flag=True, help="Capture with real tensors: for a forward that looks into values.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def apply(
    memory: str | None,
    hardware: str,
    policy: str,
    real: bool,  # noqa: FBT001  # as click gives it
    command: Sequence[str],
) -> None:
    """Run COMMAND, a PyTorch program, by a plan in less memory.

    The program is not changed. Its model is found by the first backward. Its first step runs as it is, with what
    autograd saves kept on the host; then the step is planned, and from the second one on the plan is followed, with the
    same results to the bit. A step that leaves the plan keeps what does not fit on the host. What a plan cannot be made
    for is said, and ends the program with exit status 1; one that would end with 0 though PyTorch has reserved more
    than --memory ends with 5; else the status is its own.
    """
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.policies.registry import known_policies, resolve_policy
    from vdnnsim.units import Dimension

    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]}: there is no such program; a command begins with one: -- python train.py")
    if memory is not None:
        quantity("--memory", memory, Dimension.BYTES)
    if hardware != "auto":
        load_profile(find_profile(hardware, Path()))
    resolve_policy(policy, known_policies())
    asked = {"hardware": hardware, "memory": memory, "policy": policy, "real": real}
    startup = Path(__file__).parents[2] / "calibration" / "startup"
    folders = [str(startup), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "VDNNSIM_APPLY": json.dumps(asked), "PYTHONPATH": os.pathsep.join(folders)}
    if memory is None:
        os.execvpe(command[0], list(command), variables)  # noqa: S606  # running the user's command is what this is for
    with TemporaryDirectory(prefix="vdnnsim-apply-") as folder:
        # Each process that reserved more leaves a file there: what torchrun starts has no other way to tell.
        status = _run(command, {**variables, "VDNNSIM_APPLY": json.dumps({**asked, "told": folder})})
        is_beyond = any(Path(folder).iterdir())
    sys.exit(status or (BEYOND_LIMIT if is_beyond else 0))


def _run(command: Sequence[str], variables: Mapping[str, str]) -> int:
    """Run a command, hand on to it what signals this process gets, and return its exit status as a shell has it."""
    started: list[subprocess.Popen[bytes]] = []
    with _handing_on(started):
        try:
            started.append(subprocess.Popen(command, env=variables))  # noqa: S603  # as above
        except OSError as failure:
            raise InputError(f"{command[0]}: cannot be run: {(failure.strerror or 'unknown error').lower()}") from None
        status = started[0].wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _handing_on(started: Sequence["subprocess.Popen[bytes]"]) -> Iterator[None]:
    def hand_on(number: int, _frame: FrameType | None) -> None:
        for each in started:
            each.send_signal(number)

    # A terminal sends an interrupt to both.
    handlers = {signal.SIGINT: lambda *_: None, **dict.fromkeys(_HANDED_ON, hand_on)}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
