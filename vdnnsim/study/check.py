"""What `vdnnsim check` says of a study."""

from pathlib import Path

from vdnnsim.errors import InputError
from vdnnsim.file_kind import FileKind, kind_of
from vdnnsim.messages import file_name
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.study.read import read_study
from vdnnsim.study.study import MOST_POINTS
from vdnnsim.yaml_file import read_yaml


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
