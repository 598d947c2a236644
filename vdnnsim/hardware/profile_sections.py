"""The sections of a profile that speak of one thing each: GPU, link, host, costs, power, kernels and provenance."""

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vdnnsim.element_type import ElementType
from vdnnsim.entry import Entry
from vdnnsim.hardware.figures import Figures
from vdnnsim.hardware.privacy import what_identifies
from vdnnsim.hardware.server import DEFAULT_COST_MODEL, Gpu, Host, Link, MeasuredKernels, Power
from vdnnsim.messages import file_name, quote

_PARAMETER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TABLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}\.csv")
LAYOUTS: Final = ("nchw", "nhwc")
"""Of the maps of a measured kernel: channels before pixels, or after them."""


def read_gpu(entry: Entry, figures: Figures) -> Gpu:
    """Return the GPU of the section `gpu`."""
    required = ("name", "memory", "dram_bandwidth", "multiprocessors", "granule", "peak")
    keys = entry.members(required, ("context", "handle"))
    peaks = keys["peak"].members((), [element_type.value for element_type in ElementType])
    if not peaks:
        raise keys["peak"].expected("a figure for at least one element type")
    return Gpu(
        name=keys["name"].text(),
        memory_bytes=figures.whole(keys["memory"]),
        dram_bytes_per_s=figures.number(keys["dram_bandwidth"]),
        multiprocessors=figures.whole(keys["multiprocessors"]),
        granule_bytes=figures.whole(keys["granule"]),
        context_bytes=figures.whole(keys["context"]) if "context" in keys else 0,
        handle_bytes=figures.whole(keys["handle"]) if "handle" in keys else 0,
        flop_per_s={ElementType(name): figures.number(peak) for name, peak in peaks.items()},
    )


def read_link(entry: Entry, figures: Figures) -> Link:
    """Return the link of the section `link`."""
    optional = ("peak", "pageable_h2d", "pageable_d2h", "both_directions", "beside_compute", "beside_memory_bound")
    keys = entry.members(("name", "h2d", "d2h", "latency"), optional)
    return Link(
        name=keys["name"].text(),
        h2d_bytes_per_s=figures.number(keys["h2d"]),
        d2h_bytes_per_s=figures.number(keys["d2h"]),
        latency_s=figures.number(keys["latency"]),
        peak_bytes_per_s=figures.optional(keys, "peak"),
        pageable_h2d_bytes_per_s=figures.optional(keys, "pageable_h2d"),
        pageable_d2h_bytes_per_s=figures.optional(keys, "pageable_d2h"),
        both_directions_fraction=figures.optional(keys, "both_directions"),
        beside_compute_fraction=figures.optional(keys, "beside_compute"),
        beside_memory_bound_fraction=figures.optional(keys, "beside_memory_bound"),
    )


def read_host(entry: Entry, figures: Figures) -> Host:
    """Return the host of the section `host`."""
    keys = entry.members(("memory", "issue", "pin_latency", "pin_bandwidth"))
    return Host(
        memory_bytes=figures.whole(keys["memory"]),
        issue_s=figures.number(keys["issue"]),
        pin_latency_s=figures.number(keys["pin_latency"]),
        pin_bytes_per_s=figures.number(keys["pin_bandwidth"]),
    )


def read_cost_model(entry: Entry, figures: Figures) -> tuple[str, Mapping[str, float]]:
    """Return the kind and the parameters of the section `cost_model`; what they mean `vdnnsim.cost` defines."""
    parameters = dict(entry.named_members("parameters"))
    kind = parameters.pop("kind").text() if "kind" in parameters else DEFAULT_COST_MODEL
    for name in parameters:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a parameter's name, expected small letters, digits and _")
    return kind, {name: figures.number(figure) for name, figure in parameters.items()}


def read_power(entry: Entry, figures: Figures) -> Power:
    """Return what the section `power` says; without a limit there is none."""
    keys = entry.members(("idle", "flop", "dram", "link"), ("limit",))
    return Power(
        idle_watts=figures.number(keys["idle"]),
        joules_per_flop=figures.number(keys["flop"]),
        joules_per_dram_byte=figures.number(keys["dram"]),
        joules_per_link_byte=figures.number(keys["link"]),
        limit_watts=figures.number(keys["limit"]) if "limit" in keys else math.inf,
    )


def read_kernels(entry: Entry, folder: Path) -> MeasuredKernels:
    """Return what the section `kernels` names: a table in the folder of the profile."""
    keys = entry.members(("table", "tf32", "layout"))
    name = keys["table"].text()
    if not _TABLE.fullmatch(name):
        raise keys["table"].expected("the name of a CSV file beside the profile, in letters, digits and any of _.-")
    tf32 = keys["tf32"].value
    if not isinstance(tf32, bool):
        raise keys["tf32"].expected("true or false")
    channels_last = keys["layout"].name(LAYOUTS, "a layout") == "nhwc"
    table = folder / name
    try:
        sha256 = hashlib.sha256(table.read_bytes()).hexdigest()
    except OSError as failure:
        reason = (failure.strerror or "unknown error").lower()
        raise keys["table"].wrong(f"{file_name(table)} cannot be read: {reason}") from None
    return MeasuredKernels(table, sha256, tf32, channels_last)


def read_provenance(entry: Entry) -> tuple[tuple[str, str], ...]:
    """Return names and texts of the section `provenance`."""
    texts = entry.named_members("names and what is said of each")
    for name in texts:
        if not _PARAMETER.fullmatch(name):
            raise entry.wrong(f"{quote(name)} is not a name, expected small letters, digits and _")
    return tuple((name, telling_of_nobody(name, text)) for name, text in texts.items())


def telling_of_nobody(name: str, entry: Entry) -> str:
    """Return a text that stands under a name, unless it identifies anybody."""
    text = entry.text()
    if found := what_identifies(name, text):
        raise entry.wrong(f"looks like {found}, expected nothing that identifies anybody")
    return text
