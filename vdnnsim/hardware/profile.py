"""Hardware profiles: YAML files of one machine each, every figure with its unit, its origin and where it was found.

    gpu:
      memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

The sections are `gpu`, `link`, `host`, and optionally `cost_model`, `kernels`, `copies`, `power` and `provenance`. A
server with several GPUs has a `topology` (`vdnnsim.hardware.topology_section`) and may leave out `link`, which then is
the path of its first GPU to host memory; `gpu` is each of its GPUs, `host` the whole server. `cost_model` has a kind
and plain numbers, which `vdnnsim.cost` defines. A measured machine names the tables of its kernels and copies beside
the profile (`vdnnsim.cost.kernel_table`, `vdnnsim.hardware.copies`), and the hardware and software of the measurement:

    kernels: {table: h200.kernels.csv, tf32: false, layout: nchw}
    copies: {table: h200.copies.csv}
    provenance: {date: 2026-11-21, driver: "580.65"}

A profile may extend another by `extends: rtx_4090`, and state only what differs. `topology: h100_x8` takes that of
another profile, for a server that is the same with other cards. `hosts: 32` makes a cluster of so many such servers.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Final

from vdnnsim.errors import ProfileError
from vdnnsim.files.atomic import UNFINISHED
from vdnnsim.files.messages import file_name, not_one_of, quote, spelled_as
from vdnnsim.files.packaged import PROFILES, shipped_folder, shipped_name
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.files.yaml_file import FileKind, read_yaml
from vdnnsim.hardware.extension import EXTENDS, extended, mapping_in
from vdnnsim.hardware.figures import Figures
from vdnnsim.hardware.sections import (
    anonymous_text,
    copies_of,
    missing,
    read_cost_model,
    read_hosts,
    read_kernels,
    read_part,
    read_provenance,
)
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, Gpu, Host, Link, Power, Server
from vdnnsim.hardware.topology_section import host_link, read_topology
from vdnnsim.hardware.transferred_fit import inherited, without_foreign_fits

SCHEMA_VERSION: Final = 1
_REQUIRED: tuple[str, ...] = ("schema_version", "name", "description", "gpu", "link", "host")
_OPTIONAL: tuple[str, ...] = ("cost_model", "kernels", "copies", "power", "provenance", "topology", "hosts")
_MAKER = re.compile(r"\b(nvidia|geforce|tesla)\b", re.IGNORECASE)
"""Brand names before the names of cards."""
_SPELLINGS = ((_MAKER.pattern, ""), (r"sxm\d+|hbm3\b", "sxm"), (r"\(maxwell\)", ""), (r"(\d+)\s*gb", r" \1gb "))
"""Spellings of socket, chip and memory in names of cards, and their normal form."""
_OTHER_MAKER: Final = re.compile(r"amd|radeon|instinct|mi\d|rx[ _-]?\d|gaudi|tpu|intel|apple", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_TOPOLOGY: Final = "topology"


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile: the machine, and the content and hash of its file.

    Attributes:
        file: name of the file as it was found.
        content: of the file, merged with that of the profile that it extends.
        folders: of the tables of its sections.
        lines: of the keys in its file, by key path.
        read_from: name and SHA-256 of the profiles that it extends.
    """

    file: str
    sha256: str
    description: str
    server: Server
    content: YamlValue = None
    folders: Mapping[str, Path] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    read_from: tuple[tuple[str, str], ...] = ()

    @property
    def sources(self) -> tuple[tuple[str, str], ...]:
        """Name and SHA-256 of every file of the machine: profiles, then kernels and copies."""
        tables = (self.server.kernels, self.server.link.copies)
        read = ((file_name(each.table), each.sha256) for each in tables if each is not None)
        profiles = (self.file, self.sha256), *self.read_from
        return tuple((shipped_name(name), sha256) for name, sha256 in (*profiles, *read))

    @property
    def called(self) -> str:
        """How messages call it: by its file as it was found, one that comes with vdnnsim by the machine's name."""
        return self.file if shipped_name(self.file) == self.file else self.server.name


