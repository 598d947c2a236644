"""Writing of profiles as YAML that `vdnnsim.hardware.profile` reads back, and a template to fill in.

Figures are written as stated, with value, origin and source; every number of the machine must be stated.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import MISSING
from pathlib import Path
from typing import Final

from vdnnsim.errors import OutputError, ProfileError
from vdnnsim.files.atomic import UNFINISHED, replace_files
from vdnnsim.files.messages import quote
from vdnnsim.files.regular import UnreadableError, read_regular_file
from vdnnsim.files.yaml_file import LARGEST_FILE_BYTES
from vdnnsim.hardware.copies import MeasuredCopies, read_copies
from vdnnsim.hardware.figures import definitions, figure_lines, numbers_of, quoted, stated_number
from vdnnsim.hardware.profile import SCHEMA_VERSION
from vdnnsim.hardware.sections import LAYOUTS, PLACEHOLDER, SECTIONS, what_identifies
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, MeasuredKernels, Server
from vdnnsim.hardware.topology_section import FIGURES_AT, topology_lines

_LINK: Final = "link."
_EMPTY_FIGURE: Final = f"{{value: {PLACEHOLDER}, origin: datasheet, source: {PLACEHOLDER}}}"
_NAMED: Final = {"gpu": f"  name: {PLACEHOLDER} # as its maker calls it", "link": "  name: PCIe gen4 x16"}
_TEMPLATE_HEAD: Final = f"""\
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
_HEAD: Final = "# Written by vdnnsim of what it measured or read; the next that it writes by this name replaces it."
_MEANWHILE: Final = f"""{_HEAD}
schema_version: {SCHEMA_VERSION}
{UNFINISHED}: its tables were being written, and may be of another profile; the same command writes them anew
"""


def refuse_foreign_profile(path: Path) -> None:
    """Refuse to overwrite a profile or tables that vdnnsim did not write.

    Raises:
        OutputError: one of them exists, and the profile has no mark of vdnnsim.
    """
    try:
        is_ours = read_regular_file(path, LARGEST_FILE_BYTES, "").startswith(_HEAD.encode())
    except UnreadableError:
        is_ours = False
    for each in () if is_ours else (path, _kernels(path), _copies(path)):
        if each.exists() or each.is_symlink():
            raise OutputError(f"{each}: does not say that vdnnsim wrote it; move it away, or choose another name")


def _kernels(profile: Path) -> Path:
    return profile.with_name(f"{profile.stem}.kernels.csv")


def _copies(profile: Path) -> Path:
    return profile.with_name(f"{profile.stem}.copies.csv")


def copies_beside(profile: Path, table: str) -> MeasuredCopies:
    return read_copies(_copies(profile), table.encode())


def kernels_beside(profile: Path, table: str, *, tf32: bool, channels_last: bool) -> MeasuredKernels:
    sha256 = hashlib.sha256(table.encode()).hexdigest()
    return MeasuredKernels(_kernels(profile), sha256, tf32, channels_last)


def write_profile(
    path: Path, server: Server, description: str, table: str | None = None, copies: str | None = None
) -> tuple[Path, ...]:
    """Write a profile and its tables atomically; return their paths.

    The stem of `path` names the machine. `table` is the content of the table of `server.kernels`, `copies` of that of
    `server.link.copies`.

    Raises:
        OutputError: they cannot be written.
        ProfileError: the profile would identify a person or a machine.
    """
    assert path.name == f"{server.name}.yaml", f"{path} is no place for {server.name}"
    contents: dict[str, bytes] = {}
    # Tables first: a profile never names one that does not exist.
    for measured, text in ((server.link.copies, copies), (server.kernels, table)):
        if measured is not None:
            assert text is not None, f"{measured.table.name} without its content"
            data = text.encode()
            assert hashlib.sha256(data).hexdigest() == measured.sha256, "another table than the machine's"
            contents[measured.table.name] = data
    # Meanwhile the profile is marked as unfinished.
    meanwhile = {path.name: _MEANWHILE.encode()} if contents else {}
    contents[path.name] = profile_text(server, description).encode()
    return replace_files(path.parent, contents, meanwhile)


