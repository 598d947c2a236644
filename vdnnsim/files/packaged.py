"""Scenarios, studies and profiles that come with vdnnsim, found by name.

They are inside an installed package, and beside the package in a checkout.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vdnnsim.errors import InputError
from vdnnsim.files.messages import file_name, not_one_of

PROFILES: Final = "hw_profiles"
SCENARIOS: Final = "scenarios"
STUDIES: Final = "scenarios/studies"


def shipped_folder(name: str) -> Path:
    """Return one of the folders that come with vdnnsim."""
    return _root() / name


def shipped_name(name: str) -> str:
    """Return the name of a file without the folder in which vdnnsim is installed."""
    return name.removeprefix(f"{file_name(_root())}/")


def find_file(path_or_name: str, folders: Sequence[str]) -> Path:
    """Return a file by its path, `my/own.yaml`, or by its name, `vgg416`.

    A name is looked up in folders of the working directory and of vdnnsim, in their order.

    Raises:
        InputError: there is no file of this name; the message offers the nearest.
    """
    path = Path(path_or_name)
    if path.suffix or path.name != path_or_name or path.is_file():
        return path
    places = [place for folder in folders for place in (Path(folder), shipped_folder(folder))]
    files = {each.stem: each for place in reversed(places) for each in sorted(place.glob("*.yaml"))}
    if path_or_name not in files:
        raise InputError(not_one_of(path_or_name, sorted(files), "a file, nor the name of one that comes with vdnnsim"))
    return files[path_or_name]


def _root() -> Path:
    package = Path(__file__).resolve().parents[1]
    return package if (package / PROFILES).is_dir() else package.parent
