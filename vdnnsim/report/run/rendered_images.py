"""What `report.html` shows where no script runs, and on paper: policies as dots, memory over time as areas."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, log10

from vdnnsim.analysis.memory import memory_curve
from vdnnsim.analysis.pareto import pareto_front
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.report.palette import KIND_COLORS
from vdnnsim.units import format_bytes, format_seconds

_COLUMNS = 320
_FAR = 2.5
_LINE = 0.078
"""Height of a name."""
_CHARACTER = 0.019
"""Width of one of its characters."""
_MOST_TOGETHER = 2
_MOST_NAMES = 12
"""Of more dots only those have names at first than which no other is better."""
RIGHT = 0.6
"""Dots further right have their names on their left."""


@dataclass(frozen=True, slots=True)
class Dot:
    """Policies of equal time and memory held; `x`, `y` and the height of its name from 0 to 1.

    `quiet` is one whose name is seen where it is pointed at.
    """

    names: tuple[str, ...]
    told: str
    x: float
    y: float
    fits: bool
    quiet: bool
    label: float = 0.0

    @property
    def name(self) -> str:
        """What stands beside it: the first of its names."""
        more = len(self.names) - _MOST_TOGETHER
        return ", ".join(self.names) if more <= 0 else f"{self.names[0]} and {more + 1} of the same"


def dots(result: ScenarioResult) -> list[Dot]:
    """Return a dot for each place on time against what the driver counts, the latter by its logarithm."""
    places: dict[tuple[str, str], list[PolicyResult]] = {}
    for row in result.slowest:
        key = format_seconds(row.metrics.iteration_s), format_bytes(row.held_bytes(result.server.gpu))
        places.setdefault(key, []).append(row)
    times = [row.metrics.iteration_s for row in result.slowest]
    low, high = _memory_range(result)
    best = result.leader
    metrics = [(rows[0].metrics, rows[0].fits) for rows in places.values()]
    front = pareto_front([(each.iteration_s, each.max_memory_bytes if fits else inf) for each, fits in metrics])
    return _labelled(
        Dot(
            tuple(sorted((row.policy for row in rows), key=lambda name: best is None or name != best.policy)),
            f"{time}, {memory}{'' if rows[0].fits else ', does not fit'}",
            (rows[0].metrics.iteration_s - min(times)) / ((max(times) - min(times)) or 1.0),
            (log10(max(1, rows[0].held_bytes(result.server.gpu))) - low) / (high - low),
            rows[0].fits,
            quiet=len(places) > _MOST_NAMES and not (on_front and rows[0].fits),
        )
        for ((time, memory), rows), on_front in zip(places.items(), front, strict=True)
    )


def _labelled(found: Iterable[Dot]) -> list[Dot]:
    """Return dots with their names at heights at which none stands on another name or dot, near their own."""
    placed: list[Dot] = []
    ordered = sorted(found, key=lambda each: (each.quiet, each.y))
    for dot in ordered:
        if dot.quiet:
            placed.append(replace(dot, label=dot.y))
            continue
        left, right = _extent(dot)
        taken = [each.label for each in placed if _extent(each)[0] < right and left < _extent(each)[1]]
        taken += [each.y for each in ordered if each is not dot and left < each.x < right]
        steps = (number * sign * _LINE / 4 for number in range(200) for sign in (1, -1))
        heights = (dot.y + step for step in steps)
        free = (each for each in heights if each > 0.03 and all(abs(each - other) >= _LINE for other in taken))
        placed.append(replace(dot, label=next(free)))
    return placed


def _extent(dot: Dot) -> tuple[float, float]:
    """Return from where to where a name goes: it stands right of dots on the left, and left of the others."""
    width = _CHARACTER * (2 + len(dot.name))
    return (dot.x, dot.x + width) if dot.x < RIGHT else (dot.x - width, dot.x)


def _memory_range(result: ScenarioResult) -> tuple[float, float]:
    """Return both ends of the scale; a capacity far above all use would leave nothing to see."""
    sizes = [max(1, row.held_bytes(result.server.gpu)) for row in result.slowest]
    near = [capacity] if (capacity := result.server.gpu.memory_bytes) < _FAR * max(sizes) else []
    low, high = log10(min(sizes + near)), log10(max(sizes + near))
    return low - 0.08 * (high - low + 0.1), high + 0.12 * (high - low + 0.1)


def capacity_height(result: ScenarioResult) -> float:
    """Return where the memory of the GPU ends, on the scale of the dots; above 1 where it is far."""
    low, high = _memory_range(result)
    return (log10(result.server.gpu.memory_bytes) - low) / (high - low)


def areas(result: ScenarioResult, shown: PolicyResult) -> list[tuple[str, str, str]]:
    """Return memory over time as areas of 1000 by 100: kind, colour and path, those in front last."""
    curve = memory_curve(shown.trace).envelope(shown.trace.iteration_s, _COLUMNS)
    most, capacity = shown.metrics.max_memory_bytes, result.server.gpu.memory_bytes
    # A capacity far above all use would leave nothing to see.
    top = 1.05 * max(most, capacity if shown.fits and capacity < _FAR * most else 0)
    heights = [0] * _COLUMNS
    found = []
    for kind in KIND_COLORS:
        if any(curve.kinds[kind]):
            heights = [height + nbytes for height, nbytes in zip(heights, curve.kinds[kind], strict=True)]
            steps = "".join(
                f"V{100 - 100 * height / top:.1f}H{1000 * (column + 1) / _COLUMNS:.1f}"
                for column, height in enumerate(heights)
            )
            found.append((kind.value, KIND_COLORS[kind], f"M0,100{steps}V100Z"))
    return found[::-1]
