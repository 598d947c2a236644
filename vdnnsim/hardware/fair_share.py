"""Max-min fair rates of concurrent copies that share links.

Rates are max-min fair if none can be raised without lowering one that is no higher. They are unique, and progressive
filling finds them: all rates grow together until a channel is full, at which the rates of its copies stay, and so on.

Source: Bertsekas and Gallager, Data Networks, 2nd edition, 1992, section 6.5.2.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Channel = TypeVar("Channel", bound=Hashable)


def max_min_rates(paths: Sequence[Sequence[Channel]], capacities: Mapping[Channel, float]) -> list[float]:
    """Return the rate of each copy over its path of channels, in the unit of the capacities.

    A copy that passes a channel twice, as one into host memory and out of it, takes twice its rate there.
    """
    crossing: dict[Channel, list[int]] = {}
    for copy, path in enumerate(paths):
        assert path, "a copy passes at least one channel"
        for channel in path:
            crossing.setdefault(channel, []).append(copy)
    left = {channel: capacities[channel] for channel in crossing}
    rates = [0.0] * len(paths)
    while crossing:
        # The first of equally full channels in the order of the paths, for determinism.
        fullest = min(crossing, key=lambda channel: left[channel] / len(crossing[channel]))
        rate = left[fullest] / len(crossing[fullest])
        for copy in sorted(set(crossing[fullest])):
            rates[copy] = rate
            for channel in paths[copy]:
                left[channel] = max(0.0, left[channel] - rate)
                crossing[channel].remove(copy)
        for channel in [channel for channel, copies in crossing.items() if not copies]:
            del crossing[channel]
    return rates
