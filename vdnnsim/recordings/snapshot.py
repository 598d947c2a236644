"""CUDA memory snapshots of PyTorch, as `torch.cuda.memory._dump_snapshot` pickles them.

A snapshot has for each GPU the segments of the allocator at the end, with their blocks, and the history of its events,
whose beginning is lost if it was longer than its buffer. In old formats blocks have no address and no requested size,
but a `history`; settings of the allocator and pools of events came later.

Source: github.com/pytorch/pytorch, torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/_memory_viz.py.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import file_name, printable
from vdnnsim.recordings.recording_file import mismatch, read_plain_pickle, read_recording

_DEFAULT_POOL: Final = (0, 0)
_MOST_BYTES: Final = 2**58
"""Of all requests; unlimited memory is four times as large."""
_EXPECTED: Final = "expected one that torch.cuda.memory._dump_snapshot wrote"
_LONGEST_WORD: Final = 40


class Action(Enum):
    """Events of an allocator, in the words of a snapshot."""

    ALLOCATE = "alloc"
    FREE_REQUESTED = "free_requested"
    FREE_COMPLETED = "free_completed"
    SEGMENT_TAKEN = "segment_alloc"
    SEGMENT_GIVEN_BACK = "segment_free"
    PAGES_MAPPED = "segment_map"
    PAGES_UNMAPPED = "segment_unmap"
    REFUSED = "oom"


_ACTIONS: Final[Mapping[str, Action]] = {each.value: each for each in Action}
_NOTES: Final = frozenset({"snapshot", "user_defined"})
"""Other entries of a history, which are no events of the allocator."""


class Event(NamedTuple):
    """One entry of the history; `stream` is a number for the stream and the pool, 0 for the default ones."""

    action: Action
    address: int
    nbytes: int
    stream: int


class HeldBlock(NamedTuple):
    """A block in use, or waiting for a stream, at the end."""

    address: int
    nbytes: int
    requested_bytes: int


class HeldSegment(NamedTuple):
    """A segment at the end, with the blocks in it that are not free."""

    address: int
    nbytes: int
    stream: int
    small: bool
    blocks: tuple[HeldBlock, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """The recording of one GPU.

    Attributes:
        settings: PYTORCH_ALLOC_CONF, if the snapshot has it.
        expandable: whether any segment could grow.
        private_pools: whether blocks were in pools of CUDA graphs or of the user.
        unknown: numbers of entries of unknown kinds, which are left out.
    """

    gpu: int
    segments: tuple[HeldSegment, ...]
    events: tuple[Event, ...]
    settings: str = ""
    expandable: bool = False
    private_pools: bool = False
    unknown: tuple[tuple[str, int], ...] = ()


_Gpu = Annotated[int, msgspec.Meta(ge=0, lt=1024)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Pool = tuple[int, int]


class _Asked(msgspec.Struct):
    real_size: _Count | None = None


class _Block(msgspec.Struct):
    size: _Count
    state: Annotated[str, msgspec.Meta(pattern="^(active_|inactive)")]
    requested_size: _Count | None = None
    history: list[_Asked] = []

    @property
    def requested_bytes(self) -> int:
        """The requested size; in old snapshots, that in the history of the block, or else its size."""
        asked = self.history[0].real_size if self.requested_size is None and self.history else self.requested_size
        return self.size if asked is None else asked


class _Segment(msgspec.Struct):
    device: _Gpu
    address: _Count
    total_size: _Count
    stream: _Count
    segment_type: str
    blocks: list[_Block]
    segment_pool_id: _Pool = _DEFAULT_POOL
    is_expandable: bool = False


class _Entry(msgspec.Struct):
    action: str
    size: _Count
    stream: _Count
    # A refused request has none.
    addr: _Count | None = None
    pool_id: _Pool = _DEFAULT_POOL


class _Snapshot(msgspec.Struct):
    segments: list[_Segment]
    device_traces: list[list[_Entry]]
    allocator_settings: dict[str, Any] = {}


def read_recordings(path: Path) -> tuple[Recording, ...]:
    """Read the recordings of all GPUs that have a segment or a history.

    Raises:
        RecordingError: the file cannot be read, or is not a memory snapshot.
    """
    name = file_name(path)
    root = read_plain_pickle(read_recording(path), name)
    # `torch.cuda.memory_snapshot()` returns the segments alone.
    content = {"segments": root, "device_traces": []} if isinstance(root, list) else root
    try:
        snapshot = msgspec.convert(content, _Snapshot)
    except msgspec.ValidationError as failure:
        raise RecordingError(f"{name}: is not a memory snapshot: {mismatch(failure)}; {_EXPECTED}") from None
    recordings = tuple(_recordings(snapshot, name))
    for each in recordings:
        events = sum(event.nbytes for event in each.events if event.action is not Action.REFUSED)
        blocks = sum(block.requested_bytes for segment in each.segments for block in segment.blocks)
        if max(events, blocks, *(segment.nbytes for segment in each.segments), 0) > _MOST_BYTES:
            raise RecordingError(f"{name}: has sizes that no GPU {each.gpu} can have had, {_EXPECTED}")
    return recordings


def _recordings(snapshot: _Snapshot, name: str) -> Iterator[Recording]:
    stated = (snapshot.allocator_settings.get(each) for each in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"))
    settings = next((each for each in stated if isinstance(each, str)), "")
    numbers = _Streams()
    segments: dict[int, list[HeldSegment]] = {}
    for each in snapshot.segments:
        segments.setdefault(each.device, []).append(_segment(each, numbers))
    expandable = {each.device for each in snapshot.segments if each.is_expandable}
    for gpu, trace in enumerate(snapshot.device_traces):
        unknown: Counter[str] = Counter()
        events = tuple(_events(trace, numbers, unknown, f"{name}: device_traces[{gpu}]"))
        if events or gpu in segments:
            grew = gpu in expandable or any(each.action is Action.PAGES_MAPPED for each in events)
            held = tuple(sorted(segments.pop(gpu, ())))
            yield Recording(gpu, held, events, settings, grew, numbers.private, tuple(unknown.most_common()))
    for gpu, rest in sorted(segments.items()):
        yield Recording(gpu, tuple(sorted(rest)), (), settings, gpu in expandable, numbers.private)


def _segment(segment: _Segment, streams: "_Streams") -> HeldSegment:
    at = segment.address
    blocks = []
    for block in segment.blocks:
        if block.state.startswith("active_"):
            blocks.append(HeldBlock(at, block.size, block.requested_bytes))
        at += block.size
    stream = streams.number(segment.stream, segment.segment_pool_id)
    return HeldSegment(segment.address, segment.total_size, stream, segment.segment_type == "small", tuple(blocks))


def _events(trace: Iterable[_Entry], streams: "_Streams", unknown: Counter[str], place: str) -> Iterator[Event]:
    for number, each in enumerate(trace):
        action = _ACTIONS.get(each.action)
        if action is None:
            unknown.update([printable(each.action)[:_LONGEST_WORD]] * (each.action not in _NOTES))
            continue
        if each.addr is None and action is not Action.REFUSED:
            raise RecordingError(f"{place}[{number}]: {each.action} without 'addr', {_EXPECTED}")
        yield Event(action, each.addr or 0, each.size, streams.number(each.stream, each.pool_id))


class _Streams:
    """Numbers for streams with pools; `private` says whether there was another pool than the default."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, _Pool], int] = {(0, _DEFAULT_POOL): 0}
        self.private = False

    def number(self, stream: int, pool: _Pool) -> int:
        self.private |= pool != _DEFAULT_POOL
        return self._numbers.setdefault((stream, pool), len(self._numbers))
