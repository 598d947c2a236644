"""Races of a program on any streams of a GPU, from its operations in the order of issue.

Two accesses of the same bytes, one of which writes, are a race unless the later one knows the earlier to be done: a
stream knows what it did itself, what an event that it waits for knew when it was recorded, and whatever the host knew
when it issued the work. The host knows what it did itself, and what it synchronized with.

Memory is of pools: a block goes back to that of the stream on which it was allocated, and is handed out there again
at once, whatever other streams still do with it, but for those that it was lent to (`Tensor.record_stream`): then
PyTorch's allocator waits until they are done with what they had when it was freed.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

HOST: Final = -1
"""The stream, as it were, of what the host itself reads and writes."""

Knowledge = dict[int, int]
"""By stream the position up to which it is known to be done."""


@dataclass(frozen=True, slots=True)
class Touch:
    """Bytes that an operation reads, or writes; by their addresses."""

    start: int
    stop: int
    writes: bool

    def disturbs(self, other: "Touch") -> bool:
        return (self.writes or other.writes) and self.start < other.stop and other.start < self.stop


@dataclass(frozen=True, slots=True)
class Work:
    """An operation on a stream, or one of the host."""

    stream: int
    touches: Sequence[Touch]


@dataclass(frozen=True, slots=True)
class Record:
    """An event is recorded on a stream."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class Wait:
    """A stream, or the host, waits for an event."""

    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class Synchronize:
    """The host waits for all that it issued to a stream; None for all of them."""

    stream: int | None


@dataclass(frozen=True, slots=True)
class Lend:
    """The block at an address is used by another stream too."""

    address: int
    stream: int


@dataclass(frozen=True, slots=True)
class Allocated:
    """Bytes are taken from the pool of a stream."""

    start: int
    stop: int
    stream: int


@dataclass(frozen=True, slots=True)
class Freed:
    """Bytes go back to the pool of a stream."""

    start: int
    stop: int
    stream: int


@dataclass(frozen=True, slots=True)
class HandedOn:
    """Bytes that were freed while they were lent are in their pool: the streams that they were lent to are done."""

    start: int


Happening = Work | Record | Wait | Synchronize | Lend | Allocated | Freed | HandedOn


@dataclass(frozen=True, slots=True)
class Hazard:
    """What was not in order: the position of an access, and that of what does not know it to be done.

    That is an `access`; `reuse`, where a pool handed the bytes out again; or `free`, where a copy was about bytes that
    went to a pool whose stream did not wait for it.
    """

    what: str
    first: int
    second: int


@dataclass
class _Order:
    known: dict[int, Knowledge] = field(default_factory=lambda: defaultdict(dict))
    host: Knowledge = field(default_factory=dict)
    events: dict[int, Knowledge] = field(default_factory=dict)
    last: Knowledge = field(default_factory=dict)

    def of(self, stream: int) -> Knowledge:
        """Return what is known by what is issued to a stream now."""
        if stream == HOST:
            return self.host
        _merge(self.known[stream], self.host)
        return self.known[stream]

    def follow(self, position: int, happening: Happening) -> None:
        match happening:
            case Work(stream=stream):
                self.of(stream)[stream] = self.last[stream] = position
            case Record(event=event, stream=stream):
                self.events[event] = dict(self.of(stream))
            case Wait(event=event, stream=stream):
                _merge(self.of(stream), self.events.get(event, {}))
            case Synchronize(stream=None):
                _merge(self.host, self.last)
            case Synchronize(stream=int(stream)):
                _merge(self.host, self.of(stream))
            case _:
                pass


def find_hazards(happenings: Sequence[Happening], copying: Container[int] | None = None) -> list[Hazard]:
    """Return what was not in order of happenings, which come as the host issued them.

    One of the streams in `copying` is to take part, or is about the block since it was allocated. PyTorch's autograd
    has streams wait for each other, and lends gradients to them, unseen, but never to these.
    """
    return _Finder(happenings, copying).found()


