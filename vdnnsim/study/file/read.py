"""Reading a study.

    schema_version: 1
    scenario: ../vgg416.yaml
    axes:
      policy: [vdnn_all(m), vdnn_conv(p)]
      link.bandwidth: {from: 16 GB/s, to: 512 GB/s, factor: 2}
      gpu.memory: [12 GiB, 24 GiB]
    where: policy != 'vdnn_conv(p)' or gpu.memory >= 24 GiB
    pictures:
      - {name: speed, title: Speed, kind: lines, x: gpu.memory_bytes, y: images_per_s, by: policy}

`scenario` is the path of one, from the study's folder, or the mapping itself. Without an axis `policy`, the policies of
the scenario are one. `keys` beside this file says what can be an axis, `axis` what ranges there are, `where` what
conditions, and `pictures` what pictures.
"""

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Final

from vdnnsim.errors import InputError, StudyError
from vdnnsim.files.kind import FileKind, check_kind, kind_of
from vdnnsim.files.messages import file_name, printable
from vdnnsim.files.packaged import shipped_name
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import YamlFile, read_yaml
from vdnnsim.policies.registry import PolicyTypes, known_policies
from vdnnsim.scenario.read import read_scenario, resolve_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.file.axis import read_axis
from vdnnsim.study.file.conditions import comparisons, read_condition
from vdnnsim.study.file.keys import check_combination, study_keys
from vdnnsim.study.file.pictures import read_pictures
from vdnnsim.study.points.resolve import POLICY
from vdnnsim.study.results.rows import WORDS, table_header
from vdnnsim.study.study import MOST_POINTS, Axis, Condition, Study

SCHEMA_VERSION: Final = 1
_LARGEST_GRID: Final = 10**12
"""Points that nobody will live to see computed."""
_MOST_COMPARISONS: Final = 50_000_000
"""Of conditions at all points: some seconds."""


def read_study(path: Path, policy_types: PolicyTypes | None = None) -> Study:
    """Read a study, and the scenario and the profile that it names; its policies are those given, else all known.

    Raises:
        StudyError: the file cannot be read, or something in it is wrong.
        InputError: something is wrong in the scenario or in its profile.
    """
    types = known_policies() if policy_types is None else policy_types
    file = read_yaml(path, StudyError)
    check_kind(file.root, FileKind.STUDY)
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
        at_each = sum(map(comparisons, entries))
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
        words = {*WORDS, *(key.column for key in varied.values() if not key.is_number)}
        study = replace(study, pictures=read_pictures(members["pictures"], table_header(study), words))
    return study


def is_study(path: Path) -> bool:
    """Say whether a file is a study, by its keys.

    Raises:
        InputError: it cannot be read.
    """
    return kind_of(read_yaml(path, InputError).root) is FileKind.STUDY


def check_study(path: Path, policy_types: PolicyTypes) -> str:
    """Return one line about a study that is right.

    Raises:
        InputError: something in the file, its scenario or their profile is wrong.
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
