"""The figures of a profile: their definitions, reading, changing and writing.

    memory: {value: 12 GiB, origin: datasheet, source: "12288 MB GDDR5"}

A figure without a unit, an origin or a source is refused. Its field and its range are defined by annotations
(`vdnnsim.hardware.stated_figure`).
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Enum
from functools import cache
from typing import Any, Final, get_args, get_origin

from vdnnsim.errors import InputError
from vdnnsim.files.messages import LONGEST_SHOWN
from vdnnsim.files.value import LONGEST_TEXT, Entry
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, Origin, Power, Server
from vdnnsim.hardware.stated_figure import PARAMETER, Range, Stated, parameter_range
from vdnnsim.hardware.topology import TopologyLink
from vdnnsim.hardware.transferred_fit import DECIDES_KERNELS, carried_over
from vdnnsim.units import Dimension, parse_quantity, quantity_text, rounded_quantity

_FIGURE = ("value", "origin", "source")
_LONGEST_LINE: Final = 120
_MEASURED_DIGITS: Final = 4
_QUANTITY = re.compile(r"[0-9][0-9.e+-]*( [A-Za-z/]+)?")


@dataclass(frozen=True, slots=True)
class Definition:
    """A figure of a section, or a mapping of figures.

    Attributes:
        section: of the profile and of the server; empty for a field of the server itself.
        field: of that part of the server.
        default: of an optional figure; MISSING of a required one.
        below: type of the names of a mapping; None for one figure.
    """

    section: str
    field: str
    stated: Stated
    is_whole: bool
    default: object
    below: type[Enum] | type[str] | None

    @property
    def path(self) -> str:
        """Its key path, as `gpu.memory`."""
        return f"{self.section}.{self.stated.key}" if self.section else self.stated.key

    @property
    def names(self) -> tuple[str, ...]:
        """The names that a mapping may have; empty if they are free."""
        return tuple(each.value for each in self.below) if self.below and issubclass(self.below, Enum) else ()

    def part_of(self, server: Server) -> Any:  # noqa: ANN401  # a GPU, a link, ...
        """Return the part of a server that has it; None if there is none."""
        return getattr(server, self.section) if self.section else server


@cache
def definitions(part: type, section: str = "") -> tuple[Definition, ...]:
    """Return the figures of a part of a server in the order of its file, mappings last."""
    found = []
    for each in fields(part):
        for stated in getattr(each.type, "__metadata__", ()):
            kind = get_args(each.type)[0]
            below = get_args(kind)[0] if get_origin(kind) is Mapping else None
            found.append(Definition(section, each.name, stated, kind is int, each.default, below))
    return tuple(sorted(found, key=lambda each: each.below is not None))


_PARTS: Final = {"gpu": Gpu, "link": Link, "host": Host, "": Server, "power": Power}
FIGURES: Final = tuple(each for section, part in _PARTS.items() for each in definitions(part, section))
"""All but those of a topology, in the order of a file."""


def keys_of(part: type) -> tuple[list[str], list[str]]:
    """Return the required and the optional keys of a section."""
    required = [each.stated.key for each in definitions(part) if each.default is MISSING]
    return required, [each.stated.key for each in definitions(part) if each.stated.key not in required]


def definition(path: str) -> Definition:
    """Return the figure at a key path, as `link.h2d`, `gpu.peak.float32` or `topology.links.NVLink.down`."""
    above, _, key = path.rpartition(".")
    for each in FIGURES:
        if each.path == (path if each.below is None else above):
            return each
    return next(each for each in definitions(TopologyLink) if each.path == key)


def range_of(path: str) -> Range:
    limits = definition(path).stated.range
    return parameter_range(path.rpartition(".")[2]) if limits is PARAMETER else limits


def numbers_of(server: Server) -> Iterator[tuple[str, float]]:
    """Yield key path and number of every figure of a machine, topology aside, in the order of the file."""
    for each in FIGURES:
        value: Any = getattr(each.part_of(server), each.field, None)
        if each.below is not None:
            for name, number in value.items():
                yield f"{each.path}.{name.value if isinstance(name, Enum) else name}", number
        elif value is not None and value != each.default:
            yield each.path, value


def with_number(server: Server, path: str, number: float) -> Server:
    """Return a server with another number, in SI units, at a key path; fits to the old one are carried over."""
    each = definition(path)
    part = each.part_of(server)
    value: Any = number
    if each.below is not None:
        value = {**getattr(part, each.field), each.below(path.rpartition(".")[2]): number}
    if value == getattr(part, each.field):
        return server
    changed = replace(part, **{each.field: value})
    if each.section:
        changed = replace(server, **{each.section: changed})
    return _restated(changed, path, number)


def _restated(server: Server, path: str, number: float) -> Server:
    """Return a server whose figures state a number as assumed."""
    stated = {each.path: each for each in server.figures}
    was = f", in the place of {stated[path].text} ({stated[path].origin.value})" if path in stated else ""
    text = quantity_text(number, range_of(path).dimension)
    asked = Figure(path, text, Origin.ASSUMED, f"as it was asked{was}")
    server = replace(server, figures=tuple({**stated, path: asked}.values()))
    if not path.startswith(DECIDES_KERNELS):
        return server
    return carried_over(server, stated.keys() - {path}, lambda _: f"{server.name} as its profile has it")


def state(path: str, number: float, origin: Origin, source: str) -> Figure:
    """Return the figure of a number in SI units at a key path, which reads back exactly."""
    limits = range_of(path)
    assert limits.low <= number <= limits.high, f"{path}: {number} is not from {limits.shown}"
    return Figure(path, quantity_text(number, limits.dimension), origin, source)


def rounded_figure(path: str, number: float) -> float:
    """Return a measured number rounded to four digits in the unit of its figure, as `7.467 us`; integers stay."""
    return number if isinstance(number, int) else rounded_quantity(number, range_of(path).dimension, _MEASURED_DIGITS)


def stated_number(figure: Figure) -> float:
    return parse_quantity(figure.text, range_of(figure.path).dimension)


def figure_lines(indent: str, key: str, figure: Figure) -> Iterator[str]:
    """Yield a figure as YAML under its key, on one line if it fits."""
    # Text that is no quantity reads back unchanged only in quotes.
    value = figure.text if _QUANTITY.fullmatch(figure.text) else quoted(figure.text)
    members = (f"value: {value}", f"origin: {figure.origin.value}", f"source: {quoted(figure.source)}")
    line = f"{indent}{key}: {{{', '.join(members)}}}"
    if len(line) <= _LONGEST_LINE:
        yield line
    else:
        yield f"{indent}{key}:"
        yield from (f"{indent}  {member}" for member in members)


def quoted(text: str) -> str:
    assert text.isprintable() and text.strip() == text and 0 < len(text) <= LONGEST_TEXT, f"{text!r} is no line"  # noqa: PT018  # one notion
    return json.dumps(text, ensure_ascii=False)


@dataclass
class Figures:
    """Reads figures and collects them as stated."""

    stated: list[Figure] = field(default_factory=list)

    def fields(self, part: type, keys: Mapping[str, Entry]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for each in definitions(part):
            if each.stated.key not in keys:
                continue
            entry = keys[each.stated.key]
            if each.below is None:
                found[each.field] = self.number(entry, each.stated.range, is_whole=each.is_whole)
                continue
            names = entry.members((), each.names)
            if not names:
                raise entry.expected("a figure for at least one element type")
            found[each.field] = {
                each.below(name): self.number(below, each.stated.range) for name, below in names.items()
            }
        return found

    def number(self, entry: Entry, limits: Range, *, is_whole: bool = False) -> float:
        """Return a number in SI units within its limits; an integer is rounded from bytes, and checked for counts."""
        if isinstance(entry.value, str | int | float) and not isinstance(entry.value, bool):
            # Said first if it is of another unit.
            quantity(entry, limits, is_whole=is_whole)
            key, value = entry.path.rpartition(".")[2], entry.value
            origins = ", ".join(each.value for each in Origin)
            line = f'{key}: {{value: {value}, origin: ..., source: "..."}}'
            raise entry.expected(f"origin ({origins}) and source as well: {line}")
        members = entry.members(_FIGURE)
        number = quantity(members["value"], limits, is_whole=is_whole)
        origin = members["origin"].choice(Origin, "an origin")
        self.stated.append(Figure(entry.path, str(members["value"].value), origin, members["source"].text()))
        return number


def quantity(entry: Entry, limits: Range, *, is_whole: bool = False) -> float:
    """Return a number in SI units within its limits; an integer is rounded from bytes, and checked for counts."""
    stated = entry.value
    if stated is None or isinstance(stated, bool | dict | list):
        raise entry.expected(f"a number of {limits.dimension.value} from {limits.shown}")
    if isinstance(stated, str) and len(stated) > LONGEST_SHOWN:
        stated = f"{stated[:LONGEST_SHOWN]}..."
    try:
        number = parse_quantity(stated, limits.dimension)
    except InputError as failure:
        raise entry.wrong(str(failure)) from None
    if not limits.low <= number <= limits.high:
        raise entry.expected(f"from {limits.shown}")
    if is_whole and limits.dimension is Dimension.COUNT and number != int(number):
        raise entry.expected(f"a whole number from {limits.shown}")
    return round(number) if is_whole else number