def is_profile_name(text: str) -> bool:
    return bool(_NAME.fullmatch(text))


def find_profile(name_or_path: str, scenario_folder: Path) -> Path:
    """Return the file of a profile.

    A name is looked up in `hw_profiles/` beside the scenario's folder, inside it, in the working directory, and among
    the profiles shipped with vdnnsim, in this order; `RTX 4090` and `4090` are found as well. Text that ends in
    `.yaml` is a path, from the scenario's folder or else from the working directory.

    Raises:
        ProfileError: there is no such profile; the message has the nearest name and the places that were searched.
    """
    if name_or_path.endswith(".yaml"):
        places = [scenario_folder / name_or_path, Path(name_or_path)]
        if found := _first_file(places):
            return found
        looked_in = " and ".join(dict.fromkeys(file_name(place) for place in places))
        raise ProfileError(f"{quote(name_or_path)} is not a file; looked for {looked_in}")
    ours = shipped_folder(PROFILES)
    folders = [_beside(scenario_folder) / PROFILES, scenario_folder / PROFILES, Path(PROFILES), ours]
    if found := _first_file(folder / f"{name_or_path}.yaml" for folder in folders if _NAME.fullmatch(name_or_path)):
        return found
    found_names = {path.stem for folder in folders for path in _profiles_in(folder)}
    # Of the cards that `h100` begins, the SXM one is the usual.
    names = sorted(found_names, key=lambda each: (not each.endswith("_sxm"), each))
    numbers = {rest: each for each in names if (rest := each.partition("_")[2])[:4].isdigit()}  # as `4090`
    text = _MAKER.sub("", name_or_path)
    alike = spelled_as(text, names) or numbers.get(spelled_as(text, numbers) or "")
    if alike is not None and alike != name_or_path:
        return find_profile(alike, scenario_folder)
    if _OTHER_MAKER.match(name_or_path):
        raise ProfileError(f"{quote(name_or_path)} is not a hardware profile: only cards of NVIDIA are covered")
    near = not_one_of(name_or_path, names, "a hardware profile", "`vdnnsim list hardware` names all that are shipped")
    raise ProfileError(f"{near}; others are looked for in {', '.join(dict.fromkeys(map(file_name, folders[:-1])))}")


@cache
def shipped_profiles() -> tuple[Profile, ...]:
    return tuple(load_profile(path) for path in _profiles_in(shipped_folder(PROFILES)))


def profile_of_card(card: str) -> Profile | None:
    """Return the shipped profile of a card, by the name of its driver, with peaks of most types; None without one."""
    of_card = (each for each in shipped_profiles() if is_of_card(each.server, card))
    return max(of_card, key=lambda each: len(each.server.gpu.flop_per_s), default=None)


def is_of_card(server: Server, card: str) -> bool:
    """Whether a machine has a card, by the name of its driver."""
    return card_words(server.gpu.name) == card_words(card)


def card_words(card: str) -> frozenset[str]:
    """Return the words of a card's name, the same however drivers and datasheets spell it."""
    for pattern, spelling in _SPELLINGS:
        card = re.sub(pattern, spelling, card, flags=re.IGNORECASE)
    return frozenset(re.findall(r"\w+", card.casefold()))


def read_profile(path: Path) -> Server:
    return load_profile(path).server


def load_profile(path: Path) -> Profile:
    """Read a profile, merged with the one that it extends.

    Raises:
        ProfileError: the file cannot be read, or something in it is wrong.
    """
    return _load(path, ())


