"""Traces of PyTorch's caching allocator: recorded on a GPU, and replayed through the simulator's model of it.

PyTorch records every allocation, free, and segment taken or given back (`torch.cuda.memory._record_memory_history`).
The allocations and frees, asked of `vdnnsim.memory.caching` again, must lead to the same reserved memory at the same
moments. The model knows one stream and an allocator that was empty: a trace of anything else is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tests.pytorch_allocator.history import Entry, recorded
from vdnnsim.errors import DeviceError
from vdnnsim.memory.caching import place_pytorch
from vdnnsim.memory.requests import Overflow, Request
from vdnnsim.units import format_bytes


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """The maximum of reserved memory up to a moment at which it rose, as recorded and as replayed.

    Attributes:
        requests: allocations and frees up to then.
        replayed_bytes: None where the model found no room.
    """

    requests: int
    recorded_bytes: int
    replayed_bytes: int | None


def record_trace(work: Callable[[], None], device: int) -> list[Entry]:
    """Run work on a GPU, its cache of memory emptied first, and return what the allocator did.

    Raises:
        DeviceError: beside what was allocated before there is room, in which the work allocated or may have: in a
            segment of the same stream.
    """
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]

    def work_and_wait() -> None:
        work()
        torch.cuda.synchronize(device)

    _, entries = recorded(work_and_wait, device)
    refuse_room_of_before(before, device, entries)
    return entries


def refuse_room_of_before(segments: Sequence[Mapping[str, Any]], device: int, entries: Sequence[Entry]) -> None:
    """Refuse a trace whose allocations may lie in segments of before; see `record_trace`.

    Args:
        segments: what PyTorch's allocators held when the trace began, as `torch.cuda.memory_snapshot` tells it.
        device: on which the trace was recorded.
        entries: the trace.
    """
    streams = {entry["stream"] for entry in entries if entry["action"] == "alloc"}
    for segment in segments:
        room = segment["total_size"] - segment["allocated_size"]
        if segment["device"] == device and segment["stream"] in streams and room:
            raise DeviceError(
                f"a trace of the allocator began with {format_bytes(segment['allocated_size'])} in use beside "
                f"{format_bytes(room)} that are free, expected an empty allocator: delete what was allocated before"
            )


def requests_of(entries: Sequence[Entry]) -> list[Request]:
    """Return the allocations and frees of a trace.

    A free counts when it is completed, which without `record_stream` is at once.

    Raises:
        DeviceError: the trace is of several streams, or frees what was allocated before it began.
    """
    return [request for _, request in _requests_with_places(entries)]


def compare_reserved(entries: Sequence[Entry], capacity_bytes: int, granule_bytes: int = 512) -> list[ReservedMemory]:
    """Replay a trace; return recorded and replayed maxima for every moment at which reserved memory rose to a new one.

    PyTorch records a segment before the allocation for which it was taken, so the moment is that of the allocation.

    Raises:
        DeviceError: as of `requests_of`.
    """
    placed = _requests_with_places(entries)
    requests = [request for _, request in placed]
    compared: list[ReservedMemory] = []
    reserved_bytes = highest_bytes = position = 0
    for count, (place, _) in enumerate(placed, start=1):
        before_bytes = highest_bytes
        for entry in entries[position:place]:
            if entry["action"] in ("segment_alloc", "segment_free"):
                reserved_bytes += entry["size"] if entry["action"] == "segment_alloc" else -entry["size"]
                highest_bytes = max(highest_bytes, reserved_bytes)
        position = place
        if highest_bytes > before_bytes:
            answer = place_pytorch(requests[:count], capacity_bytes, granule_bytes)
            replayed_bytes = None if isinstance(answer, Overflow) else answer.pool_bytes
            compared.append(ReservedMemory(count, highest_bytes, replayed_bytes))
    return compared


def _requests_with_places(entries: Sequence[Entry]) -> list[tuple[int, Request]]:
    requests: list[tuple[int, Request]] = []
    key_at: dict[int, int] = {}
    streams = {entry["stream"] for entry in entries if entry["action"] == "alloc"}
    if len(streams) > 1:
        raise DeviceError(
            f"a trace of the allocator has allocations of {len(streams)} streams, expected one: each has blocks of its "
            "own, which the model does not tell apart"
        )
    for place, entry in enumerate(entries):
        match entry["action"]:
            case "alloc":
                key_at[entry["addr"]] = place
                requests.append((place, Request(place, entry["size"])))
            case "free_completed" if entry["addr"] not in key_at:
                raise DeviceError(
                    f"a trace of the allocator frees {format_bytes(entry['size'])} that were allocated before it "
                    "began, expected an empty allocator: delete what was allocated before"
                )
            case "free_completed":
                requests.append((place, Request(key_at.pop(entry["addr"]), None)))
            case _:
                pass
    return requests
