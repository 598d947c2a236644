"""The profile of a toy machine with round numbers, and what tests of profiles do: change one, and have it refused."""

import copy
from pathlib import Path
from typing import Any

from tests.refusals import refusal as refused_with
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import read_profile


def figure(value: object) -> dict[str, object]:
    return {"value": value, "origin": "datasheet", "source": "a page"}


TOY: dict[str, Any] = {
    "schema_version": 1,
    "name": "toy",
    "description": "a toy",
    "gpu": {
        "name": "Toy GPU",
        "memory": figure("10 KiB"),
        "dram_bandwidth": figure("100 B/s"),
        "multiprocessors": figure(2),
        "granule": figure("512 B"),
        "peak": {"float32": figure("1 kFLOP/s"), "bfloat16": figure("2 kFLOP/s")},
    },
    "link": {"name": "wire", "h2d": figure("3 B/s"), "d2h": figure("4 B/s"), "latency": figure("5 ms")},
    "host": {
        "memory": figure("1 MB"),
        "issue": figure("0 s"),
        "pin_latency": figure("6 us"),
        "pin_bandwidth": figure("1 GiB/s"),
    },
}


def with_value(profile: dict[str, Any], key_path: str, value: object) -> dict[str, Any]:
    changed = copy.deepcopy(profile)
    *sections, last = key_path.split(".")
    place = changed
    for section in sections:
        place = place[section]
    place[last] = value
    return changed


def refusal(path: Path) -> str:
    """Return what a profile is refused with in one line, less the name of the file."""
    return refused_with(ProfileError, read_profile, path).removeprefix(f"{path}: ")
