"""The online pool: best fit with coalescing, the rule of cnmem, which vDNN builds on (III-B).

A request takes the smallest free piece that is large enough, the lowest one among equals, and leaves what remains of
it free. A piece that is given back merges at once with its free neighbours. Fragmentation is thus a result.

Source: github.com/NVIDIA/cnmem, src/cnmem.cpp (findBestBlock, releaseBlock).
"""

from collections.abc import Sequence

from vdnnsim.memory.free_pieces import FreePieces
from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


def place_best_fit(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests one by one, without knowledge of those to come."""
    free = FreePieces()
    free.add(0, capacity_bytes)
    held: dict[int, tuple[int, int]] = {}
    offsets: list[int | None] = []
    deltas: list[int] = []
    highest = 0
    for position, request in enumerate(requests):
        if request.nbytes is None:
            start, size = held.pop(request.key)
            free.give_back(start, size)
            offsets.append(start)
            deltas.append(-size)
            continue
        size = round_up(request.nbytes, granule_bytes)
        found = free.take(size)
        if found is None:
            return Overflow(position, tuple(held), free.total_bytes, free.largest_bytes)
        held[request.key] = (found, size)
        offsets.append(found)
        deltas.append(size)
        highest = max(highest, found + size)
    return Placed(tuple(offsets), tuple(deltas), highest)
