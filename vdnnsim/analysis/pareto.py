"""What is better of several things that cost two ways at once."""

from collections.abc import Sequence


def ranks(values: Sequence[float]) -> tuple[int, ...]:
    """Return the rank of each value, 1 for the least; equal ones share a rank and leave out those behind it."""
    first = {value: rank for rank, value in reversed(list(enumerate(sorted(values), start=1)))}
    return tuple(first[value] for value in values)


def pareto_front(points: Sequence[tuple[float, float]]) -> tuple[bool, ...]:
    """Return of each point whether none is better: less in one of the two costs and no more in the other.

    Equal points are on the front together, or not at all.
    """
    front: set[tuple[float, float]] = set()
    least = float("inf")
    for point in sorted(set(points)):
        if point[1] < least:
            front.add(point)
            least = point[1]
    return tuple(point in front for point in points)
