"""Hardware profiles: YAML files of one machine each, every figure with its unit, its origin and where it was found.

    gpu:
      memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

A figure without a unit, an origin or a source is refused, so no number of a machine enters vdnnsim without them. The
sections are `gpu`, `link`, `host`, and, where they are known, `cost_model` and `power`. `cost_model` holds plain
numbers whose names and meaning `vdnnsim.cost` defines.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from vdnnsim.element_type import ElementType
from vdnnsim.errors import InputError, ProfileError
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin, Power, Server
from vdnnsim.units import GIB, Dimension, parse_quantity
from vdnnsim.yaml_file import LONGEST_SHOWN, Entry, file_name, not_one_of, quote, read_yaml

SCHEMA_VERSION: Final = 1
_FOLDER = "hw_profiles"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class _Range:
    """What a figure measures, and the least and the largest value that any machine may have."""

    dimension: Dimension
    low: float
    high: float
    shown: str


_FIGURE = ("value", "origin", "source")
_MEMORY = _Range(Dimension.BYTES, 1, 2**60, "1 B to 1 EiB")
_GRANULE = _Range(Dimension.BYTES, 1, GIB, "1 B to 1 GiB")
_COPY_RATE = _Range(Dimension.BYTES_PER_SECOND, 1, 1e18, "1 B/s to 1e18 B/s")
_PEAK = _Range(Dimension.FLOP_PER_SECOND, 1, 1e18, "1 FLOP/s to 1e18 FLOP/s")
_TIME = _Range(Dimension.SECONDS, 0, 10, "0 s to 10 s")
_WATTS = _Range(Dimension.WATTS, 0, 1e5, "0 W to 100 kW")
_FLOP_ENERGY = _Range(Dimension.JOULES_PER_FLOP, 0, 1, "0 J/FLOP to 1 J/FLOP")
_BYTE_ENERGY = _Range(Dimension.JOULES_PER_BYTE, 0, 1, "0 J/B to 1 J/B")
_UNITS = _Range(Dimension.COUNT, 1, 1e6, "1 to 1000000")
_ANY_NUMBER = _Range(Dimension.COUNT, 0, 1e18, "0 to 1e18")


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
    file.root.check_schema_version(SCHEMA_VERSION)
    required = ("schema_version", "name", "description", "gpu", "link", "host")
    top = file.root.members(required, ("cost_model", "power"))
    name = top["name"].text()
    if name != path.stem or not _NAME.fullmatch(name):
        raise top["name"].expected(f"{quote(path.stem)}, the name of the file, in letters, digits and any of _.-")
    figures = _Figures()
    server = Server(
        name=name,
        gpu=_gpu(top["gpu"], figures),
        link=_link(top["link"], figures),
        host=_host(top["host"], figures),
        cost_model=_cost_model(top["cost_model"], figures) if "cost_model" in top else {},
        power=_power(top["power"], figures) if "power" in top else None,
        figures=tuple(figures.stated),
    )
    return Profile(file.name, file.sha256, top["description"].text(), server)


@dataclass
class _Figures:
    """Reads figures and keeps them as they are stated, in the order of the file."""

    stated: list[Figure] = field(default_factory=list)

    def whole(self, entry: Entry, limits: _Range) -> int:
        """Return a number of bytes, rounded, or a count, which must be whole."""
        number = self.number(entry, limits)
        if limits.dimension is Dimension.COUNT and number != int(number):
            raise entry.members(_FIGURE)["value"].expected(f"a whole number from {limits.shown}")
        return round(number)

    def number(self, entry: Entry, limits: _Range) -> float:
        """Return a number in SI units within its limits."""
        members = entry.members(_FIGURE)
        value = members["value"]
        stated = value.value
        if stated is None or isinstance(stated, bool | dict | list):
            raise value.expected(f"a number of {limits.dimension.value} from {limits.shown}")
        if isinstance(stated, str) and len(stated) > LONGEST_SHOWN:
            stated = f"{stated[:LONGEST_SHOWN]}..."
        try:
            number = parse_quantity(stated, limits.dimension)
        except InputError as failure:
            raise value.wrong(str(failure)) from None
        if not limits.low <= number <= limits.high:
            raise value.expected(f"from {limits.shown}")
        origin = members["origin"].choice(Origin, "an origin")
        self.stated.append(Figure(entry.path, str(stated), origin, members["source"].text()))
        return number


def _gpu(entry: Entry, figures: _Figures) -> Gpu:
    keys = entry.members(("name", "memory", "dram_bandwidth", "multiprocessors", "granule", "peak"))
    peaks = keys["peak"].members((), [element_type.value for element_type in ElementType])
    if not peaks:
        raise keys["peak"].expected("a figure for at least one element type")
    return Gpu(
        name=keys["name"].text(),
        memory_bytes=figures.whole(keys["memory"], _MEMORY),
        dram_bytes_per_s=figures.number(keys["dram_bandwidth"], _COPY_RATE),
        multiprocessors=figures.whole(keys["multiprocessors"], _UNITS),
        granule_bytes=figures.whole(keys["granule"], _GRANULE),
        flop_per_s={ElementType(name): figures.number(peak, _PEAK) for name, peak in peaks.items()},
    )


def _link(entry: Entry, figures: _Figures) -> Link:
    keys = entry.members(("name", "h2d", "d2h", "latency"), ("peak",))
    return Link(
        name=keys["name"].text(),
        h2d_bytes_per_s=figures.number(keys["h2d"], _COPY_RATE),
        d2h_bytes_per_s=figures.number(keys["d2h"], _COPY_RATE),
        latency_s=figures.number(keys["latency"], _TIME),
        peak_bytes_per_s=figures.number(keys["peak"], _COPY_RATE) if "peak" in keys else None,
    )


def _host(entry: Entry, figures: _Figures) -> Host:
    keys = entry.members(("memory", "issue", "pin_latency", "pin_bandwidth"))
    return Host(
        memory_bytes=figures.whole(keys["memory"], _MEMORY),
        issue_s=figures.number(keys["issue"], _TIME),
        pin_latency_s=figures.number(keys["pin_latency"], _TIME),
        pin_bytes_per_s=figures.number(keys["pin_bandwidth"], _COPY_RATE),
    )


def _cost_model(entry: Entry, figures: _Figures) -> Mapping[str, float]:
    parameters = entry.named_members("parameters")
    for name in parameters:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a parameter's name, expected small letters, digits and _")
    return {name: figures.number(figure, _ANY_NUMBER) for name, figure in parameters.items()}


def _power(entry: Entry, figures: _Figures) -> Power:
    keys = entry.members(("idle", "flop", "dram", "link"), ("limit",))
    return Power(
        idle_watts=figures.number(keys["idle"], _WATTS),
        joules_per_flop=figures.number(keys["flop"], _FLOP_ENERGY),
        joules_per_dram_byte=figures.number(keys["dram"], _BYTE_ENERGY),
        joules_per_link_byte=figures.number(keys["link"], _BYTE_ENERGY),
        limit_watts=figures.number(keys["limit"], _WATTS) if "limit" in keys else math.inf,
    )


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
