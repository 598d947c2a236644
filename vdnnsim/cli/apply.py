"""The command `apply`."""

import json
import os
import shutil
from collections.abc import Sequence

import click

from vdnnsim.cli.options import quantity
from vdnnsim.errors import InputError


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--memory", metavar="SIZE", help="What PyTorch may take, as 20GiB; by default all that there is.")
@click.option(
    "--hardware", default="auto", show_default=True, metavar="NAME", help="A hardware profile; auto for the GPU's own."
)
@click.option("--policy", default="optimal", show_default=True, metavar="NAME", help="What plans, as in a scenario.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True, metavar="-- COMMAND...")
def apply(memory: str | None, hardware: str, policy: str, command: Sequence[str]) -> None:
    """Run COMMAND, a PyTorch program, by a plan in less memory.

    The program is not changed. Its model is found by the first backward. Its first step runs as it is, with what
    autograd saves kept on the host; then the step is planned, and from the second one on the plan is followed, with the
    same results to the bit. What a plan cannot be made for is said, and ends the program with exit status 1; else the
    status is its own.
    """
    from pathlib import Path

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
    asked = json.dumps({"hardware": hardware, "memory": memory, "policy": policy})
    startup = Path(__file__).parents[2] / "calibration" / "startup"
    folders = [str(startup), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "VDNNSIM_APPLY": asked, "PYTHONPATH": os.pathsep.join(folders)}
    os.execvpe(command[0], list(command), variables)  # noqa: S606  # running the user's command is what this is for
