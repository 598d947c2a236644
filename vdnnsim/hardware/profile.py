"""Hardware profiles: YAML files of one machine each, every figure with its unit, its origin and where it was found.

    gpu:
      memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

The sections are `gpu`, `link`, `host`, and, where they are known, `cost_model`, `kernels`, `copies`, `power` and
`provenance`.
A server with several GPUs has a `topology` (`vdnnsim.hardware.topology_section`) and may leave `link` out, which then
is the way of its first GPU to host memory; `gpu` is each of its GPUs, `host` the whole server.
`cost_model` names its kind and holds plain numbers, which `vdnnsim.cost` defines. A machine whose kernels were measured
names their table, which lies beside the profile, as does that of its copies (`vdnnsim.hardware.copies`), and says of
what hardware and software it was measured:

    kernels: {table: h200.kernels.csv, tf32: false, layout: nchw}
    copies: {table: h200.copies.csv}
    provenance: {date: 2026-11-21, driver: "580.65"}
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from vdnnsim.csv_table import read_table
from vdnnsim.entry import Entry
from vdnnsim.errors import ProfileError
from vdnnsim.file_kind import FileKind, check_kind
from vdnnsim.hardware.copies import MeasuredCopies, read_copies
from vdnnsim.hardware.figures import Figures, keys_of
from vdnnsim.hardware.privacy import what_identifies
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, Gpu, Host, Link, MeasuredKernels, Power, Server
from vdnnsim.hardware.stated import parameter_range
from vdnnsim.hardware.topology_section import host_link, read_topology
from vdnnsim.messages import file_name, not_one_of, quote
from vdnnsim.shipped import PROFILES, shipped_folder, shipped_name
from vdnnsim.yaml_file import read_yaml

SCHEMA_VERSION: Final = 1
_REQUIRED: tuple[str, ...] = ("schema_version", "name", "description", "gpu", "link", "host")
_OPTIONAL: tuple[str, ...] = ("cost_model", "kernels", "copies", "power", "provenance", "topology")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}\.csv")
LAYOUTS: Final = ("nchw", "nhwc")
"""Of the maps of a measured kernel: channels before pixels, or after them."""

Part = TypeVar("Part", bound=Gpu | Link | Host | Power)


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
        """The name and SHA-256 of every file that the machine is read from: the profile, then kernels and copies."""
        tables = (self.server.kernels, self.server.link.copies)
        read = ((shipped_name(file_name(each.table)), each.sha256) for each in tables if each is not None)
        return ((shipped_name(self.file), self.sha256), *read)


def is_profile_name(text: str) -> bool:
    """Whether a profile may have this name."""
    return bool(_NAME.fullmatch(text))


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
    ours = shipped_folder(PROFILES)
    folders = [_beside(scenario_folder) / PROFILES, scenario_folder / PROFILES, Path(PROFILES), ours]
    if _NAME.fullmatch(name_or_path) and (
        found := _first_file([folder / f"{name_or_path}.yaml" for folder in folders])
    ):
        return found
    names = sorted({path.stem for folder in folders for path in _profiles_in(folder)})
    looked_in = ", ".join(dict.fromkeys(file_name(folder) for folder in folders))
    raise ProfileError(f"{not_one_of(name_or_path, names, 'a hardware profile')}; looked in {looked_in}")


def shipped_profiles() -> tuple[Profile, ...]:
    """Return all profiles that came with vdnnsim, by name."""
    return tuple(load_profile(path) for path in _profiles_in(shipped_folder(PROFILES)))


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
    gpu = _part(Gpu, top["gpu"], figures, "name")
    link = host_link(topology) if topology and "link" not in top else _part(Link, top["link"], figures, "name")
    host = _part(Host, top["host"], figures)
    kind, parameters = _cost_model(top["cost_model"], figures) if "cost_model" in top else (DEFAULT_COST_MODEL, {})
    if "copies" in top:
        link = replace(link, copies=_copies(top["copies"], path.parent))
    server = Server(
        name=name,
        gpu=gpu,
        link=link,
        host=host,
        cost_model=parameters,
        cost_model_kind=kind,
        power=_part(Power, top["power"], figures) if "power" in top else None,
        figures=tuple(figures.stated),
        kernels=_kernels(top["kernels"], path.parent) if "kernels" in top else None,
        provenance=_provenance(top["provenance"]) if "provenance" in top else (),
        topology=topology,
    )
    return Profile(file.name, file.sha256, _telling_of_nobody("description", top["description"]), server)


def _part(part: type[Part], entry: Entry, figures: Figures, *texts: str) -> Part:
    """Return what a section says of a part of the machine: its figures, and texts that it must have."""
    required, optional = keys_of(part)
    keys = entry.members((*texts, *required), optional)
    named: dict[str, Any] = {name: keys[name].text() for name in texts}
    return part(**named, **figures.fields(part, keys))


def _cost_model(entry: Entry, figures: Figures) -> tuple[str, Mapping[str, float]]:
    """Return the kind and the parameters of the section `cost_model`; what they mean `vdnnsim.cost` defines."""
    parameters = dict(entry.named_members("parameters"))
    kind = parameters.pop("kind").text() if "kind" in parameters else DEFAULT_COST_MODEL
    for name in parameters:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a parameter's name, expected small letters, digits and _")
    return kind, {name: figures.number(figure, parameter_range(name)) for name, figure in parameters.items()}


def _kernels(entry: Entry, folder: Path) -> MeasuredKernels:
    """Return what the section `kernels` names: a table in the folder of the profile."""
    keys = entry.members(("table", "tf32", "layout"))
    table, data = _table(keys["table"], folder)
    tf32 = keys["tf32"].value
    if not isinstance(tf32, bool):
        raise keys["tf32"].expected("true or false")
    channels_last = keys["layout"].name(LAYOUTS, "a layout") == "nhwc"
    return MeasuredKernels(table, hashlib.sha256(data).hexdigest(), tf32, channels_last)


def _copies(entry: Entry, folder: Path) -> MeasuredCopies:
    """Return what the table holds that the section `copies` names."""
    return read_copies(*_table(entry.members(("table",))["table"], folder))


def _table(entry: Entry, folder: Path) -> tuple[Path, bytes]:
    """Return the path and the content of a table in the folder of the profile."""
    name = entry.text()
    if not _TABLE.fullmatch(name):
        raise entry.expected("the name of a CSV file beside the profile, in letters, digits and any of _.-")
    table = folder / name
    if table.is_symlink() and table.resolve().parent != folder.resolve():
        # A profile of a stranger must not have another's file read, and parts of it printed.
        raise entry.wrong(f"{file_name(table)} is a link to another folder, expected a file beside the profile")
    try:
        return table, read_table(table)
    except ProfileError as failure:
        raise entry.wrong(str(failure)) from failure


def _provenance(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return names and texts of the section `provenance`."""
    texts = entry.named_members("names and what is said of each")
    for name in texts:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a name, expected small letters, digits and _")
    return tuple((name, _telling_of_nobody(name, text)) for name, text in texts.items())


def _telling_of_nobody(name: str, entry: Entry) -> str:
    """Return a text that stands under a name, unless it identifies anybody."""
    text = entry.text()
    if found := what_identifies(name, text):
        raise entry.wrong(f"looks like {found}, expected nothing that identifies anybody")
    return text


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
