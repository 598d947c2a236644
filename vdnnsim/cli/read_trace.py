"""`vdnnsim read TRACE`: where the time of a recorded step goes, and what it becomes."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import FilePath, prints_table
from vdnnsim.cli.output import Output, check_file, check_folder
from vdnnsim.errors import InputError, RecordingError
from vdnnsim.files.messages import quote

if TYPE_CHECKING:
    from vdnnsim.hardware.server import Server
    from vdnnsim.recordings.recorded_step import RecordedStep

_LARGEST_BATCH = 1_000_000


@click.command()
@click.argument("file", metavar="TRACE", type=FilePath())
@click.option("--execution-trace", metavar="FILE", type=FilePath(), help="Of the same run: tells what lives when.")
@click.option("--batch", "batch_size", type=int, metavar="N", help="Samples of a step, where sizes do not tell it.")
@click.option("--out", metavar="FILE.step.json", type=FilePath(), help="Write the step as a workload.")
@click.option("--profile", metavar="NAME", help="Write hw_profiles/NAME.yaml and its table of kernels.")
@click.option("--hardware", metavar="NAME", help="Profile of the same card: states what a trace does not.")
@prints_table
def read_trace(  # an argument for each option
    file: Path,
    execution_trace: Path | None,
    batch_size: int | None,
    out: Path | None,
    profile: str | None,
    hardware: str | None,
    output: Output,
) -> None:
    """Say where the time of a recorded training step goes, by kind of operator and phase.

    TRACE is of PyTorch's profiler with ProfilerActivity.CUDA; with record_shapes=True it becomes a workload
    (`workload: {step: FILE.step.json}`) and a profile whose kernels cost what they cost there.
    """
    from vdnnsim.recordings.recorded_profile import write_recorded_profile
    from vdnnsim.recordings.recorded_step import read_step
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.tables.recorded import COLUMNS, recorded_rows, recorded_table

    if batch_size is not None and not 1 <= batch_size <= _LARGEST_BATCH:
        raise InputError(f"--batch: found {batch_size}, expected an integer from 1 to {_LARGEST_BATCH}")
    for option, value, needed, given in (
        ("--execution-trace", execution_trace, "--out", out),
        ("--hardware", hardware, "--profile", profile),
    ):
        if value is not None and given is None:
            raise InputError(f"{option}: found without {needed}, which it is for, expected both")
    path = None if profile is None else _profile_path(profile)
    if out is not None:
        check_file(out)
    if path is not None:
        check_folder(path.parent)
    recorded = read_step(file, batch_size)
    if not recorded.has_shapes and (out or path):
        raise RecordingError(f"{recorded.trace.name}: has no sizes of tensors, expected record_shapes=True")
    talk = []
    if out is not None:
        _write_step(recorded, out, execution_trace)
        talk.append(f"wrote {out}; scenarios name it as `workload: {{step: {out.name}}}`")
    if path is not None:
        wrote = write_recorded_profile(path, recorded, _base(hardware))
        talk.append(f"wrote {', '.join(map(str, wrote))}; scenarios name it as `hardware: {profile}`")
    output.show(ResultTable(COLUMNS, recorded_rows(recorded), recorded_table(recorded, output.has_all)), *talk)


def _profile_path(name: str) -> Path:
    from vdnnsim.hardware.profile import is_profile_name

    if not is_profile_name(name):
        raise InputError(f"--profile: found {quote(name)}, expected a name of letters, digits and any of _.-")
    return Path("hw_profiles") / f"{name}.yaml"


def _base(name: str | None) -> "Server | None":
    from vdnnsim.hardware.profile import find_profile, read_profile

    return None if name is None else read_profile(find_profile(name, Path()))


def _write_step(recorded: "RecordedStep", out: Path, execution_trace: Path | None) -> None:
    from vdnnsim.dnn.captured_file import write_captured_step
    from vdnnsim.recordings.execution_trace import read_execution_trace
    from vdnnsim.recordings.recorded_workload import captured_step

    execution = None if execution_trace is None else read_execution_trace(execution_trace)
    model = out.name.removesuffix(".json").removesuffix(".step") or "recorded"
    write_captured_step(captured_step(recorded, model, execution), out)
