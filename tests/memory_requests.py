"""Requests to a memory pool, and the checks that every pool must pass."""

from collections.abc import Callable, Sequence

from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.models import place
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.units import MIB


def take(key: int, mib: float) -> Request:
    return Request(key, round(mib * MIB))


def give(key: int) -> Request:
    return Request(key, None)


def toggled(toggles: Sequence[tuple[int, int]]) -> list[Request]:
    """Read (key, bytes) as requests: a key that is not in use allocates the bytes, one that is frees them."""
    requests = []
    held: set[int] = set()
    for key, nbytes in toggles:
        requests.append(give(key) if key in held else Request(key, nbytes))
        held ^= {key}
    return requests


def rest_given_back(requests: Sequence[Request]) -> list[Request]:
    """Return frees of all that is in use after requests, in the order of keys."""
    held: set[int] = set()
    for request in requests:
        held ^= {request.key}
    return [give(key) for key in sorted(held)]


def placed(answer: Placed | Overflow) -> Placed:
    assert isinstance(answer, Placed)
    return answer


def assert_no_overlap(requests: Sequence[Request], answer: Placed) -> None:
    """Regions of a pool may lie apart, so that addresses exceed its bytes."""
    live: dict[int, tuple[int, int]] = {}
    for request, offset, delta in zip(requests, answer.offsets, answer.deltas, strict=True):
        assert offset is not None
        if request.nbytes is None:
            assert live.pop(request.key) == (offset, offset - delta), "freed where it was allocated"
            continue
        assert offset >= 0
        assert request.nbytes <= delta
        assert all(offset + delta <= start or end <= offset for start, end in live.values())
        live[request.key] = (offset, offset + delta)
        assert sum(end - start for start, end in live.values()) <= answer.pool_bytes


def assert_tells_the_truth(
    answer: Overflow, requests: Sequence[Request], taken: Placed, capacity_bytes: int, asked_bytes: int
) -> None:
    """Check the held keys and free bytes of an overflow after `taken`; `asked_bytes` are rounded."""
    before = requests[: answer.position]
    held = [request.key for request in before if request.nbytes is not None]
    given_back = [request.key for request in before if request.nbytes is None]

    assert requests[answer.position].nbytes is not None
    assert sorted([*answer.held, *given_back]) == sorted(held)
    assert answer.free_bytes == capacity_bytes - sum(taken.deltas)
    assert 0 <= answer.largest_free_bytes <= answer.free_bytes
    assert asked_bytes > answer.largest_free_bytes


def serving(model: MemoryModel) -> Callable[[Sequence[Request], int, int], Placed | Overflow]:
    return lambda requests, capacity_bytes, granule_bytes: place(requests, model, capacity_bytes, granule_bytes)


def written(text: str, unit: int = MIB) -> list[Request]:
    """Read `8 -0 4.5`: keys 0, 1, ... allocate so many MiB, or another unit, and `-0` frees what key 0 holds.

    `0:12` lets key 0 hold as much from then on, or, where it holds nothing, allocate again.
    """
    requests: list[Request] = []
    held: set[int] = set()
    for word in text.split():
        if word.startswith("-"):
            requests.append(give(int(word[1:])))
            held.discard(int(word[1:]))
            continue
        key, _, size = word.rpartition(":")
        number = int(key) if key else 1 + max((each.key for each in requests), default=-1)
        requests.append(Request(number, round(float(size) * unit), resizes=number in held))
        held.add(number)
    return requests


def taken(pool: CachingAllocator, mib: float, stream: int = 0) -> Block:
    """Return the block that an allocator gives for so many MiB."""
    block = pool.take(round(mib * MIB), stream)
    assert block is not None
    return block
