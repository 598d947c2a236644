"""Order between streams: the operations of a plan that happen before another, whatever the durations.

For each stream and for the host the position up to which every other stream is known to be done is tracked in issue
order, like vector clocks: RecordEvent stores the clock of its stream, WaitEvent merges it into another stream's,
HostSynchronize into that of everything issued later.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from vdnnsim.plans.operations import Stream

NOTHING: Final = -1
"""The position of a stream of which nothing is known."""


class StreamOrder:
    """The clocks of all streams while a plan is walked in issue order."""

    def __init__(self) -> None:
        self._known = {stream: dict.fromkeys(Stream, NOTHING) for stream in Stream}
        self._host = dict.fromkeys(Stream, NOTHING)
        # Streams without an operation since the last synchronization.
        self._behind: set[Stream] = set()
        self._events: dict[int, Mapping[Stream, int]] = {}

    def reach(self, stream: Stream) -> Mapping[Stream, int]:
        """Return the positions up to which each stream is done before the next operation on a stream."""
        known = self._known[stream]
        if stream in self._behind:
            _merge(known, self._host)
            self._behind.remove(stream)
        return known

    def run(self, stream: Stream, position: int) -> None:
        self.reach(stream)
        self._known[stream][stream] = position

    def knows(self, stream: Stream, other: Stream, position: int) -> bool:
        """Return whether a position of another stream happens before the next operation on a stream."""
        return position <= self._known[stream][other]

    def is_recorded(self, event: int) -> bool:
        return event in self._events

    def record(self, event: int, stream: Stream) -> None:
        self._events[event] = dict(self.reach(stream))

    def wait(self, event: int, stream: Stream) -> None:
        _merge(self._known[stream], self._events[event])

    def synchronize(self, streams: Iterable[Stream]) -> None:
        for stream in streams:
            _merge(self._host, self._known[stream])
        self._behind.update(Stream)


def _merge(known: dict[Stream, int], more: Mapping[Stream, int]) -> None:
    for stream, position in more.items():
        known[stream] = max(known[stream], position)