def profile_text(server: Server, description: str) -> str:
    """Return a profile as YAML text, or raise ProfileError where a text in it identifies a person or a machine."""
    for name, text in (("description", description), *server.provenance):
        if found := what_identifies(name, text):
            raise ProfileError(f"{server.name}: {name}: {quote(text)} looks like {found}, which no profile may hold")
    lines = [
        _HEAD,
        f"schema_version: {SCHEMA_VERSION}",
        f"name: {quoted(server.name)}",
        f"description: {quoted(description)}",
        *_figure_sections(server),
    ]
    if not server.cost_model and server.cost_model_kind != DEFAULT_COST_MODEL:
        lines += ["", f"cost_model: {{kind: {quoted(server.cost_model_kind)}}}"]
    if (kernels := server.kernels) is not None:
        tf32, layout = "true" if kernels.tf32 else "false", LAYOUTS[kernels.channels_last]
        lines += ["", f"kernels: {{table: {quoted(kernels.table.name)}, tf32: {tf32}, layout: {layout}}}"]
    if server.link.copies is not None:
        lines += ["", f"copies: {{table: {quoted(server.link.copies.table.name)}}}"]
    if server.provenance:
        lines += ["", "provenance:", *(f"  {name}: {quoted(text)}" for name, text in server.provenance)]
    if server.hosts is not None:
        lines += ["", f"hosts: {server.hosts}"]
    if server.topology is not None:
        lines += topology_lines(server.topology, [each for each in server.figures if each.path.startswith(FIGURES_AT)])
    return "\n".join(lines) + "\n"


def _figure_sections(server: Server) -> Iterator[str]:
    heads = {"gpu": f"name: {quoted(server.gpu.name)}", "link": f"name: {quoted(server.link.name)}"}
    if server.cost_model_kind != DEFAULT_COST_MODEL:
        heads["cost_model"] = f"kind: {quoted(server.cost_model_kind)}"
    stated = {figure.path: figure for figure in server.figures if not figure.path.startswith(FIGURES_AT)}
    # A link that is not stated follows from the topology.
    has_link = server.topology is None or any(path.startswith(_LINK) for path in stated)
    section, below = "", ""
    for path, number in numbers_of(server):
        if path.startswith(_LINK) and not has_link:
            continue
        figure = stated.pop(path)
        read = stated_number(figure)
        assert number == (round(read) if isinstance(number, int) else read), f"{path}: {number} as {figure.text}"
        first, *middle, key = path.split(".")
        if first != section:
            section, below = first, ""
            yield from ("", f"{section}:")
            if section in heads:
                yield f"  {heads[section]}"
        if middle and middle[0] != below:
            below = middle[0]
            yield f"  {below}:"
        yield from figure_lines("  " * (1 + len(middle)), key, figure)
    assert not stated, f"figures of nothing: {', '.join(stated)}"


def template(name: str) -> str:
    """Return the YAML of a profile to be filled in; `vdnnsim check` lists what is missing."""
    lines = [line for section, part in SECTIONS.items() for line in _section(section, part)]
    return _TEMPLATE_HEAD.replace("NAME", name) + "\n".join(lines) + "\n" + _COST_MODEL


def _section(section: str, part: type) -> Iterator[str]:
    yield from ("", f"{section}:")
    if section in _NAMED:
        yield _NAMED[section]
    for each in definitions(part):
        mark = "" if each.default is MISSING else "# "
        example = f"{each.stated.words}, as {each.stated.range.example}"
        if each.below is None:
            yield f"  {mark}{each.stated.key}: {_EMPTY_FIGURE} # {example}"
        else:
            yield f"  {each.stated.key}: # {example}"
            first, *others = each.names
            yield f"    {first}: {_EMPTY_FIGURE}"
            yield from (f"    # {other}: {_EMPTY_FIGURE}" for other in others)
