"""A server with some of its figures replaced."""

from collections.abc import Mapping
from dataclasses import replace

from vdnnsim.element_type import ElementType
from vdnnsim.errors import StudyError
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import FabricPort, PeerLink, Topology, TopologyLink
from vdnnsim.study.keys import COMPUTE_SPEED

_GPU = {
    "memory": "memory_bytes",
    "dram_bandwidth": "dram_bytes_per_s",
    "multiprocessors": "multiprocessors",
    "granule": "granule_bytes",
    "context": "context_bytes",
    "handle": "handle_bytes",
}
_HOST = {
    "memory": "memory_bytes",
    "issue": "issue_s",
    "pin_latency": "pin_latency_s",
    "pin_bandwidth": "pin_bytes_per_s",
}
_LINK = {"h2d": ("h2d_bytes_per_s",), "d2h": ("d2h_bytes_per_s",), "latency": ("latency_s",)} | {
    "bandwidth": ("h2d_bytes_per_s", "d2h_bytes_per_s")
}
_TOPOLOGY = {"h2d_bytes_per_s": "down_bytes_per_s", "d2h_bytes_per_s": "up_bytes_per_s", "latency_s": "latency_s"}


def with_figures(server: Server, figures: Mapping[str, float]) -> Server:
    """Return a server with figures, in SI units by key path, in the place of its own.

    Raises:
        StudyError: a figure would change nothing on this server.
    """
    gpu, link, host, topology = server.gpu, server.link, server.host, server.topology
    cost_model = dict(server.cost_model)
    for path, number in figures.items():
        section, _, name = path.partition(".")
        if section == "cost_model" or name.startswith("peak."):
            _refuse_with_table(server, path)
        if section == "cost_model":
            cost_model[name] = number
        elif section == "host":
            host = replace(host, **{_HOST[name]: number})  # type: ignore[arg-type]  # by name
        elif section == "link":
            fields = dict.fromkeys(_LINK[name], number)
            link = replace(link, **fields)  # type: ignore[arg-type]  # rates and times are floats
            topology = None if topology is None else _with_link(topology, fields)
        elif name.startswith("peak."):
            peaks = gpu.flop_per_s | {ElementType(name.removeprefix("peak.")): number}  # type: ignore[operator]
            gpu = replace(gpu, flop_per_s=peaks)
        else:
            assert path != COMPUTE_SPEED, "a factor of the cost table, no figure"
            gpu = replace(gpu, **{_GPU[name]: number})  # type: ignore[arg-type]  # by name
    return replace(server, gpu=gpu, link=link, host=host, topology=topology, cost_model=cost_model)


def _refuse_with_table(server: Server, path: str) -> None:
    if server.kernels is not None:
        raise StudyError(f"{server.name}: {path}: the kernels of this machine stand in a table; vary {COMPUTE_SPEED}")


def _with_link(topology: Topology, fields: Mapping[str, float]) -> Topology:
    """Change every link of the type by which GPU 0 hangs."""
    own = topology.gpus[0].link
    assert own is not None, "a GPU is no root"
    changes = {_TOPOLOGY[name]: number for name, number in fields.items()}

    def changed(link: TopologyLink) -> TopologyLink:
        return replace(link, **changes) if link.kind == own.kind else link  # type: ignore[arg-type]  # floats

    return Topology(
        tuple(replace(node, link=node.link and changed(node.link)) for node in topology.nodes),
        tuple(PeerLink(peer.first, peer.second, changed(peer.link)) for peer in topology.peers),
        tuple(FabricPort(port.gpu, changed(port.link)) for port in topology.ports),
    )
