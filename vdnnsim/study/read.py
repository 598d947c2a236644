"""Reading a study file: a scenario, its axes, conditions on their values, and pictures.

    schema_version: 1
    scenario: ../vgg416.yaml
    axes:
      policy: [vdnn_all(m), vdnn_conv(p)]
      link.bandwidth: {from: 16 GB/s, to: 512 GB/s, factor: 2}
      gpu.memory: [12 GiB, 24 GiB]
    where: policy != 'vdnn_conv(p)' or gpu.memory >= 24 GiB
    pictures:
      - {name: speed, title: Speed, kind: lines, x: gpu.memory_bytes, y: samples_per_s, by: policy}

`scenario` is a path from the study's folder, or a mapping. Without an axis `policy`, the policies of the scenario are
one. `axes.py` has all axes, `pictures.py` all pictures.

A condition leaves out combinations. It consists of comparisons of the key of an axis with a value as in the axis,
joined by and, or, not and parentheses; text with other characters than letters, digits and _.-+/ is quoted.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from pathlib import Path
from typing import Any, Final

from vdnnsim.errors import InputError, StudyError
from vdnnsim.files.messages import file_name, not_one_of, printable, quote
from vdnnsim.files.packaged import shipped_name
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import FileKind, YamlFile, kind_of, plain_value, read_yaml
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.scenario.read import read_scenario, resolve_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.axes import Key, check_combination, read_axis, study_keys
from vdnnsim.study.pictures import read_pictures
from vdnnsim.study.points.resolve import POLICY, shown
from vdnnsim.study.results import WORDS, table_header
from vdnnsim.study.study import MOST_POINTS, Axis, Condition, Study

SCHEMA_VERSION: Final = 1
_LARGEST_GRID: Final = 10**12
_MOST_COMPARISONS: Final = 50_000_000
"""At all points, which takes some seconds."""
_WORD: Final = r"(?<![\w.+/-])(?!(?:and|or|not)(?![\w.+/-]))[\w.+/-]+"
_COMPARISON: Final = re.compile(
    rf"({_WORD})\s*(==|!=|<=|>=|<|>)\s*(?:'([^']*)'|\"([^\"]*)\"|({_WORD}(?:\s+{_WORD})*))", re.ASCII
)
_BETWEEN: Final = re.compile(r"(?:\s|[()]|\b(?:and|or|not)\b)*")
_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EXPECTED: Final = "comparisons as `gpu.memory >= 24 GiB` with and, or, not and parentheses"


def read_study(path: Path, policy_types: PolicyTypes | None = None) -> Study:
    """Read a study with its scenario and profile; policies are resolved among those given, else among all known.

    Raises:
        StudyError: the file cannot be read, or something in it is wrong.
        InputError: the same of the scenario or its profile.
    """
    types = known_policies() if policy_types is None else policy_types
    file = read_yaml(path, StudyError, FileKind.STUDY)
    file.root.check_schema_version(SCHEMA_VERSION)
    members = file.root.members(("schema_version", "scenario", "axes"), ("where", "pictures"))
    base = _base(file, members["scenario"], path, types)
    keys = study_keys(types, path.parent)
    named = members["axes"].named_members("axes")
    if not named:
        raise members["axes"].expected("at least one axis")
    check_combination(named, members["axes"], base.captured)
    axes = [read_axis(name, entry, members["axes"], keys) for name, entry in named.items()]
    if POLICY not in named:
        axes.append(Axis(POLICY, POLICY, base.policies))
    points = prod(len(axis.values) for axis in axes)
    if points > _LARGEST_GRID:
        raise members["axes"].wrong(f"found a grid of {points} points, expected {_LARGEST_GRID} at most")
    varied = {axis.key: keys[axis.key] for axis in axes}
    where: tuple[Condition, ...] = ()
    if "where" in members:
        texts = members["where"]
        entries = texts.items("conditions") if isinstance(texts.value, list) else (texts,)
        where = tuple(read_condition(entry, varied) for entry in entries)
        at_each = sum(len(_COMPARISON.findall(entry.text())) for entry in entries)
        if points <= MOST_POINTS and at_each * points > _MOST_COMPARISONS:
            most = f"expected {_MOST_COMPARISONS} in all at most"
            raise texts.wrong(f"found {at_each} comparisons at each of {points} points, {most}")
    name = shipped_name(file.name)
    study = Study(
        name=printable(path.stem),
        base=base,
        axes=tuple(axes),
        where=where,
        sources=((name, file.sha256), *(source for source in base.sources if source[0] != name)),
        folder=str(path.parent),
    )
    if where and study.grid_size <= MOST_POINTS and next(study.points(), None) is None:
        raise members["where"].wrong(f"leaves none of {study.grid_size} points, expected a grid that is not empty")
    if "pictures" in members:
        # Which points a condition leaves out, only the points show.
        free = [] if where else [keys[axis.key].column for axis in axes if len(axis.values) > 1]
        words = {*WORDS, *(key.column for key in varied.values() if not key.is_number)}
        study = replace(study, pictures=read_pictures(members["pictures"], table_header(study), words, free))
    return study


def is_study(path: Path) -> bool:
    """Whether a file is a study, by its keys.

    Raises:
        InputError: it cannot be read.
    """
    return kind_of(read_yaml(path, InputError).root) is FileKind.STUDY


def check_study(path: Path, policy_types: PolicyTypes) -> str:
    """Return one line about a valid study.

    Raises:
        InputError: something in the file, its scenario or its profile is wrong.
    """
    study = read_study(path, policy_types)
    axes = " x ".join(f"{len(axis.values)} {axis.key}" for axis in study.axes)
    points = f"{study.grid_size} points"
    if study.where and study.grid_size <= MOST_POINTS:
        points = f"{sum(1 for _ in study.points())} of {points}"
    return f"{file_name(path)}: a study of {study.base.name} on {study.base.server.name}: {axes}: {points}"


def _base(file: YamlFile, entry: Entry, path: Path, types: PolicyTypes) -> Scenario:
    if isinstance(entry.value, dict):
        return resolve_scenario(file, entry, path, types)
    if not isinstance(entry.value, str) or not entry.value.endswith(".yaml"):
        raise entry.expected("the path of a scenario, which ends in .yaml, or a mapping that is one")
    return read_scenario(path.parent / entry.value, types)


def read_condition(entry: Entry, keys: Mapping[str, Key]) -> Condition:
    """Return the condition of an entry on the keys of axes.

    Raises:
        StudyError: it is no condition, or compares something else than an axis.
    """
    text, end, python = entry.text(), 0, ""
    compared: list[Condition] = []
    for match in _COMPARISON.finditer(text):
        python += f"{_between(entry, text[end : match.start()])} _{len(compared)} "
        compared.append(_comparison(entry, match, keys))
        end = match.end()
    python += _between(entry, text[end:])
    try:
        return _condition(ast.parse(python.strip(), mode="eval").body, compared)
    except (SyntaxError, TypeError):
        raise entry.expected(_EXPECTED) from None


def _between(entry: Entry, text: str) -> str:
    """Return the text between two comparisons if it is and, or, not and parentheses."""
    match = _BETWEEN.match(text)
    assert match is not None, "it may be empty"
    if odd := text[match.end() :].strip():
        raise entry.wrong(f"found {quote(odd)}, expected {_EXPECTED}")
    return text


def _comparison(entry: Entry, match: re.Match[str], keys: Mapping[str, Key]) -> Condition:
    name, sign, single, double, plain = match.groups()
    if name not in keys:
        raise entry.wrong(not_one_of(name, keys, "an axis of this study"))
    key = keys[name]
    if not key.is_number and sign not in {"==", "!="}:
        raise entry.wrong(f"found {sign!r} after {name}, which has no order; expected == or !=")
    value = plain_value(plain) if plain else single or double or ""
    right = shown(key.read(Entry(entry.file, f"{entry.path}: {name}", value, entry.error)))
    compare = _COMPARE[sign]
    return lambda points: compare(points[name], right)


def _condition(node: ast.expr, compared: Sequence[Condition]) -> Condition:
    """Return the condition of an expression of comparisons, named `_0`, `_1` and so on.

    Raises:
        TypeError: it is another kind of expression, as the call `_0(_1)`.
    """
    match node:
        case ast.Name(name):
            return compared[int(name[1:])]
        case ast.UnaryOp(ast.Not(), operand):
            negated = _condition(operand, compared)
            return lambda points: ~negated(points)
        case ast.BoolOp(join, values):
            parts = [_condition(each, compared) for each in values]
            joined = operator.and_ if isinstance(join, ast.And) else operator.or_
            return lambda points: reduce(joined, (part(points) for part in parts))
        case _:
            raise TypeError
