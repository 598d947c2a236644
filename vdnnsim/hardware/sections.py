"""Reading of the sections of a profile and its tables, and the list of what an incomplete one lacks."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeVar

from vdnnsim.errors import ProfileError
from vdnnsim.files.csv_table import read_table
from vdnnsim.files.messages import file_name, quote
from vdnnsim.files.value import Entry, YamlValue
from vdnnsim.hardware.copies import MeasuredCopies, read_copies
from vdnnsim.hardware.figures import Figures, definitions, keys_of
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, Gpu, Host, Link, MeasuredKernels, Power
from vdnnsim.hardware.stated_figure import parameter_range
from vdnnsim.hardware.topology import Topology

PLACEHOLDER: Final = "..."
"""In the template of a profile, for text to be filled in."""
SECTIONS: Final = {"gpu": Gpu, "link": Link, "host": Host}
_MOST_HOSTS: Final = 10_000
_MEMBERS: Final = ("value", "origin", "source")
LAYOUTS: Final = ("nchw", "nhwc")
"""Layouts of the maps of a measured kernel: channels before or after pixels."""
_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}\.csv")

Part = TypeVar("Part", bound=Gpu | Link | Host | Power)
_NAMES: Final = (
    (re.compile(r"(.*_)?(host|hostname|host_?name|node|nodename|computer|fqdn|domain)"), "the name of a machine"),
    (re.compile(r"(.*_)?(user|username|user_?name|login|owner|author|account|home)"), "the name of a person"),
    (re.compile(r"(.*_)?(serial|serial_?number|uuid|guid|mac|mac_address|ip|ip_address)"), "one specimen of a machine"),
    (re.compile(r"(.*_)?(email|e_mail|mail|phone|address)"), "an address"),
)
_VALUES: Final = (
    (re.compile(r"(/(home|Users|root)/|^/root$|~/|[A-Za-z]:\\Users\\)"), "a path into somebody's home"),
    (re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+"), "an e-mail address"),
    (re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"), "a UUID"),
    (re.compile(r"\b([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"), "the address of a network card"),
    (re.compile(r"\b[0-9]{12,}\b|(?i:serial (no|number)|s/n\b)"), "a serial number"),
)


def read_part(part: type[Part], entry: Entry, figures: Figures, *texts: str) -> Part:
    required, optional = keys_of(part)
    keys = entry.members((*texts, *required), optional)
    named: dict[str, Any] = {name: keys[name].text() for name in texts}
    return part(**named, **figures.fields(part, keys))


def read_cost_model(entry: Entry, figures: Figures) -> tuple[str, Mapping[str, float]]:
    parameters = dict(entry.named_members("parameters"))
    kind = parameters.pop("kind").text() if "kind" in parameters else DEFAULT_COST_MODEL
    for name in parameters:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a parameter's name, expected small letters, digits and _")
    return kind, {name: figures.number(figure, parameter_range(name)) for name, figure in parameters.items()}


def read_kernels(entry: Entry, folder: Path) -> MeasuredKernels:
    keys = entry.members(("table", "tf32", "layout"))
    table, data = _table(keys["table"], folder)
    tf32 = keys["tf32"].boolean()
    channels_last = keys["layout"].name(LAYOUTS, "a layout") == "nhwc"
    return MeasuredKernels(table, hashlib.sha256(data).hexdigest(), tf32, channels_last)


def copies_of(entry: Entry, folder: Path) -> MeasuredCopies:
    """Return the copies in the table of the section `copies`."""
    return read_copies(*_table(entry.members(("table",))["table"], folder))


def _table(entry: Entry, folder: Path) -> tuple[Path, bytes]:
    name = entry.text()
    if not _TABLE.fullmatch(name):
        raise entry.expected("the name of a CSV file beside the profile, in letters, digits and any of _.-")
    table = folder / name
    if table.is_symlink() and table.resolve().parent != folder.resolve():
        # A profile from elsewhere must not make other files be read, and parts of them printed.
        raise entry.wrong(f"{file_name(table)} is a link to another folder, expected a file beside the profile")
    try:
        return table, read_table(table)
    except ProfileError as failure:
        raise entry.wrong(str(failure)) from failure


def read_provenance(entry: Entry) -> tuple[tuple[str, str], ...]:
    texts = entry.named_members("names and what is said of each")
    for name in texts:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a name, expected small letters, digits and _")
    return tuple((name, anonymous_text(name, text)) for name, text in texts.items())


def read_hosts(entry: Entry, topology: Topology | None) -> int:
    """Return how many servers are a cluster."""
    hosts = entry.integer(1, _MOST_HOSTS)
    if hosts > 1 and (topology is None or not topology.cards):
        raise entry.wrong(f"found {hosts}, expected a 'network' in the topology to join them, or 1")
    return hosts


def anonymous_text(name: str, entry: Entry) -> str:
    """Return the text of an entry, unless it identifies a person or a machine."""
    text = entry.text()
    if found := what_identifies(name, text):
        raise entry.wrong(f"looks like {found}, expected nothing that identifies anybody")
    return text


def what_identifies(name: str, text: str) -> str | None:
    """Return the kind of identifying information that a name or its text looks like; None without any.

    Known limitation: names of persons alone are not recognized.
    """
    names = (what for pattern, what in _NAMES if pattern.fullmatch(name))
    return next(chain(names, (what for pattern, what in _VALUES if pattern.search(text))), None)


def missing(content: YamlValue, lines: Mapping[str, int]) -> str:
    """Return the missing keys of a profile with their lines; empty if it is complete.

    As `gpu (line 6): memory, peak; gpu.granule (line 9): source; host`.
    """
    return "; ".join([*_unfilled(content, "", lines), *_lacking(content, lines)]) if isinstance(content, dict) else ""


def _lacking(content: Mapping[str, YamlValue], lines: Mapping[str, int]) -> Iterator[str]:
    for name, part in SECTIONS.items():
        required = [*([] if part is Host else ["name"]), *keys_of(part)[0]]
        if name not in content:
            if name != "link" or "topology" not in content:
                yield f"{name} ({', '.join(required)})"
            continue
        section = content[name]
        if not isinstance(section, dict):
            continue
        lacks = [key for key in required if key not in section]
        if lacks:
            yield f"{_place(name, lines)}: {', '.join(lacks)}"
        for each in definitions(part):
            figure, path = section.get(each.stated.key), f"{name}.{each.stated.key}"
            figures = {path: figure}
            if each.below is not None:
                figures = {f"{path}.{key}": value for key, value in figure.items()} if isinstance(figure, dict) else {}
            for where, value in figures.items():
                if isinstance(value, dict) and (members := [key for key in _MEMBERS if key not in value]):
                    yield f"{_place(where, lines)}: {', '.join(members)}"


def _unfilled(value: YamlValue, path: str, lines: Mapping[str, int]) -> Iterator[str]:
    """Yield the places of placeholders of the template."""
    if not isinstance(value, dict):
        return
    keys = [key for key, each in value.items() if each == PLACEHOLDER]
    if keys:
        first = _place(path, lines) if path else f"line {lines.get(keys[0], 1)}"
        yield f"{first}: {', '.join(keys)}"
    for key, each in value.items():
        yield from _unfilled(each, f"{path}.{key}" if path else key, lines)


def _place(path: str, lines: Mapping[str, int]) -> str:
    return f"{path} (line {lines[path]})" if path in lines else path
