"""The command `read`: what a user recorded, told apart by its content and handed to the command for its kind."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import FilePath

if TYPE_CHECKING:
    from collections.abc import Sequence


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE", type=FilePath())
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF ITS KIND]")
def read(file: Path, options: "Sequence[str]") -> None:
    """Read what was recorded of a training run: a trace, a snapshot.

    A trace of PyTorch's profiler (.json, .json.gz) says where the time of a step goes, and becomes a kernel table, a
    profile of its GPU and a workload. A CUDA memory snapshot (.pickle) is replayed under any setting of the allocator.
    `vdnnsim read FILE --help` lists the options for FILE. Nothing in a file is executed.
    """
    from vdnnsim.recordings.recording_file import kind_of

    name = f"read_{kind_of(file).value}"
    command: click.Command = getattr(import_module(f"vdnnsim.cli.{name}"), name)
    command.main(args=[str(file), *options], prog_name="vdnnsim read", standalone_mode=False)
