"""What came of the recording of one GPU: as PyTorch did, as the model of its allocator does, and as others would."""

from collections.abc import Sequence
from dataclasses import dataclass

from vdnnsim.errors import InputError
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings, parse_settings
from vdnnsim.recordings.snapshot import Recording
from vdnnsim.recordings.snapshot_replay import Memory, Peaks, Replay, recorded_peaks, replay
from vdnnsim.recordings.snapshot_start import Start, start_of
from vdnnsim.recordings.snapshot_twin import Agreement, compare


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of the recording of one GPU.

    Attributes:
        settings: of its allocator, as far as they are modelled.
        unread: why they could not be read; empty where they could.
        agreement: how far the model does what PyTorch did; None where that cannot be known.
        replays: by memory model, each from an empty memory on.
        memory: what there is; None where no limit was given.
    """

    recording: Recording
    settings: AllocatorSettings
    unread: str
    start: Start
    recorded: Peaks
    agreement: Agreement | None
    replays: tuple[Replay, ...]
    memory: Memory | None


def find(recording: Recording, models: Sequence[MemoryChoice], memory: Memory | None, name: str) -> Finding:
    """Replay a recording under memory models, and hold the model of PyTorch's allocator against it.

    Raises:
        RecordingError: the recording contradicts itself.
    """
    settings, unread = DEFAULTS, ""
    try:
        settings = parse_settings(recording.settings)
    except InputError as failure:
        unread = str(failure)
    start = start_of(recording, settings, name)
    agreement = compare(recording, start, settings)
    recorded = recorded_peaks(recording, start, settings)
    if agreement is not None and agreement.whole:
        recorded = Peaks(agreement.most_allocated_bytes, recorded.reserved_bytes)
    replays = tuple(replay(recording, start, model, memory) for model in models)
    return Finding(recording, settings, unread, start, recorded, agreement, replays, memory)
