"""How long a copy over the link to the host takes alone, and how long pinning host memory takes.

Both are a latency plus bytes over a rate (calculon's model of a link without its curve by size). What concurrent copies
do to each other is the engine's business. A copy page by page takes a latency for each page and nothing else.
"""

import math
from enum import Enum

from vdnnsim.hardware.server import Host, Link


class Direction(Enum):
    """Which way a copy goes: from the host to the GPU (prefetch) or back (offload)."""

    H2D = "H2D"
    D2H = "D2H"


def copy_s(link: Link, direction: Direction, nbytes: int) -> float:
    """Return the seconds to copy `nbytes` of pinned memory."""
    rate = link.h2d_bytes_per_s if direction is Direction.H2D else link.d2h_bytes_per_s
    return link.latency_s + nbytes / rate


def paged_copy_s(nbytes: int, page_bytes: int, page_latency_s: float) -> float:
    """Return the seconds to copy `nbytes` page by page, one page fault after the other (vDNN paper, II-C)."""
    return math.ceil(nbytes / page_bytes) * page_latency_s


def pin_s(host: Host, nbytes: int) -> float:
    """Return the seconds to allocate and pin `nbytes` of host memory."""
    return host.pin_latency_s + nbytes / host.pin_bytes_per_s