def _load(path: Path, extending: tuple[Path, ...]) -> Profile:
    """Read a profile that those of `extending` extend."""
    file = read_yaml(path, ProfileError, FileKind.PROFILE)
    file.root.check_schema_version(SCHEMA_VERSION)
    if isinstance(file.root.value, dict) and UNFINISHED in file.root.value:
        unfinished = file.root.named_members("keys")[UNFINISHED]
        raise unfinished.wrong(unfinished.text())
    root = file.root
    base, like = (_other(root, key, path, extending) for key in (EXTENDS, _TOPOLOGY))
    if base is not None:
        root = replace(root, value=extended(base.content, root.value))
    if like is not None:
        root = replace(root, value=mapping_in(root.value) | {_TOPOLOGY: mapping_in(like.content).get(_TOPOLOGY)})
    if lacking := missing(root.value, file.lines):
        raise root.wrong(f"is not complete; missing are {lacking}")
    required, optional = _REQUIRED, (EXTENDS, *_OPTIONAL)
    if _TOPOLOGY in mapping_in(root.value):
        required, optional = tuple(key for key in _REQUIRED if key != "link"), ("link", *optional)
    top = root.members(required, optional)
    name = top["name"].text()
    if name != path.stem or not _NAME.fullmatch(name):
        raise top["name"].expected(f"{quote(path.stem)}, the name of the file, in letters, digits and any of _.-")
    figures = Figures()
    topology = read_topology(top["topology"], figures) if "topology" in top else None
    gpu = read_part(Gpu, top["gpu"], figures, "name")
    link = host_link(topology) if topology and "link" not in top else read_part(Link, top["link"], figures, "name")
    host = read_part(Host, top["host"], figures)
    kind, parameters = read_cost_model(top["cost_model"], figures) if "cost_model" in top else (DEFAULT_COST_MODEL, {})
    own, tables = mapping_in(file.root.value), ("kernels", "copies")
    folders = {key: path.parent if base is None or key in own else base.folders[key] for key in tables}
    if "copies" in top:
        link = replace(link, copies=copies_of(top["copies"], folders["copies"]))
    server = Server(
        name=name,
        gpu=gpu,
        link=link,
        host=host,
        cost_model=parameters,
        cost_model_kind=kind,
        power=read_part(Power, top["power"], figures) if "power" in top else None,
        figures=tuple(figures.stated),
        kernels=read_kernels(top["kernels"], folders["kernels"]) if "kernels" in top else None,
        provenance=read_provenance(top["provenance"]) if "provenance" in top else (),
        topology=topology,
        hosts=read_hosts(top["hosts"], topology) if "hosts" in top else None,
        extends=None if base is None else base.server,
    )
    server = without_foreign_fits(server, lambda other: _machine(other, path))
    server = server if base is None else inherited(server, base.server)
    description = anonymous_text("description", top["description"])
    others = filter(None, (base, like))
    read_from = tuple(dict.fromkeys(pair for each in others for pair in ((each.file, each.sha256), *each.read_from)))
    return Profile(file.name, file.sha256, description, server, root.value, folders, file.lines, read_from)


def _other(root: Entry, key: str, path: Path, extending: tuple[Path, ...]) -> Profile | None:
    """Return the profile that another extends, or whose topology it takes; None if it names none."""
    content = mapping_in(root.value)
    if key not in content or (key == _TOPOLOGY and not isinstance(content[key], str)):
        return None
    entry = root.named_members("keys")[key]
    name = entry.text()
    beside = path.parent / f"{name}.yaml"
    try:
        found = beside if name != path.stem and _is_file(beside) else find_profile(name, path.parent)
    except ProfileError as failure:
        raise entry.wrong(str(failure)) from None
    if any(found.samefile(each) for each in (path, *extending)):
        raise entry.wrong(f"{quote(name)} extends this profile itself, expected one that does not")
    try:
        return _load(found, (*extending, path))
    except ProfileError as failure:
        raise entry.wrong(str(failure)) from failure


def _machine(name: str, path: Path) -> Server | None:
    """Return the machine of another profile by name; None if there is none, or it is this file."""
    for folder, load in ((shipped_folder(PROFILES), _shipped_machine), (path.parent, read_profile)):
        file = folder / f"{name}.yaml"
        if _is_file(file) and not file.samefile(path):
            return load(file)
    return None


@cache
def _shipped_machine(path: Path) -> Server:
    """Read a shipped profile that others name, as most do."""
    return read_profile(path)


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
    """Return the parent of a folder as a short path: `.` of `scenarios`, `..` of `.`."""
    return folder.parent if folder.name not in ("", "..") else folder / ".."
