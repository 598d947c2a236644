"""Servers with some of their figures replaced, as `link.bandwidth` or `gpu.memory`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from vdnnsim.cost.model import EFFICIENCY
from vdnnsim.cost.transfer import line_s
from vdnnsim.cost.trust import Basis, basis_of
from vdnnsim.errors import StudyError
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.figures import with_number
from vdnnsim.hardware.server import Link, Server
from vdnnsim.hardware.topology import FabricPort, Sharing, Topology, TopologyLink

COMPUTE_SPEED: Final = "gpu.compute_speed"
"""A factor that divides the time of every kernel; no figure of a machine."""
BANDWIDTH: Final = "link.bandwidth"
"""Of both directions."""
NVLINK: Final = "link.nvlink"
"""Of a GPU each way, to a switch that joins all GPUs of a server."""
_NVLINK_S: Final = 10e-6
"""Of the order that small copies take from call to end on any GPU, as in the profiles."""

_RATES = {"link.h2d": "down_bytes_per_s", "link.d2h": "up_bytes_per_s"}
"""Of a link in a topology."""


def with_figures(server: Server, figures: Mapping[str, float]) -> Server:
    """Return a server with other figures, in SI units by key path.

    Raises:
        StudyError: a figure would change nothing on this server.
    """
    for path, number in figures.items():
        assert path != COMPUTE_SPEED, "a factor of the cost table, no figure"
        if path.startswith(("cost_model.", "gpu.peak.")) and basis_of(server) is Basis.MEASURED:
            why = f"the kernels of this machine are in a table; vary {COMPUTE_SPEED}"
            raise StudyError(f"{server.name}: {path}: {why}")
        if path.startswith("power.") and (server.power is None or server.cost_model_kind != EFFICIENCY):
            why = "what this machine draws decides no time, for its profile has no power of tensor cores"
            raise StudyError(f"{server.name}: {path}: {why}; expected a machine that has, as h100_sxm")
        if path == NVLINK:
            server = _with_nvlink(server, number)
            continue
        for each in ("link.h2d", "link.d2h") if path == BANDWIDTH else (path,):
            server = _with_curves(with_number(server, each, number), server.link)
            if server.topology is not None and each == "link.latency":
                server = replace(server, topology=_with_latency(server.topology, number))
            elif server.topology is not None and each in _RATES:
                server = replace(server, topology=_with_rate(server.topology, _RATES[each], number))
    return server


def _with_curves(server: Server, before: Link) -> Server:
    """Scale measured copies by the change in the time that the figures of the link predict."""
    link = server.link
    if link == before or link.copies is None:
        return server

    def factor(direction: Direction, nbytes: int) -> float:
        return line_s(link, direction, nbytes) / line_s(before, direction, nbytes)

    return replace(server, link=replace(link, copies=link.copies.scaled(factor)))


def _with_nvlink(server: Server, bytes_per_s: float) -> Server:
    topology = server.topology
    if topology is None or server.gpu_count == 1:
        raise StudyError(f"{server.name}: {NVLINK}: found one GPU, expected a machine with several, as rtx_4090_x8")
    ports = tuple(
        FabricPort(
            gpu.name, TopologyLink(f"fabric-{gpu.name}", bytes_per_s, bytes_per_s, _NVLINK_S, Sharing.SPLIT_DUPLEX)
        )
        for gpu in topology.gpus
    )
    return replace(server, topology=replace(topology, peers=(), ports=ports, multicast=False))


def _with_rate(topology: Topology, rate: str, number: float) -> Topology:
    """Change a rate of every link of the type that connects GPU 0, of which collectives keep the share of down."""
    own = topology.gpus[0].link
    assert own is not None, "a GPU is no root"

    def changed(link: TopologyLink) -> TopologyLink:
        if link.kind != own.kind:
            return link
        nccl = link.nccl_bytes_per_s
        if nccl is not None and rate == _RATES["link.h2d"]:
            nccl *= number / link.down_bytes_per_s
        return replace(link, nccl_bytes_per_s=nccl, **{rate: number})  # type: ignore[arg-type]  # a float

    return _with_links(topology, changed)


def _with_latency(topology: Topology, number: float) -> Topology:
    """Change the latencies of all types of links from GPU 0 to host memory, to this sum.

    Each keeps its share; if all are zero, the type that connects GPU 0 gets it.
    """
    own = topology.gpus[0].link
    assert own is not None, "a GPU is no root"
    way = [topology.links[hop.link] for hop in topology.to_host(0)]
    together, kinds = sum(link.latency_s for link in way), {link.kind for link in way}
    count = sum(link.kind == own.kind for link in way)

    def changed(link: TopologyLink) -> TopologyLink:
        if together:
            return replace(link, latency_s=link.latency_s * number / together) if link.kind in kinds else link
        return replace(link, latency_s=number / count) if link.kind == own.kind else link

    return _with_links(topology, changed)


def _with_links(topology: Topology, changed: Callable[[TopologyLink], TopologyLink]) -> Topology:
    return replace(
        topology,
        nodes=tuple(replace(node, link=node.link and changed(node.link)) for node in topology.nodes),
        peers=tuple(replace(peer, link=changed(peer.link)) for peer in topology.peers),
        ports=tuple(replace(port, link=changed(port.link)) for port in topology.ports),
        cards=tuple(replace(card, link=changed(card.link)) for card in topology.cards),
    )
