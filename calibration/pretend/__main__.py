"""Command on pretended GPUs: python -m calibration.pretend --hardware h100_sxm -- python train.py."""

import os
import shutil
import sys
from pathlib import Path

import click

from calibration.pretend.build import build_runtime, find_torch
from calibration.pretend.card import card_of
from calibration.pretend.environment import MOST_GPUS, Clock, Copies, environment
from vdnnsim.errors import InputError
from vdnnsim.hardware.profile import find_profile, read_profile


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--hardware", required=True, metavar="NAME", help="A hardware profile: the card that is pretended.")
@click.option("--gpus", default=1, show_default=True, type=click.IntRange(1, MOST_GPUS), help="How many such cards.")
@click.option("--clock", default="virtual", show_default=True, type=click.Choice([each.value for each in Clock]))
@click.option("--copies", default="now", show_default=True, type=click.Choice([each.value for each in Copies]))
@click.option(
    "--log", type=click.Path(dir_okay=False, path_type=Path), help="A file that lists calls that the runtime lacks."
)
@click.argument("command", nargs=-1, required=True)
def main(hardware: str, gpus: int, clock: str, copies: str, log: Path | None, command: tuple[str, ...]) -> None:
    """Run COMMAND with the PyTorch of this Python on pretended GPUs."""
    try:
        card = card_of(read_profile(find_profile(hardware, Path())))
        runtime = build_runtime(find_torch())
    except InputError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)
    if shutil.which(command[0]) is None:
        sys.stderr.write(f"{command[0]} is no command\n")
        sys.exit(1)
    variables = environment(
        card, runtime, inherited=os.environ, gpus=gpus, clock=Clock(clock), copies=Copies(copies), log=log
    )
    os.execvpe(command[0], command, {**os.environ, **variables})  # noqa: S606 - the command is what the user asked for


if __name__ == "__main__":
    main()
