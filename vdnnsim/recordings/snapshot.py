"""A CUDA memory snapshot of PyTorch's, as `torch.cuda.memory._dump_snapshot` pickles it: what the allocator was asked.

A snapshot has for each GPU the segments that its allocator holds at the end, with the blocks in them, and the history
of what it was asked and did, whose beginning is lost where it was longer than its buffer. Formats differ: at first
blocks had no address and no requested size, but a `history`; settings of the allocator and pools of events came later.

Source: github.com/pytorch/pytorch, torch/csrc/cuda/memory_snapshot.cpp and torch/cuda/_memory_viz.py.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from vdnnsim.errors import RecordingError
from vdnnsim.messages import describe, file_name, printable
from vdnnsim.recordings.plain_pickle import read_plain_pickle
from vdnnsim.recordings.recording_file import read_recording

_DEFAULT_POOL: Final = (0, 0)
_MOST_GPUS: Final = 1024
_LONGEST_WORD: Final = 40


class Action(Enum):
    """What an allocator was asked or did, in the words of a snapshot."""

    ALLOCATE = "alloc"
    FREE_REQUESTED = "free_requested"
    FREE_COMPLETED = "free_completed"
    SEGMENT_TAKEN = "segment_alloc"
    SEGMENT_GIVEN_BACK = "segment_free"
    PAGES_MAPPED = "segment_map"
    PAGES_UNMAPPED = "segment_unmap"
    REFUSED = "oom"


_ACTIONS: Final[Mapping[object, Action]] = {each.value: each for each in Action}
_NOTES: Final = frozenset({"snapshot", "user_defined"})
"""What a history has beside: marks that ask nothing of the allocator."""


class Event(NamedTuple):
    """One entry of the history.

    Attributes:
        stream: a number for the stream and the pool, 0 for the default ones.
    """

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
    """What was recorded of one GPU.

    Attributes:
        gpu: its number.
        segments: at the end.
        events: in the order of time.
        settings: what PYTORCH_ALLOC_CONF said, where the snapshot tells it.
        expandable: whether any segment could grow.
        private_pools: whether blocks lay in pools of CUDA graphs or of the user's.
        unknown: entries of kinds that are not known, which are left out, by kind.
    """

    gpu: int
    segments: tuple[HeldSegment, ...]
    events: tuple[Event, ...]
    settings: str = ""
    expandable: bool = False
    private_pools: bool = False
    unknown: tuple[tuple[str, int], ...] = ()


def read_recordings(path: Path) -> tuple[Recording, ...]:
    """Read the recordings of all GPUs that have a segment or a history.

    Raises:
        RecordingError: the file cannot be read, or is not a memory snapshot.
    """
    name = file_name(path)
    root = read_plain_pickle(read_recording(path), name)
    # `torch.cuda.memory_snapshot()` returns the segments alone.
    content = {"segments": root, "device_traces": []} if isinstance(root, list) else root
    if not isinstance(content, dict) or "segments" not in content or "device_traces" not in content:
        raise RecordingError(f"{name}: is no memory snapshot, expected one that torch.cuda.memory._dump_snapshot wrote")
    return tuple(_recordings(_Value(content, name)))


def _recordings(root: "_Value") -> Iterator[Recording]:
    settings = _settings_of(root)
    numbers = _Streams()
    segments: dict[int, list[HeldSegment]] = {}
    expandable: set[int] = set()
    for each in root["segments"].items():
        gpu = each["device"].integer(_MOST_GPUS)
        segments.setdefault(gpu, []).append(_segment(each, numbers))
        if each.has("is_expandable") and each["is_expandable"].value is True:
            expandable.add(gpu)
    for gpu, trace in enumerate(root["device_traces"].items()):
        unknown: Counter[str] = Counter()
        events = tuple(_events(trace, numbers, unknown))
        if events or gpu in segments:
            grew = gpu in expandable or any(each.action is Action.PAGES_MAPPED for each in events)
            held = tuple(sorted(segments.pop(gpu, ())))
            yield Recording(gpu, held, events, settings, grew, numbers.private, tuple(unknown.most_common()))
    for gpu, rest in sorted(segments.items()):
        yield Recording(gpu, tuple(sorted(rest)), (), settings, gpu in expandable, numbers.private)


def _segment(value: "_Value", streams: "_Streams") -> HeldSegment:
    address = at = value["address"].integer()
    blocks = []
    for block in value["blocks"].items():
        size = block["size"].integer()
        state = block["state"].value
        if not isinstance(state, str) or not state.startswith(("active_", "inactive")):
            raise block["state"].expected("active_allocated, active_awaiting_free or inactive")
        if state.startswith("active_"):
            blocks.append(HeldBlock(at, size, _requested_bytes(block, size)))
        at += size
    stream = streams.number(value, "segment_pool_id")
    small = value["segment_type"].value == "small"
    return HeldSegment(address, value["total_size"].integer(), stream, small, tuple(blocks))


def _requested_bytes(block: "_Value", size: int) -> int:
    """Return what was asked for; in old snapshots, what the history of the block says, or its size."""
    if block.has("requested_size"):
        return block["requested_size"].integer()
    if block.has("history") and (history := list(block["history"].items())) and history[0].has("real_size"):
        return history[0]["real_size"].integer()
    return size


def _events(trace: "_Value", streams: "_Streams", unknown: Counter[str]) -> Iterator[Event]:
    for each in trace.items():
        word = each["action"].value
        action = _ACTIONS.get(word) if isinstance(word, str) else None
        if action is not None:
            address = 0 if action is Action.REFUSED else each["addr"].integer()
            yield Event(action, address, each["size"].integer(), streams.number(each, "pool_id"))
        elif word not in _NOTES:
            unknown[printable(str(word))[:_LONGEST_WORD]] += 1


def _settings_of(root: "_Value") -> str:
    if not root.has("allocator_settings"):
        return ""
    settings = root["allocator_settings"]
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        if settings.has(name) and isinstance(text := settings[name].value, str):
            return text
    return ""


class _Streams:
    """Numbers for streams and the pools that their blocks lie in.

    Attributes:
        private: whether there was any pool but the default one.
    """

    def __init__(self) -> None:
        self._numbers: dict[tuple[int, object], int] = {(0, _DEFAULT_POOL): 0}
        self.private = False

    def number(self, value: "_Value", pool_key: str) -> int:
        """Return the number of the stream of a segment or an event."""
        pool = value[pool_key].value if value.has(pool_key) else _DEFAULT_POOL
        if not isinstance(pool, tuple) or not all(isinstance(each, int) for each in pool):
            raise value[pool_key].expected("two integers")
        self.private |= pool != _DEFAULT_POOL
        return self._numbers.setdefault((value["stream"].integer(), pool), len(self._numbers))


class _Value:
    """A value in a snapshot and its place, as messages call it."""

    __slots__ = ("_place", "value")

    def __init__(self, value: object, place: str) -> None:
        self.value = value
        self._place = place

    def has(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def __getitem__(self, key: str) -> "_Value":
        if not isinstance(self.value, dict):
            raise self.expected("a dictionary")
        if key not in self.value:
            raise RecordingError(f"{self._place}: {key!r} is missing, expected what a memory snapshot has")
        return _Value(self.value[key], f"{self._place}: {key}")

    def items(self) -> Iterator["_Value"]:
        if not isinstance(self.value, list):
            raise self.expected("a list")
        return (_Value(each, f"{self._place}[{place}]") for place, each in enumerate(self.value))

    def integer(self, below: int = 2**63) -> int:
        value = self.value
        # Addresses are signed in some snapshots; sizes of an out-of-memory entry may be 0.
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < below:
            raise self.expected(f"an integer from 0 to {below - 1}")
        return value

    def expected(self, what: str) -> RecordingError:
        return RecordingError(f"{self._place}: found {describe(self.value)}, expected {what}")
