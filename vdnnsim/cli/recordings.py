"""The command `read` for recordings of a training run: profiler traces and memory snapshots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import HARDWARE, FilePath, prints_table, read_option
from vdnnsim.cli.output import Output, check_file, check_folder
from vdnnsim.errors import InputError, RecordingError
from vdnnsim.files.messages import quote

if TYPE_CHECKING:
    from vdnnsim.memory.choices import MemoryChoice
    from vdnnsim.recordings.recorded_step import RecordedStep
    from vdnnsim.recordings.snapshot_replay import Memory

_LARGEST_BATCH = 1_000_000


@click.command()
@click.argument("file", metavar="TRACE", type=FilePath())
@click.option(
    "--execution-trace", metavar="FILE", type=FilePath(), help="Execution trace of the same run, which has lifetimes."
)
@click.option(
    "--batch", "batch_size", type=int, metavar="N", help="Samples of a step, if they do not follow from sizes."
)
@click.option("--out", metavar="FILE.step.json", type=FilePath(), help="Write the step as a workload.")
@click.option("--profile", metavar="NAME", help="Write hw_profiles/NAME.yaml and its table of kernels.")
@click.option("--hardware", type=HARDWARE, help="Profile of the same card, for what a trace lacks.")
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
    from vdnnsim.hardware.profile import find_profile, is_profile_name, read_profile
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
    path = None if profile is None else Path("hw_profiles") / f"{profile}.yaml"
    if profile is not None and not is_profile_name(profile):
        raise InputError(f"--profile: found {quote(profile)}, expected a name of letters, digits and any of _.-")
    if out is not None:
        check_file(out)
    if path is not None:
        check_folder(path.parent)
    recorded = read_step(file, batch_size)
    if not recorded.has_shapes and (out or path):
        raise RecordingError(f"{recorded.trace.name}: has no sizes of tensors, expected record_shapes=True")
    notices = []
    if out is not None:
        _write_step(recorded, out, execution_trace)
        notices.append(f"wrote {out}; scenarios name it as `workload: {{step: {out.name}}}`")
    if path is not None:
        base = None if hardware is None else read_profile(find_profile(hardware, Path()))
        wrote = write_recorded_profile(path, recorded, base)
        notices.append(f"wrote {', '.join(map(str, wrote))}; scenarios name it as `hardware: {profile}`")
    output.show(ResultTable(COLUMNS, recorded_rows(recorded), recorded_table(recorded, output.has_all)), *notices)


def _write_step(recorded: "RecordedStep", out: Path, execution_trace: Path | None) -> None:
    from vdnnsim.dnn.captured_file import write_captured_step
    from vdnnsim.recordings.execution_trace import read_execution_trace
    from vdnnsim.recordings.recorded_workload import captured_step

    execution = None if execution_trace is None else read_execution_trace(execution_trace)
    model = out.name.removesuffix(".json").removesuffix(".step") or "recorded"
    write_captured_step(captured_step(recorded, model, execution), out)


_MEMORY_MODELS: Final = ("pytorch", "pytorch(expandable_segments:True)")
"""Default memory models."""


@click.command()
@click.argument("file", metavar="SNAPSHOT", type=FilePath())
@click.option(
    "--allocator",
    "allocators",
    metavar="SETTINGS",
    multiple=True,
    help="As PYTORCH_ALLOC_CONF has them: expandable_segments:True,max_split_size_mb:128; may be given several times.",
)
@click.option(
    "--memory-model",
    "memory_models",
    metavar="NAME",
    multiple=True,
    help="Another memory model than PyTorch's, as scenarios name it; may be given several times.",
)
@click.option("--hardware", type=HARDWARE, help="Does it fit this card? A hardware profile, by name or path.")
@click.option("--memory", metavar="SIZE", help="Does it fit into so much, as 40GB or 24 GiB?")
@prints_table
def read_snapshot(
    file: Path,
    allocators: Sequence[str],
    memory_models: Sequence[str],
    hardware: str | None,
    memory: str | None,
    output: Output,
) -> None:
    """Replay the requests of a CUDA memory snapshot under settings of PyTorch's allocator, or another memory model.

    SNAPSHOT is what torch.cuda.memory._dump_snapshot wrote after torch.cuda.memory._record_memory_history().
    """
    from vdnnsim.files.messages import file_name
    from vdnnsim.recordings.snapshot import read_recordings
    from vdnnsim.recordings.snapshot_comparison import find
    from vdnnsim.report.document import plain_table, titled_table
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.tables.snapshots import COLUMNS, CSV_COLUMNS, csv_rows, sentences, snapshot_rows

    models = _models(allocators, memory_models)
    limit = _memory(hardware, memory)
    name = file_name(file)
    recordings = [each for each in read_recordings(file) if each.events]
    if not recordings:
        raise RecordingError(
            f"{name}: has no history of requests, expected a snapshot that was taken after "
            "torch.cuda.memory._record_memory_history()"
        )
    findings = [find(each, models, limit, name) for each in recordings]
    table = plain_table(COLUMNS, [row for each in findings for row in snapshot_rows(each)], output.has_all)
    shown = titled_table(name, table, (), [line for each in findings for line in sentences(each)])
    output.show(ResultTable(CSV_COLUMNS, [row for each in findings for row in csv_rows(each)], shown))


def _models(allocators: Sequence[str], memory_models: Sequence[str]) -> "list[MemoryChoice]":
    from vdnnsim.memory.choices import allocator, memory_choice, settings_of

    named = memory_models or (() if allocators else _MEMORY_MODELS)
    models = [read_option("--allocator", allocator, each) for each in allocators]
    models += [read_option("--memory-model", memory_choice, each) for each in named]
    if any((settings := settings_of(each)) is not None and settings.cudnn_benchmark for each in models):
        raise InputError(
            "cudnn_benchmark: found for a snapshot, which has its searches recorded; it is for `vdnnsim run`"
        )
    return list(dict.fromkeys(models))


def _memory(hardware: str | None, memory: str | None) -> "Memory | None":
    """Return the memory for the allocator: of a card without its context, or as given."""
    from vdnnsim.recordings.snapshot_replay import Memory
    from vdnnsim.units import Dimension, parse_quantity

    if hardware is not None and memory is not None:
        raise InputError("--memory: found beside --hardware, expected one of the two")
    if memory is not None:
        nbytes = int(read_option("--memory", parse_quantity, memory, Dimension.BYTES))
        return Memory(nbytes, nbytes)
    if hardware is None:
        return None
    from vdnnsim.hardware.profile import find_profile, load_profile

    gpu = load_profile(find_profile(hardware, Path())).server.gpu
    return Memory(gpu.memory_bytes - gpu.context_bytes, gpu.memory_bytes)


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.argument("file", metavar="FILE", type=FilePath())
@click.argument("options", nargs=-1, type=click.UNPROCESSED, metavar="[OPTIONS OF ITS KIND]")
def read(file: Path, options: Sequence[str]) -> None:
    """Read what was recorded of a training run: a trace, a snapshot.

    A trace of PyTorch's profiler (.json, .json.gz) says what the time of a step is spent on, and becomes a kernel
    table, a profile of its GPU and a workload. A CUDA memory snapshot (.pickle) is replayed under any setting of the
    allocator. `vdnnsim read FILE --help` lists the options for FILE. Nothing in a file is executed.
    """
    from vdnnsim.recordings.recording_file import RecordingKind, kind_of

    command = {RecordingKind.TRACE: read_trace, RecordingKind.SNAPSHOT: read_snapshot}[kind_of(file)]
    command.main(args=[str(file), *options], prog_name="vdnnsim read", standalone_mode=False)
