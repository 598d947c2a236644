"""The server on which so many GPUs train."""

from dataclasses import replace

import pytest

from tests.machines import shipped_profile
from tests.refusals import refusal
from vdnnsim.errors import InputError
from vdnnsim.hardware.profile import Profile
from vdnnsim.study.servers import server_for


def cluster(hosts: int) -> Profile:
    """So many servers of eight H100."""
    server = shipped_profile("h100_x8")
    return replace(server, server=replace(server.server, name="mine", hosts=hosts))


@pytest.mark.parametrize(
    ("asked", "gpus", "found"),
    [
        # All GPUs of the server, of its hosts, or of the smallest server with a card.
        *(("h100_x8", None, (8, "h100_x8")), (4, None, (32, "mine")), ("rtx_4090", None, (4, "rtx_4090_x4"))),
        # Some of them, or hosts: as many as there are, or as ranks need.
        *((4, 16, (16, "mine")), (4, 5, (5, "mine")), ("h100_x8", 512, (512, "h100_x8"))),
        ("rtx_4090", 5, (5, "rtx_4090_x8")),
    ],
)
def test_server_of_so_many_gpus(asked: str | int, gpus: int | None, found: tuple[int, str]) -> None:
    named = cluster(asked) if isinstance(asked, int) else shipped_profile(asked)
    count, profile = server_for(named, gpus)
    assert (count, profile.server.name) == found


@pytest.mark.parametrize(
    ("asked", "gpus", "said"),
    [
        (4, 64, "mine for 64 GPUs, expected at most 8, or a multiple of it, up to 32"),
        (1, 16, "mine for 16 GPUs, expected at most 8"),
        ("rtx_4090", 16, "rtx_4090 for 16 GPUs, expected at most 8"),
        ("h100_x8", 12, "h100_x8 for 12 GPUs, expected at most 8, or a multiple of it, of hosts as h100_x8"),
        ("rtx_2080ti", None, "rtx_2080ti has one GPU, expected a profile of several, as h100_x8"),
    ],
)
def test_too_many_gpus_are_refused(asked: str | int, gpus: int | None, said: str) -> None:
    """Servers without network cards, and more hosts than are stated, are no cluster."""
    named = cluster(asked) if isinstance(asked, int) else shipped_profile(asked)
    assert refusal(InputError, server_for, named, gpus) == said
