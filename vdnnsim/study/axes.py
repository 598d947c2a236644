"""Axes of a study: values of a scenario or figures of its machine by key path, as a list or a range.

    link.bandwidth: [16 GB/s, 32 GB/s]
    workload.batch_size: {from: 16, to: 256, factor: 2}
    gpu.memory: {from: 8 GiB, to: 24 GiB, step: 4 GiB}
    gpu.compute_speed: {from: 1, to: 10, count: 4}

A range ends at the last value that is not above `to`; a count has equal steps and both ends among its values.

`link.bandwidth` sets both directions, in a topology of every link of the type that connects GPU 0. There `link.latency`
is that of the whole path from GPU 0 to host memory, of which each link keeps its share. `link.nvlink` joins all GPUs of
a server by a switch, in place of what joins them. Measured copies are scaled by what a figure changes in latency plus
bytes over bandwidth. `gpu.compute_speed` divides the time of every kernel, measured or predicted.
`workload.element_type` is the old name of `workload.precision`.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final

from vdnnsim.cost.parameters import CostParameters
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.engine.host import Execution
from vdnnsim.errors import InputError
from vdnnsim.files.messages import describe, not_one_of, one_line, quote
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.hardware.figures import FIGURES, Definition, definition, quantity
from vdnnsim.hardware.profile import find_profile
from vdnnsim.hardware.stated_figure import parameter_range
from vdnnsim.memory.choices import PinnedMemory, read_memory_model
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.registry import PolicyTypes, resolve_policy
from vdnnsim.scenario.read import LARGEST_BATCH, LONGEST_POLICY, MOST_GPUS, MOST_TOKENS
from vdnnsim.study.points.resolve import (
    EXECUTION_KEY,
    OF_CAPTURE,
    POLICY,
    STEP_KEY,
    TOKENS_KEY,
    Value,
    shown,
    stated_by_capture,
)
from vdnnsim.study.points.server_figures import BANDWIDTH, COMPUTE_SPEED, NVLINK
from vdnnsim.study.study import Axis
from vdnnsim.units import ElementType, Precision

MOST_VALUES: Final = 1_000_000
_KINDS: Final = ("step", "factor", "count")
_FARTHEST: Final = 1e100
"""Largest ratio of the ends of a range of factors; a float holds no more than 1e308."""
_SLACK: Final = 1e-9
"""Share by which rounding may put the last value of a range above its end."""
_SPEEDS: Final = (1e-3, 1e3)
_SPEED_WORDS: Final = "a factor from 0.001 to 1000"
_HOSTS: Final = "hosts"
"""Of a profile; a captured rank states how many there are."""
_OF_RANK: Final = frozenset({"parallel", "layout", "checkpointing"})
_PRECISION, _ELEMENT_TYPE = "workload.precision", "workload.element_type"


@dataclass(frozen=True, slots=True)
class Key:
    """A value or figure that can vary.

    Attributes:
        column: its name in tables; that of a quantity ends in the SI unit.
        is_number: whether it may be a range.
    """

    name: str
    column: str
    read: Callable[[Entry], Value]
    is_number: bool = False
    is_whole: bool = False


def study_keys(policy_types: PolicyTypes, folder: Path) -> Mapping[str, Key]:
    """Return all keys by name; profiles are looked up from a folder."""

    def step(name: str) -> str:
        read_captured_step(folder / name)
        return name

    def machine(name: str) -> str:
        find_profile(name, folder)
        return name

    keys = [
        Key("workload.network", "network", _named(lambda name: build_network(name).name)),
        Key(STEP_KEY, "step", _named(step)),
        Key("workload.batch_size", "batch_size", _integer(LARGEST_BATCH), is_number=True, is_whole=True),
        Key(TOKENS_KEY, "tokens", _integer(MOST_TOKENS), is_number=True, is_whole=True),
        Key(_PRECISION, "precision", _choice(Precision, "a precision")),
        Key(_ELEMENT_TYPE, "element_type", _choice(ElementType, "an element type")),
        Key("workload.optimizer", "optimizer", _choice(Optimizer, "an optimizer")),
        Key("workload.mode", "mode", _choice(Mode, "a mode")),
        Key("hardware", "hardware", _named(machine)),
        Key("gpus", "gpus", _integer(MOST_GPUS), is_number=True, is_whole=True),
        Key(POLICY, "policy", _named(lambda stated: resolve_policy(stated, policy_types), _stated_policy)),
        Key("memory_model", "memory_model", lambda entry: read_memory_model(entry).value),
        Key("pinned_memory", "pinned_memory", _choice(PinnedMemory, "a way to pin memory")),
        Key(EXECUTION_KEY, "execution", _choice(Execution, "a way of execution")),
        Key("gradients", "gradients", _choice(Aggregation, "a way to add up gradients")),
        Key(COMPUTE_SPEED, COMPUTE_SPEED, lambda entry: entry.number(*_SPEEDS, _SPEED_WORDS), is_number=True),
        *_figures(),
    ]
    return {key.name: key for key in keys}


def find_key(name: str, keys: Mapping[str, Key], entry: Entry) -> Key:
    """Return the key of a name, or raise the error of `entry` with the nearest name."""
    if name == _HOSTS:
        raise entry.wrong(
            f"{quote(name)} says how many ranks a machine of several servers can have, and a captured step how many it "
            "has; expected it in a profile, or another capture, as --parallel fsdp=32 for four h100_x8"
        )
    if name in _OF_RANK:
        raise entry.wrong(
            f"{quote(name)} is how a model is captured; expected `vdnnsim parallel MODEL`, which ranks layouts, or a "
            "capture of each, as `workload.step: [one.step.json, another.step.json]`"
        )
    if name not in keys:
        raise entry.wrong(not_one_of(name, keys, "a value of a scenario or a figure of a machine"))
    return keys[name]


def check_combination(names: Collection[str], entry: Entry, captured: CapturedModel | None) -> None:
    """Refuse two names of one key, and keys that the file of a captured step states."""
    for name in sorted(OF_CAPTURE & set(names)):
        if STEP_KEY in names:
            raise entry.wrong(f"{name!r} is given beside {STEP_KEY!r}, whose files state it; expected one of the two")
        if captured is not None:
            raise entry.wrong(f"{name!r}: {stated_by_capture(captured)}")
    if _PRECISION in names and _ELEMENT_TYPE in names:
        raise entry.wrong(f"{_ELEMENT_TYPE!r} is given beside {_PRECISION!r}, expected one of the two")


def _figures() -> Iterator[Key]:
    """Yield the figures that decide a result, with every name below a key."""
    parameters = [field.name for field in fields(CostParameters)]
    yield _figure(BANDWIDTH, definition("link.h2d"))
    yield _figure(NVLINK, definition("link.h2d"))
    for each in FIGURES:
        if not each.stated.decides:
            continue
        if each.below is None:
            yield _figure(each.path, each)
        else:
            yield from (_figure(f"{each.path}.{name}", each) for name in each.names or parameters)


def _figure(name: str, figure: Definition) -> Key:
    limits = parameter_range(name.rpartition(".")[2]) if figure.below is str else figure.stated.range
    unit = limits.dimension.suffix

    def read(entry: Entry) -> Value:
        return quantity(entry, limits, is_whole=figure.is_whole)

    return Key(name, f"{name}_{unit}" if unit else name, read, is_number=True, is_whole=figure.is_whole)


def _named(find: Callable[[Any], Value], read: Callable[[Entry], Any] = Entry.text) -> Callable[[Entry], Value]:
    """Return a reader that looks up by `find` what `read` returns."""

    def named(entry: Entry) -> Value:
        stated = read(entry)
        try:
            return find(stated)
        except InputError as failure:
            raise entry.wrong(one_line(str(failure))) from None

    return named


def _stated_policy(entry: Entry) -> str | dict[str, YamlValue]:
    if not isinstance(entry.value, str | dict) or len(repr(entry.value)) > LONGEST_POLICY:
        raise entry.expected("a policy as vdnn_all(m), or a short mapping with the key policy and its options")
    return entry.value


def _integer(most: int) -> Callable[[Entry], Value]:
    return lambda entry: entry.integer(1, most)


def _choice(choices: type[Enum], what: str) -> Callable[[Entry], Value]:
    return lambda entry: str(entry.choice(choices, what).value)


def read_axis(name: str, entry: Entry, parent: Entry, keys: Mapping[str, Key]) -> Axis:
    """Return the axis of a name, or raise StudyError where the name or a value is wrong, or a value occurs twice."""
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
            raise item.wrong(f"{shown(value)} is in this axis already, expected it once")
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
    numbers = _numbers(key, given[0], members[given[0]], low, high)
    if not key.is_whole:
        return tuple(numbers)
    if any(number != round(number) for number in numbers):
        raise members[given[0]].expected(f"a {given[0]} with which all values are whole")
    return tuple(round(number) for number in numbers)


def _number(key: Key, entry: Entry) -> float:
    value = key.read(entry)
    assert isinstance(value, int | float), f"{key.name} has no ranges"
    return float(value)


def _numbers(key: Key, kind: str, entry: Entry, low: float, high: float) -> list[float]:
    if kind == "step":
        step = _number(key, entry)
        if step <= 0:
            raise entry.expected("a step above zero")
        return [low + index * step for index in range(_steps(entry, (high - low) / step))]
    if kind == "count":
        count = entry.integer(2, MOST_VALUES)
        if low == high:
            raise entry.wrong(f"found {count} values from {low:g} to {high:g}, expected two ends that differ")
        return [low + (high - low) * index / (count - 1) for index in range(count)]
    factor = entry.value
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not 1 < factor <= MOST_VALUES:
        raise entry.expected("a factor above 1")
    if low <= 0:
        raise entry.wrong("found a factor of a range from zero, expected a step or a count")
    if high / low > _FARTHEST:
        raise entry.wrong(f"found a range whose end is {high / low:.0e} times its start, expected {_FARTHEST:.0e}")
    return [low * factor**index for index in range(_steps(entry, math.log(high / low) / math.log(factor)))]


def _steps(entry: Entry, steps: float) -> int:
    if steps >= MOST_VALUES:
        raise entry.expected(f"a range of at most {MOST_VALUES} values")
    return int(steps * (1 + _SLACK)) + 1
