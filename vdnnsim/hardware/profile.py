"""Hardware profiles: YAML files of one machine each, every figure with its unit, its origin and where it was found.

    gpu:
      memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

The sections are `gpu`, `link`, `host`, and, where they are known, `cost_model`, `kernels`, `power` and `provenance`.
A server with several GPUs has a `topology` (`vdnnsim.hardware.topology_section`) and may leave `link` out, which then
is the way of its first GPU to host memory; `gpu` is each of its GPUs, `host` the whole server.
`cost_model` names its kind and holds plain numbers, whose names and meaning `vdnnsim.cost` defines. A machine whose
kernels were measured names their table, which lies beside the profile, and says of what it was measured:

    kernels: {table: h200.kernels.csv, tf32: false, layout: nchw}
    provenance: {date: 2026-11-21, driver: "580.65"}
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vdnnsim.errors import ProfileError
from vdnnsim.file_kind import FileKind, check_kind
from vdnnsim.hardware.figures import Figures
from vdnnsim.hardware.profile_sections import (
    read_cost_model,
    read_gpu,
    read_host,
    read_kernels,
    read_link,
    read_power,
    read_provenance,
    telling_of_nobody,
)
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, Server
from vdnnsim.hardware.topology_section import host_link, read_topology
from vdnnsim.messages import file_name, not_one_of, quote
from vdnnsim.yaml_file import read_yaml

SCHEMA_VERSION: Final = 1
_REQUIRED: tuple[str, ...] = ("schema_version", "name", "description", "gpu", "link", "host")
_OPTIONAL: tuple[str, ...] = ("cost_model", "kernels", "power", "provenance", "topology")
_FOLDER = "hw_profiles"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile that was read: the machine, what its file says of it, and which bytes said so.

    Attributes:
        file: name of the file as it was found.
        sha256: of the bytes of the file.
    """

    file: str
    sha256: str
    description: str
    server: Server

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """The name and SHA-256 of every file that the machine is read from: the profile, then its kernels."""
        kernels = self.server.kernels
        table = () if kernels is None else ((file_name(kernels.table), kernels.sha256),)
        return ((self.file, self.sha256), *table)


def find_profile(name_or_path: str, scenario_folder: Path) -> Path:
    """Return the file of a profile.

    A name is looked up in `hw_profiles/` beside the scenario's folder, inside it, in the working directory, and among
    the profiles shipped with vdnnsim, in this order. What ends in `.yaml` is a path, from the scenario's folder or
    else from the working directory.

    Raises:
        ProfileError: there is no such profile; the message offers the nearest name, and tells where it was looked for.
    """
    if name_or_path.endswith(".yaml"):
        places = [scenario_folder / name_or_path, Path(name_or_path)]
        if found := _first_file(places):
            return found
        looked_in = " and ".join(dict.fromkeys(file_name(place) for place in places))
        raise ProfileError(f"{quote(name_or_path)} is not a file; looked for {looked_in}")
    folders = [_beside(scenario_folder) / _FOLDER, scenario_folder / _FOLDER, Path(_FOLDER), _shipped_folder()]
    if _NAME.fullmatch(name_or_path) and (
        found := _first_file([folder / f"{name_or_path}.yaml" for folder in folders])
    ):
        return found
    names = sorted({path.stem for folder in folders for path in _profiles_in(folder)})
    looked_in = ", ".join(dict.fromkeys(file_name(folder) for folder in folders))
    raise ProfileError(f"{not_one_of(name_or_path, names, 'a hardware profile')}; looked in {looked_in}")


def shipped_profiles() -> tuple[Profile, ...]:
    """Return all profiles that came with vdnnsim, by name."""
    return tuple(load_profile(path) for path in _profiles_in(_shipped_folder()))


def read_profile(path: Path) -> Server:
    """Return the machine that a profile describes.

    Raises:
        ProfileError: the file cannot be read, or something in it is wrong.
    """
    return load_profile(path).server


def load_profile(path: Path) -> Profile:
    """Read a profile with all that its file says.

    Raises:
        ProfileError: the file cannot be read, or something in it is wrong.
    """
    file = read_yaml(path, ProfileError)
    check_kind(file.root, FileKind.PROFILE)
    file.root.check_schema_version(SCHEMA_VERSION)
    required, optional = _REQUIRED, _OPTIONAL
    if isinstance(file.root.value, dict) and "topology" in file.root.value:
        required, optional = tuple(key for key in _REQUIRED if key != "link"), ("link", *_OPTIONAL)
    top = file.root.members(required, optional)
    name = top["name"].text()
    if name != path.stem or not _NAME.fullmatch(name):
        raise top["name"].expected(f"{quote(path.stem)}, the name of the file, in letters, digits and any of _.-")
    figures = Figures()
    topology = read_topology(top["topology"], figures) if "topology" in top else None
    gpu = read_gpu(top["gpu"], figures)
    link = host_link(topology) if topology and "link" not in top else read_link(top["link"], figures)
    host = read_host(top["host"], figures)
    kind, parameters = read_cost_model(top["cost_model"], figures) if "cost_model" in top else (DEFAULT_COST_MODEL, {})
    server = Server(
        name=name,
        gpu=gpu,
        link=link,
        host=host,
        cost_model=parameters,
        cost_model_kind=kind,
        power=read_power(top["power"], figures) if "power" in top else None,
        figures=tuple(figures.stated),
        kernels=read_kernels(top["kernels"], path.parent) if "kernels" in top else None,
        provenance=read_provenance(top["provenance"]) if "provenance" in top else (),
        topology=topology,
    )
    return Profile(file.name, file.sha256, telling_of_nobody("description", top["description"]), server)


def _first_file(places: Iterable[Path]) -> Path | None:
    return next((place for place in places if _is_file(place)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long, a folder that may not be entered
        return False


def _profiles_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.yaml") if _NAME.fullmatch(path.stem))


def _beside(folder: Path) -> Path:
    """Return the parent of a folder, as short as it can be said: `scenarios` has `.`, and `.` has `..`."""
    return folder.parent if folder.name not in ("", "..") else folder / ".."


def _shipped_folder() -> Path:
    """Return the profiles inside an installed package, or beside the package in a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / _FOLDER
    return inside if inside.is_dir() else package.parent / _FOLDER
