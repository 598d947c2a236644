"""Table and findings of a memory snapshot, as recorded and replayed by memory models."""

from collections.abc import Iterator
from typing import Final

from vdnnsim.files.messages import quote
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.recordings.snapshot import Action
from vdnnsim.recordings.snapshot_comparison import Finding
from vdnnsim.recordings.snapshot_replay import Peaks
from vdnnsim.units import GIB, format_bytes

COLUMNS: Final = ("memory", "GPU", "most in use", "most reserved", "idle of it", "fits")
CSV_COLUMNS: Final = ("memory", "gpu", "most_in_use_bytes", "most_reserved_bytes", "short_bytes")
RECORDED: Final = "as recorded"


def model_name(model: MemoryChoice) -> str:
    return model.value if isinstance(model, MemoryModel) else model.words


def snapshot_rows(finding: Finding) -> Iterator[tuple[str, ...]]:
    yield _row(RECORDED, finding, finding.recorded, "")
    for each in finding.replays:
        fits = "" if finding.memory is None else f"NO, short by up to {format_bytes(each.short_bytes)}"
        yield _row(model_name(each.model), finding, each.peaks, fits if each.short_bytes or not fits else "yes")


def csv_rows(finding: Finding) -> Iterator[tuple[str, int, int, int, int | str]]:
    """Yield the rows of the CSV; `short_bytes` is empty without a limit."""
    gpu, recorded = finding.recording.gpu, finding.recorded
    yield RECORDED, gpu, recorded.allocated_bytes, recorded.reserved_bytes, ""
    for each in finding.replays:
        short = "" if finding.memory is None else each.short_bytes
        yield model_name(each.model), gpu, each.peaks.allocated_bytes, each.peaks.reserved_bytes, short


def sentences(finding: Finding) -> Iterator[str]:
    recording, recorded = finding.recording, finding.recorded
    others = "".join(
        f"; with {model_name(each.model)} the same run reserves {format_bytes(each.peaks.reserved_bytes)}"
        for each in finding.replays
    )
    used = _of(recorded.allocated_bytes, recorded.reserved_bytes)
    yield f"GPU {recording.gpu}: at your peak {used} reserved are used{others}"
    if finding.memory is not None:
        there = format_bytes(finding.memory.free_bytes)
        short = [(each, format_bytes(each.short_bytes)) for each in finding.replays if each.short_bytes]
        lacks = "; ".join(f"with {model_name(each.model)} by up to {nbytes}" for each, nbytes in short)
        fits = f"it would fit the {there} there are"
        yield f"it would not fit the {there} that there are: {lacks}" if short else fits
    yield from _what_was_recorded(finding)


def _what_was_recorded(finding: Finding) -> Iterator[str]:
    recording, settings, agreement, start = finding.recording, finding.settings, finding.agreement, finding.start
    if finding.unread:
        yield f"how its allocator was set is not modelled, and taken for the default: {finding.unread}"
    elif settings != DEFAULTS:
        yield f"it was recorded with PYTORCH_ALLOC_CONF={settings.words}"
    if start.requested:
        nbytes = format_bytes(sum(nbytes for nbytes, _ in start.requested.values()))
        yield (
            f"its history begins with {nbytes} in use, in {len(start.requested):,} blocks: replays ask for them first, "
            "from the lowest address on"
        )
    if agreement is None:
        yield "its segments could grow and its history begins in the middle: replays are not compared by address"
    else:
        yield (
            f"the model puts {agreement.agreed:,} of {agreement.requests:,} requests where PyTorch put them, and "
            f"{'lets segments grow' if recording.expandable else 'takes segments'} {agreement.segments_agreed:,} of "
            f"{agreement.segments:,} times when PyTorch did"
        )
    if refused := sum(each.action is Action.REFUSED for each in recording.events):
        yield f"PyTorch found no room {refused:,} times; replays do not ask for that"
    if recording.private_pools:
        yield "pools of CUDA graphs or of one's own are replayed as if each were a stream"
    for word, count in recording.unknown:
        yield f"{count:,} entries of an unknown kind are left out: {quote(word)}"
    tried = [settings, *(each.model for each in finding.replays if isinstance(each.model, AllocatorSettings))]
    if any(each.garbage_collection_threshold and each.per_process_memory_fraction == 1 for each in tried):
        yield "garbage_collection_threshold does nothing without per_process_memory_fraction below 1"


def _of(used: int, reserved: int) -> str:
    """Return `41.2 of 45.6 GiB`; small sizes each with its unit."""
    if min(used, reserved) >= GIB:
        return f"{format_bytes(used).removesuffix(' GiB')} of {format_bytes(reserved)}"
    return f"{format_bytes(used)} of {format_bytes(reserved)}"


def _row(name: str, finding: Finding, peaks: Peaks, fits: str) -> tuple[str, ...]:
    idle = peaks.reserved_bytes - peaks.allocated_bytes
    sizes = (format_bytes(each) for each in (peaks.allocated_bytes, peaks.reserved_bytes, idle))
    return (name, str(finding.recording.gpu), *sizes, fits)