class _Finder:
    def __init__(self, happenings: Sequence[Happening], copying: Container[int] | None) -> None:
        self._happenings, self._copying = happenings, copying
        self._order = _Order()
        self._accesses: dict[int, list[tuple[int, Sequence[Touch]]]] = defaultdict(list)
        # By address of a block, since when it is one; to whom it is lent; and what is done once it is handed on.
        self._since: dict[int, int] = {}
        self._lent: dict[int, set[int]] = defaultdict(set)
        self._done: dict[int, Knowledge] = {}
        # All that was allocated: when, what, and from whose pool.
        self._taken: list[tuple[int, Touch, int]] = []

    def found(self) -> list[Hazard]:
        """Go through all of it."""
        found: list[Hazard] = []
        for at, happening in enumerate(self._happenings):
            match happening:
                case Work(stream=stream, touches=touches):
                    found += [Hazard("access", each, at) for _, each in self._unknown(stream, touches)]
                    self._accesses[stream].append((at, touches))
                case Lend(address=address, stream=stream):
                    self._lent[address].add(stream)
                case Allocated(start=start, stop=stop, stream=stream):
                    block = Touch(start, stop, writes=True)
                    unknown = self._unknown(stream, [block])
                    found += [Hazard("reuse", each, at) for other, each in unknown if self._is_of_copies(other)]
                    self._since[start] = at
                    self._taken.append((at, block, stream))
                case Freed():
                    found += [Hazard("free", each, at) for each in self._free(happening)]
                case HandedOn(start=start):
                    _merge(self._order.host, self._done.pop(start, {}))
                case _:
                    pass
            self._order.follow(at, happening)
        return found

    def _is_of_copies(self, stream: int) -> bool:
        return self._copying is None or stream in self._copying

    def _unknown(self, stream: int, touches: Sequence[Touch], since: int = -1) -> Iterator[tuple[int, int]]:
        """Yield what a stream does not know to be done, with whose stream it is."""
        known = self._order.of(stream)
        for other, theirs in self._accesses.items():
            if other == stream:
                continue
            for position, touched in reversed(theirs):
                if position <= max(known.get(other, -1), since):
                    break
                pairs = [(one, two) for one in touched for two in touches if one.disturbs(two)]
                if any(self._matters(other, stream, position, *pair) for pair in pairs):
                    yield other, position

    def _matters(self, first: int, second: int, position: int, one: Touch, two: Touch) -> bool:
        if self._copying is None:
            return True
        start, stop = max(one.start, two.start), min(one.stop, two.stop)
        pools = (pool for at, each, pool in reversed(self._taken) if at > position and _covers(each, start, stop))
        pool = next(pools, None)
        if pool is None:
            return first in self._copying or second in self._copying
        # Whether the block may have been handed out is asked when it is.
        return second in self._copying and first == pool

    def _free(self, freed: Freed) -> list[int]:
        """Return what is about a block of a copy that its pool does not know to be done."""
        start, block = freed.start, Touch(freed.start, freed.stop, writes=True)
        since, users = self._since.get(start, -1), self._lent.pop(start, set()) - {freed.stream}
        self._done[start] = {}
        for user in users:
            _merge(self._done[start], self._order.of(user))
        if self._copying is None:
            return []
        copied = any(
            position > since and any(each.disturbs(block) for each in touched)
            for stream, accesses in self._accesses.items()
            if stream in self._copying
            for position, touched in accesses
        )
        if not copied:
            return []
        before, self._copying = self._copying, None
        found = [
            each
            for other, each in self._unknown(freed.stream, [block], since)
            if each > self._done[start].get(other, -1)
        ]
        self._copying = before
        return found


def _covers(block: Touch, start: int, stop: int) -> bool:
    return block.start <= start and stop <= block.stop


def _merge(known: Knowledge, more: Knowledge) -> None:
    for stream, position in more.items():
        known[stream] = max(known.get(stream, -1), position)
