"""Bars narrower than a few pixels, as thousands of kernels are in one picture."""

from collections.abc import Iterable
from math import inf
from typing import Final

PIXEL: Final = 0.001
"""Share of an axis, about."""
_TOUCHING: Final = 0.1
"""Pixels between two bars that are drawn as one."""


def visible(places: Iterable[tuple[float, float]], pixel: float) -> list[tuple[float, float]]:
    """Return bars, as start and length, that are seen: those that touch joined, and none narrower than a pixel.

    A bar ends no farther than half way to the next one, so that bars which are close stay apart.
    """
    runs: list[tuple[float, float]] = []
    for start, length in sorted(places):
        if runs and start - sum(runs[-1]) < _TOUCHING * pixel:
            first = runs[-1][0]
            runs[-1] = first, max(sum(runs[-1]), start + length) - first
        else:
            runs.append((start, length))
    following = [*(start for start, _ in runs), inf][1:]
    return [
        (start, max(length, min(pixel, (end - start) / 2)))
        for (start, length), end in zip(runs, following, strict=True)
    ]
