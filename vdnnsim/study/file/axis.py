"""The values of one axis: a list, or a range.

    link.bandwidth: [16 GB/s, 32 GB/s]
    workload.batch_size: {from: 16, to: 256, factor: 2}
    gpu.memory: {from: 8 GiB, to: 24 GiB, step: 4 GiB}
    gpu.compute_speed: {from: 1, to: 10, count: 4}

A range ends at the last value that is not above `to`. A count of values has both ends among them, and all are equally
far apart.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

from vdnnsim.files.messages import describe
from vdnnsim.files.value import Entry
from vdnnsim.study.file.keys import Key, find_key
from vdnnsim.study.points.resolve import Value, shown
from vdnnsim.study.study import Axis

MOST_VALUES: Final = 1_000_000
_KINDS: Final = ("step", "factor", "count")
_FARTHEST: Final = 1e100
"""Ends of a range of factors from each other; a float holds no more than 1e308."""
_SLACK: Final = 1e-9
"""Of the last value of a range, what rounding may put it above the end."""


def read_axis(name: str, entry: Entry, parent: Entry, keys: Mapping[str, Key]) -> Axis:
    """Return the axis that stands under a name.

    Raises:
        StudyError: the name or a value is wrong, or stands there twice.
    """
    key = find_key(name, keys, parent)
    values = _range(key, entry) if isinstance(entry.value, dict) and "from" in entry.value else _list(key, entry)
    return Axis(key.name, key.column, values)


def _list(key: Key, entry: Entry) -> tuple[Value, ...]:
    kinds = ", or a range {from, to, step | factor | count}" if key.is_number else ""
    if not isinstance(entry.value, list) or not entry.value:
        raise entry.expected(f"a list of values{kinds}")
    values: dict[Value, None] = {}
    for item in entry.items("values"):
        value = key.read(item)
        if value in values:
            raise item.wrong(f"{shown(value)} stands in this axis already, expected it once")
        values[value] = None
    return tuple(values)


def _range(key: Key, entry: Entry) -> tuple[Value, ...]:
    if not key.is_number:
        raise entry.expected("a list of values")
    members = entry.members(("from", "to"), _KINDS)
    given = [kind for kind in _KINDS if kind in members]
    if len(given) != 1:
        raise entry.wrong(f"found {' and '.join(given) or 'none'} of step, factor and count, expected one of them")
    low, high = _number(key, members["from"]), _number(key, members["to"])
    if low > high:
        raise members["to"].expected(f"no less than {describe(members['from'].value)}")
    numbers = _KIND[given[0]](key, members[given[0]], low, high)
    if not key.is_whole:
        return tuple(numbers)
    if any(number != round(number) for number in numbers):
        raise members[given[0]].expected(f"a {given[0]} with which all values are whole")
    return tuple(round(number) for number in numbers)


def _number(key: Key, entry: Entry) -> float:
    value = key.read(entry)
    assert isinstance(value, int | float), f"{key.name} has no ranges"
    return float(value)


def _stepped(key: Key, entry: Entry, low: float, high: float) -> list[float]:
    step = _number(key, entry)
    if step <= 0:
        raise entry.expected("a step above zero")
    return [low + index * step for index in range(_steps(entry, (high - low) / step))]


def _multiplied(_key: Key, entry: Entry, low: float, high: float) -> list[float]:
    factor = entry.value
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor <= MOST_VALUES:
        raise entry.expected("a factor above 1")
    if low <= 0:
        raise entry.wrong("found a factor of a range from zero, expected a step or a count")
    if high / low > _FARTHEST:
        raise entry.wrong(f"found a range whose end is {high / low:.0e} times its start, expected {_FARTHEST:.0e}")
    return [low * factor**index for index in range(_steps(entry, math.log(high / low) / math.log(factor)))]


def _counted(_key: Key, entry: Entry, low: float, high: float) -> list[float]:
    count = entry.integer(2, MOST_VALUES)
    if low == high:
        raise entry.wrong(f"found {count} values from {low:g} to {high:g}, expected two ends that differ")
    return [low + (high - low) * index / (count - 1) for index in range(count)]


def _steps(entry: Entry, steps: float) -> int:
    if steps >= MOST_VALUES:
        raise entry.expected(f"a range of at most {MOST_VALUES} values")
    return int(steps * (1 + _SLACK)) + 1


_KIND: Final[Mapping[str, Callable[[Key, Entry, float, float], list[float]]]] = {
    "step": _stepped,
    "factor": _multiplied,
    "count": _counted,
}
