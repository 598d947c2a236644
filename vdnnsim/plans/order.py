"""Order between streams: which operations of a plan are done when another one starts, whatever the durations.

The order between streams is followed as knowledge, while the host issues a plan: for each stream and for the host, up
to which position the other streams are known to be done. RecordEvent stores what its stream knows, WaitEvent merges it
into another, HostSynchronize gives it to everything issued later. What is known may be asked of a plan alone, to prove
it, or of what happened: nothing may have started before the end of what its stream knew to be done.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from vdnnsim.plans.operations import Stream

NOTHING: Final = -1
"""The position up to which a stream is known to be done of which nothing is known."""


class StreamOrder:
    """What streams know, while a plan is walked in the order of issue; the caller says which positions it asks for."""

    def __init__(self) -> None:
        self._known = {stream: dict.fromkeys(Stream, NOTHING) for stream in Stream}
        self._host = dict.fromkeys(Stream, NOTHING)
        # Streams that nothing was issued to since the host learned something.
        self._behind: set[Stream] = set()
        self._events: dict[int, Mapping[Stream, int]] = {}

    def reach(self, stream: Stream) -> Mapping[Stream, int]:
        """Return up to which position each stream is done when a stream comes to what the host issues to it now."""
        known = self._known[stream]
        if stream in self._behind:
            _merge(known, self._host)
            self._behind.remove(stream)
        return known

    def run(self, stream: Stream, position: int) -> None:
        """The host issues the operation at a position to a stream."""
        self.reach(stream)
        self._known[stream][stream] = position

    def knows(self, stream: Stream, other: Stream, position: int) -> bool:
        """Return whether a stream that was reached knows another one to be done with a position."""
        return position <= self._known[stream][other]

    def is_recorded(self, event: int) -> bool:
        """Return whether the host has issued the record of an event."""
        return event in self._events

    def record(self, event: int, stream: Stream) -> None:
        """An event is recorded on a stream."""
        self._events[event] = dict(self.reach(stream))

    def wait(self, event: int, stream: Stream) -> None:
        """A stream waits for an event that was recorded."""
        _merge(self._known[stream], self._events[event])

    def synchronize(self, streams: Iterable[Stream]) -> None:
        """The host waits for all that it issued to streams."""
        for stream in streams:
            _merge(self._host, self._known[stream])
        self._behind.update(Stream)


def _merge(known: dict[Stream, int], more: Mapping[Stream, int]) -> None:
    for stream, position in more.items():
        known[stream] = max(known[stream], position)
