"""The profile of a machine that nobody has described yet, and what one lacks that somebody did.

All that is lacking is said at once: `gpu (line 6): memory, peak; gpu.granule (line 9): source; host`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from typing import Final

from vdnnsim.files.value import YamlValue
from vdnnsim.hardware.figures import definitions, keys_of
from vdnnsim.hardware.server import Gpu, Host, Link

PLACEHOLDER: Final = "..."
"""Stands in a template where a person has to write something."""
_FIGURE: Final = f"{{value: {PLACEHOLDER}, origin: datasheet, source: {PLACEHOLDER}}}"
_NAMED: Final = {"gpu": f"  name: {PLACEHOLDER} # as its maker calls it", "link": "  name: PCIe gen4 x16"}
_HEAD: Final = f"""\
# Fill in every {PLACEHOLDER}, and take the # from what you know besides; `vdnnsim check` says what is missing.
# An origin is datasheet, measured, paper or assumed; a source says where a number was found, or why it is assumed.
schema_version: 1
name: NAME
description: {PLACEHOLDER}
# Of a card like one that is here state only what differs: take the # away here, and what is the same below.
# extends: rtx_4090
"""
_COST_MODEL: Final = """
# What kernels take by the peaks above, which no real one reaches; `vdnnsim check` says by how much.
cost_model:
  kind: roofline
  launch_overhead_s: {value: 4e-06, origin: assumed, source: "of the order of a launch on any GPU"}
"""
_MEMBERS: Final = ("value", "origin", "source")
_SECTIONS: Final = {"gpu": Gpu, "link": Link, "host": Host}


def template(name: str) -> str:
    """Return a profile to be filled in, as YAML; `vdnnsim check` says what is still missing."""
    lines = [line for section, part in _SECTIONS.items() for line in _section(section, part)]
    return _HEAD.replace("NAME", name) + "\n".join(lines) + "\n" + _COST_MODEL


def _section(section: str, part: type) -> Iterator[str]:
    yield from ("", f"{section}:")
    if section in _NAMED:
        yield _NAMED[section]
    for each in definitions(part):
        mark = "" if each.default is MISSING else "# "
        example = f"{each.stated.words}, as {each.stated.range.example}"
        if each.below is None:
            yield f"  {mark}{each.stated.key}: {_FIGURE} # {example}"
        else:
            yield f"  {each.stated.key}: # {example}"
            first, *others = each.names
            yield f"    {first}: {_FIGURE}"
            yield from (f"    # {other}: {_FIGURE}" for other in others)


def missing(content: YamlValue, lines: Mapping[str, int]) -> str:
    """Return what a profile lacks, with the lines where it belongs; empty where nothing known is missing."""
    if not isinstance(content, dict):
        return ""
    told = [*_unfilled(content, "", lines), *_lacking(content, lines)]
    return "; ".join(told)


def _lacking(content: Mapping[str, YamlValue], lines: Mapping[str, int]) -> Iterator[str]:
    for name, part in _SECTIONS.items():
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
    """Yield where a placeholder of the template still stands."""
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
