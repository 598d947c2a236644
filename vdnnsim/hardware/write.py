"""Writing a profile: YAML that `vdnnsim.hardware.profile` reads back as the same machine, with its table beside it.

Figures are written as they are stated, with value, origin and source; one that the machine has and nobody states is a
bug of whoever made the machine.
"""

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vdnnsim.errors import ProfileError
from vdnnsim.hardware.figure_text import figure_lines, quoted
from vdnnsim.hardware.figures import stated_number
from vdnnsim.hardware.privacy import what_identifies
from vdnnsim.hardware.profile import SCHEMA_VERSION
from vdnnsim.hardware.profile_sections import LAYOUTS
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, MeasuredKernels, Server
from vdnnsim.hardware.topology_text import FIGURES_AT, topology_lines
from vdnnsim.messages import quote
from vdnnsim.replace import replace_files

_LINK: Final = "link."


def kernels_beside(profile: Path, table: str, *, tf32: bool, channels_last: bool) -> MeasuredKernels:
    """Return what a profile at this path says of its kernels.

    Args:
        profile: where it will be written.
        table: the content of the table that will be written beside it.
        tf32: whether float32 products were computed in TF32.
        channels_last: whether maps lay as N, H, W, C.
    """
    sha256 = hashlib.sha256(table.encode()).hexdigest()
    return MeasuredKernels(profile.with_name(f"{profile.stem}.kernels.csv"), sha256, tf32, channels_last)


def write_profile(path: Path, server: Server, description: str, table: str | None = None) -> tuple[Path, ...]:
    """Write a profile and the table of its kernels, each whole or not at all; return their paths.

    Args:
        path: where the profile goes; its stem is the name of the machine.
        server: the machine.
        description: one line for people.
        table: content of the table that `server.kernels` speaks of.

    Raises:
        OutputError: they cannot be written.
        ProfileError: the profile would tell whose machine it is.
    """
    assert path.name == f"{server.name}.yaml", f"{path} is no place for {server.name}"
    contents: dict[str, bytes] = {}
    # The table goes first: a profile never names one that is not there yet.
    if server.kernels is not None:
        assert table is not None, "kernels without their table"
        data = table.encode()
        assert hashlib.sha256(data).hexdigest() == server.kernels.sha256, "another table than the machine's"
        contents[server.kernels.table.name] = data
    contents[path.name] = profile_text(server, description).encode()
    return replace_files(path.parent, contents)


def profile_text(server: Server, description: str) -> str:
    """Return a profile as YAML text.

    Raises:
        ProfileError: a text in it tells whose machine it is.
    """
    for name, text in (("description", description), *server.provenance):
        if found := what_identifies(name, text):
            raise ProfileError(f"{server.name}: {name}: {quote(text)} looks like {found}, which no profile may tell")
    return (
        "\n".join([*_head(server, description), *_figure_sections(server), *_rest(server), *_topology(server)]) + "\n"
    )


def _head(server: Server, description: str) -> Iterator[str]:
    yield f"schema_version: {SCHEMA_VERSION}"
    yield f"name: {quoted(server.name)}"
    yield f"description: {quoted(description)}"


def _figure_sections(server: Server) -> Iterator[str]:
    names = {"gpu": server.gpu.name, "link": server.link.name}
    stated = {figure.path: figure for figure in server.figures if not figure.path.startswith(FIGURES_AT)}
    section, below = "", ""
    for path, number in _numbers(server):
        figure = stated.pop(path)
        read = stated_number(figure)
        assert number == (round(read) if isinstance(number, int) else read), f"{path}: {number} as {figure.text}"
        first, *middle, key = path.split(".")
        if first != section:
            section, below = first, ""
            yield from ("", f"{section}:")
            if section in names:
                yield f"  name: {quoted(names[section])}"
            if section == "cost_model" and server.cost_model_kind != DEFAULT_COST_MODEL:
                yield f"  kind: {quoted(server.cost_model_kind)}"
        if middle and middle[0] != below:
            below = middle[0]
            yield f"  {below}:"
        yield from figure_lines("  " * (1 + len(middle)), key, figure)
    assert not stated, f"figures of nothing: {', '.join(stated)}"


def _numbers(server: Server) -> Iterator[tuple[str, float]]:
    """Yield the key path of every figure of a machine and its number, in the order of the file."""
    gpu, link, host, power = server.gpu, server.link, server.host, server.power
    numbers: dict[str, float | None] = {
        "gpu.memory": gpu.memory_bytes,
        "gpu.dram_bandwidth": gpu.dram_bytes_per_s,
        "gpu.multiprocessors": gpu.multiprocessors,
        "gpu.granule": gpu.granule_bytes,
        "gpu.context": gpu.context_bytes or None,
        "gpu.handle": gpu.handle_bytes or None,
        **{f"gpu.peak.{element_type.value}": rate for element_type, rate in gpu.flop_per_s.items()},
        "link.h2d": link.h2d_bytes_per_s,
        "link.d2h": link.d2h_bytes_per_s,
        "link.latency": link.latency_s,
        "link.peak": link.peak_bytes_per_s,
        "link.pageable_h2d": link.pageable_h2d_bytes_per_s,
        "link.pageable_d2h": link.pageable_d2h_bytes_per_s,
        "link.both_directions": link.both_directions_fraction,
        "link.beside_compute": link.beside_compute_fraction,
        "link.beside_memory_bound": link.beside_memory_bound_fraction,
        "host.memory": host.memory_bytes,
        "host.issue": host.issue_s,
        "host.pin_latency": host.pin_latency_s,
        "host.pin_bandwidth": host.pin_bytes_per_s,
        **{f"cost_model.{name}": number for name, number in server.cost_model.items()},
    }
    if power is not None:
        numbers |= {
            "power.idle": power.idle_watts,
            "power.flop": power.joules_per_flop,
            "power.dram": power.joules_per_dram_byte,
            "power.link": power.joules_per_link_byte,
            "power.limit": power.limit_watts if math.isfinite(power.limit_watts) else None,
        }
    if not _states_link(server):
        numbers = {path: number for path, number in numbers.items() if not path.startswith(_LINK)}
    for path, number in numbers.items():
        if number is not None:
            yield path, number


def _states_link(server: Server) -> bool:
    """Whether the link is stated; else it is the way of the first GPU through the topology."""
    return server.topology is None or any(figure.path.startswith(_LINK) for figure in server.figures)


def _rest(server: Server) -> Iterator[str]:
    if not server.cost_model and server.cost_model_kind != DEFAULT_COST_MODEL:
        yield from ("", f"cost_model: {{kind: {quoted(server.cost_model_kind)}}}")
    if server.kernels is not None:
        kernels = server.kernels
        layout = LAYOUTS[kernels.channels_last]
        tf32 = "true" if kernels.tf32 else "false"
        yield from ("", f"kernels: {{table: {quoted(kernels.table.name)}, tf32: {tf32}, layout: {layout}}}")
    if server.provenance:
        yield from ("", "provenance:")
        yield from (f"  {name}: {quoted(text)}" for name, text in server.provenance)


def _topology(server: Server) -> Iterator[str]:
    if server.topology is not None:
        figures = [figure for figure in server.figures if figure.path.startswith(FIGURES_AT)]
        yield from topology_lines(server.topology, figures)
