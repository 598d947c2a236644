"""The pool without addresses: it counts bytes and never fragments. What the papers' figures add up."""

from collections.abc import Sequence

from vdnnsim.memory.requests import Overflow, Placed, Request, round_up


def place_ideal(requests: Sequence[Request], capacity_bytes: int, granule_bytes: int) -> Placed | Overflow:
    """Serve requests as long as the sum of what is in use stays within the capacity."""
    held: dict[int, int] = {}
    deltas: list[int] = []
    in_use = peak = 0
    for position, request in enumerate(requests):
        if request.nbytes is None:
            delta = -held.pop(request.key)
        else:
            delta = held[request.key] = round_up(request.nbytes, granule_bytes)
            if in_use + delta > capacity_bytes:
                del held[request.key]
                free = capacity_bytes - in_use
                return Overflow(position, tuple(held), free, free)
        in_use += delta
        peak = max(peak, in_use)
        deltas.append(delta)
    return Placed((None,) * len(deltas), tuple(deltas), peak)
