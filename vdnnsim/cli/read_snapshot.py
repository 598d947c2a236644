"""`vdnnsim read SNAPSHOT`: what a recorded run would have reserved under other settings of the allocator."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import FilePath, prints_table, quantity
from vdnnsim.cli.output import Output
from vdnnsim.errors import InputError, RecordingError

if TYPE_CHECKING:
    from vdnnsim.memory.choices import MemoryChoice
    from vdnnsim.recordings.snapshot_replay import Memory

_ASKED: Final = ("pytorch", "pytorch(expandable_segments:True)")
"""Memory models that are tried where none is named."""


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
@click.option("--hardware", metavar="NAME", help="Does it fit this card? A hardware profile, by name or path.")
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
    from vdnnsim.cli.model import allocator_of
    from vdnnsim.memory.choices import memory_choice, settings_of

    models = [allocator_of(each) for each in allocators]
    try:
        models += [memory_choice(each) for each in memory_models or (() if allocators else _ASKED)]
    except InputError as failure:
        raise InputError(f"--memory-model: {failure}") from None
    if any((settings := settings_of(each)) is not None and settings.cudnn_benchmark for each in models):
        raise InputError("cudnn_benchmark: found for a snapshot, in which searches are recorded; expected it of a run")
    return list(dict.fromkeys(models))


def _memory(hardware: str | None, memory: str | None) -> "Memory | None":
    """Return what there is for the allocator: of a card, what its context leaves."""
    from vdnnsim.recordings.snapshot_replay import Memory
    from vdnnsim.units import Dimension

    if hardware is not None and memory is not None:
        raise InputError("--memory: found beside --hardware, expected one of the two")
    if memory is not None:
        nbytes = int(quantity("--memory", memory, Dimension.BYTES))
        return Memory(nbytes, nbytes)
    if hardware is None:
        return None
    from vdnnsim.hardware.profile import find_profile, load_profile

    gpu = load_profile(find_profile(hardware, Path())).server.gpu
    return Memory(gpu.memory_bytes - gpu.context_bytes, gpu.memory_bytes)
