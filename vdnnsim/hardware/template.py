"""The profile of a machine that nobody has described yet, with a mark wherever a person has to write something."""

from collections.abc import Iterator
from dataclasses import MISSING
from typing import Final

from vdnnsim.hardware.figures import definitions
from vdnnsim.hardware.missing import PLACEHOLDER
from vdnnsim.hardware.server import Gpu, Host, Link

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


def template(name: str) -> str:
    """Return a profile to be filled in, as YAML; `vdnnsim check` says what is still missing."""
    sections = (("gpu", Gpu), ("link", Link), ("host", Host))
    lines = [line for section, part in sections for line in _section(section, part)]
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
