"""Seconds of copies over the link to the host, alone on it, and of pinning host memory.

Both are a latency plus bytes over a rate (calculon's model of a link). If copies of several sizes were measured, the
time is interpolated linearly between their medians; below the smallest size it is constant, above the largest the rate
is. A copy page by page takes a latency for each page and nothing else.

Concurrent copies share links in the engine: the bytes of a copy flow at the rate that its links have left, and what it
takes beyond that when alone passes before the first byte.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from vdnnsim.hardware.copies import Curve, Direction
from vdnnsim.hardware.server import Host, Link, Server
from vdnnsim.hardware.topology import Hop, Topology


def copy_s(link: Link, direction: Direction, nbytes: int) -> float:
    curve = link.copies.curves[direction] if link.copies is not None else ()
    return _on_curve_s(curve, nbytes) if curve else line_s(link, direction, nbytes)


def line_s(link: Link, direction: Direction, nbytes: int) -> float:
    """Return the seconds of a copy by latency and bandwidth, whether or not there is a curve."""
    rate = link.h2d_bytes_per_s if direction is Direction.H2D else link.d2h_bytes_per_s
    return link.latency_s + nbytes / rate


def _on_curve_s(curve: Curve, nbytes: int) -> float:
    (least, least_s), (most, most_s) = curve[0], curve[-1]
    if nbytes <= least:
        return least_s
    if nbytes >= most:
        return most_s * nbytes / most
    above = bisect_right(curve, nbytes, key=lambda point: point[0])
    (low, low_s), (high, high_s) = curve[above - 1 : above + 1]
    return low_s + (high_s - low_s) * (nbytes - low) / (high - low)


def before_flow_s(server: Server, direction: Direction, path: Sequence[Hop], nbytes: int) -> float:
    """Return the seconds of a copy to or from the host before its bytes flow over the links of a topology.

    That is the latency of the path, or, with a curve, its excess over the bytes at the least rate of the path, so that
    a copy alone takes the time of the curve, but is never faster than its links.
    """
    assert server.topology is not None, "a link of its own is not shared"
    if server.link.copies is None or not server.link.copies.curves[direction]:
        return server.topology.latency_s(path)
    return max(0.0, copy_s(server.link, direction, nbytes) - nbytes / server.topology.alone_bytes_per_s(path))


def paged_copy_s(nbytes: int, page_bytes: int, page_latency_s: float) -> float:
    """Return the seconds to copy `nbytes` page by page, one page fault after the other (vDNN paper, II-C)."""
    return math.ceil(nbytes / page_bytes) * page_latency_s


def pin_s(host: Host, nbytes: int) -> float:
    return host.pin_latency_s + nbytes / host.pin_bytes_per_s


@dataclass(frozen=True, slots=True)
class HostCopies:
    """Copies between the host and one of the GPUs of a server that train together.

    Attributes:
        gpus: number of GPUs that train together, the first of the server; all copy at the same time.
    """

    server: Server
    gpus: int = 1

    def seconds(self, direction: Direction, nbytes: int) -> float:
        """Return how long a copy takes beside the same copy of every other GPU."""
        topology, link = self.server.topology, self.server.link
        if topology is None:
            return copy_s(link, direction, nbytes)
        paths = [_path(topology, direction, gpu) for gpu in range(self.gpus)]
        shared_bytes_per_s = min(
            topology.links[hop.link].alone_bytes_per_s(hop.way) / sum(hop in path for path in paths) for hop in paths[0]
        )
        return before_flow_s(self.server, direction, paths[0], nbytes) + nbytes / shared_bytes_per_s

    def best_bytes_per_s(self, direction: Direction) -> float:
        """Return the best rate of a copy of any size, alone on its links."""
        topology, link = self.server.topology, self.server.link
        curve = link.copies.curves[direction] if link.copies is not None else ()
        if curve:
            alone = max(nbytes / seconds for nbytes, seconds in curve)
        else:
            alone = link.h2d_bytes_per_s if direction is Direction.H2D else link.d2h_bytes_per_s
        return alone if topology is None else topology.alone_bytes_per_s(_path(topology, direction, 0))


def _path(topology: Topology, direction: Direction, gpu: int) -> tuple[Hop, ...]:
    return tuple(topology.to_host(gpu) if direction is Direction.D2H else topology.from_host(gpu))
