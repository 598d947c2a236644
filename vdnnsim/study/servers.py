"""The server on which so many GPUs train: the one that is named, the smallest with its card, or a cluster of them."""

from collections.abc import Iterable

from vdnnsim.errors import InputError
from vdnnsim.files.messages import listed
from vdnnsim.hardware.profile import Profile, is_of_card, shipped_profiles
from vdnnsim.hardware.server import Server


def server_for(named: Profile, gpus: int | None = None) -> tuple[int, Profile]:
    """Return how many GPUs are trained on, and a server with so many, or a host of them.

    Args:
        named: that server, or one with its card, of which the smallest is taken.
        gpus: that are asked for; by default all of the server, or of its hosts.

    Raises:
        InputError: there is no such server.
    """
    name = named.server.name
    servers = {named.server.gpu_count: named}
    if named.server.gpu_count == 1:
        of_card = (each for each in shipped_profiles() if is_of_card(each.server, named.server.gpu.name))
        servers = {each.server.gpu_count: each for each in of_card if each.server.gpu_count > 1}
    if not servers:
        raise InputError(f"{name} has one GPU, expected a profile of several, as h100_x8")
    counts = sorted(servers)
    gpus = gpus or counts[0] * (named.server.hosts or 1)
    whole = (each for each in reversed(counts) if gpus % each == 0 and _joins(servers[each].server, gpus // each))
    count = next((each for each in counts if gpus <= each), None) or next(whole, None)
    if count is None:
        most = servers[counts[-1]].server
        several = f", or a multiple of {counts[-1]}{_hosts_text(most)}" if _joins(most, 2) else ""
        raise InputError(f"{name} for {gpus} GPUs, expected at most {counts[-1]}{several}")
    return gpus, servers[count]


def choice_text(named: Profile, taken: Iterable[Profile]) -> str:
    """Return which server was taken for a card, what joins its GPUs, and which others have the card; else empty."""
    names = {each.server.name: each.description.partition("; ")[0] for each in taken if each is not named}
    if not names:
        return ""
    of_card = (each.server for each in shipped_profiles() if is_of_card(each.server, named.server.gpu.name))
    others = [each.name for each in of_card if each.gpu_count > 1 and each.name not in names]
    said = "; ".join(f"{name} is taken for {named.server.name}: {what}" for name, what in names.items())
    return f"{said}{f'; `--hardware` also knows {listed(others)}' if others else ''}."


def _joins(server: Server, hosts: int) -> bool:
    """Whether so many servers of a kind can be a cluster."""
    return server.topology is not None and bool(server.topology.cards) and hosts <= (server.hosts or hosts)


def _hosts_text(server: Server) -> str:
    return f" on several of {server.name}" if server.hosts is None else f" up to {server.hosts * server.gpu_count}"
