"""The machine of a rank: whether it has GPUs for all ranks, NCCL's buffers there, and the rank's share of the host."""

from collections.abc import Iterable
from dataclasses import replace

from vdnnsim.cost.collectives import Cluster
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import is_of_card, shipped_profiles
from vdnnsim.hardware.server import Server
from vdnnsim.memory.process import nccl_bytes


def machine_of_rank(name: str, server: Server, step: CapturedStep) -> Server:
    """Return a machine with the buffers of NCCL in the context of its GPU; the same for a step of one GPU.

    Messages call it by a name.

    Raises:
        ProfileError: it has too few GPUs.
    """
    if step.ranks == 1:
        return server
    cluster = cluster_of(name, server, step.ranks)
    groups = dict[tuple[int, int], Collective]()
    for each in communicating(step):
        if not (each.is_point_to_point or each.is_of_host):
            groups.setdefault((each.ranks, each.stride), each)
    taken = sum(nccl_bytes(cluster.channels(each)) for each in groups.values())
    return replace(server, gpu=replace(server.gpu, context_bytes=server.gpu.context_bytes + taken))


def cluster_of(name: str, server: Server, ranks: int) -> Cluster:
    """Return ranks on servers of one kind.

    Raises:
        ProfileError: it has too few GPUs, or several servers would not be full or not be joined.
    """
    topology, gpus = server.topology, server.gpu_count
    if topology is None or gpus == 1:
        raise ProfileError(f"{name}: has one GPU, expected {ranks} for so many ranks{_servers_for(server, ranks)}")
    if lacking := _lacking(server, ranks):
        raise ProfileError(f"{name}: {lacking}")
    return Cluster(topology, ranks)


def _lacking(server: Server, ranks: int) -> str:
    """Return why a server of several GPUs, or a cluster of it, has not one for each rank; empty where it has."""
    topology, gpus = server.topology, server.gpu_count
    if ranks > gpus and not (topology and topology.cards):
        return f"has {gpus} GPUs and no network card, expected {ranks} GPUs, or a 'network' in its topology"
    if server.hosts is not None and ranks > (most := gpus * server.hosts):
        return f"has {server.hosts} hosts of {gpus} GPUs, expected at most {most} ranks, found {ranks}"
    if ranks > gpus and ranks % gpus:
        return f"has {gpus} GPUs, expected a multiple of it in ranks, found {ranks}"
    return ""


def _servers_for(one: Server, ranks: int) -> str:
    """Return which servers with the card have a GPU for each rank; where none has, why, and one of another card."""
    servers = [each.server for each in shipped_profiles() if each.server.gpu_count > 1]
    of_card = sorted((each for each in servers if is_of_card(each, one.gpu.name)), key=lambda each: each.gpu_count)
    fitting = [each.name for each in of_card if not _lacking(each, ranks)]
    if fitting:
        return f", as {' or '.join(fitting)}"
    lacking = f"; {of_card[-1].name} {_lacking(of_card[-1], ranks)}" if of_card else ""
    others = (f"; {each.name}, of another card, has so many" for each in servers if not _lacking(each, ranks))
    return lacking + next(others, "")


def has_host_copies(step: CapturedStep) -> bool:
    """Whether shards of a rank are in host memory."""
    return any(each.is_of_host for each in communicating(step))


def communicating(step: CapturedStep) -> Iterable[Collective]:
    return (each.collective for each in step.operations if each.collective is not None)
