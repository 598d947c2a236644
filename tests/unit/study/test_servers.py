"""The server on which so many GPUs train, and servers with replaced figures."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.machines import shipped_profile, shipped_server
from tests.refusals import refusal
from tests.toy import TOY_SERVER
from tests.two_gpus import SERVER
from vdnnsim.cost.transfer import copy_s
from vdnnsim.errors import InputError, StudyError
from vdnnsim.hardware.copies import Direction, MeasuredCopies
from vdnnsim.hardware.profile import Profile
from vdnnsim.hardware.server import Link, Server
from vdnnsim.study.points.server_figures import with_figures
from vdnnsim.study.servers import choice_text, server_for


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
        (4, 64, "mine for 64 GPUs, expected at most 8, or a multiple of 8 up to 32"),
        (1, 16, "mine for 16 GPUs, expected at most 8"),
        ("rtx_4090", 16, "rtx_4090 for 16 GPUs, expected at most 8"),
        ("h100_x8", 12, "h100_x8 for 12 GPUs, expected at most 8, or a multiple of 8 on several of h100_x8"),
        ("rtx_2080ti", None, "rtx_2080ti has one GPU, expected a profile of several, as h100_x8"),
    ],
)
def test_too_many_gpus_are_refused(asked: str | int, gpus: int | None, said: str) -> None:
    """Servers without network cards, and more hosts than are stated, are no cluster."""
    named = cluster(asked) if isinstance(asked, int) else shipped_profile(asked)
    assert refusal(InputError, server_for, named, gpus) == said


CURVES = {Direction.H2D: ((10, 4.0), (90, 20.0)), Direction.D2H: ((10, 6.0), (40, 18.0))}


def measured(server: Server) -> Server:
    """A link of 10 B/s down and 5 B/s up, 1 s: copies were measured to take longer than that, up to twice as long."""
    link = Link("wire", 10.0, 5.0, 1.0, copies=MeasuredCopies(Path("toy.csv"), "", CURVES))
    return replace(server, link=link)


@pytest.mark.parametrize(("path", "same"), [("link.h2d", 10.0), ("link.d2h", 5.0), ("link.latency", 1.0)])
def test_equal_figures_and_those_of_other_parts_leave_measured_copies_alone(path: str, same: float) -> None:
    server = measured(TOY_SERVER)
    assert with_figures(server, {path: same}) == server
    assert with_figures(server, {"gpu.memory": 7, "host.issue": 2.0}).link == server.link


def test_link_figures_change_measured_copies() -> None:
    """At 30 and 30 B/s 10 B take 4/3 and not 2 or 3 s, 90 B 4 and not 10, 40 B back 7/3 and not 9."""
    server = with_figures(measured(TOY_SERVER), {"link.bandwidth": 30.0})
    assert server.link.h2d_bytes_per_s == server.link.d2h_bytes_per_s == 30.0
    assert copy_s(server.link, Direction.H2D, 10) == pytest.approx(4.0 * (4 / 3) / 2)
    assert copy_s(server.link, Direction.H2D, 90) == pytest.approx(20.0 * 4 / 10)
    assert copy_s(server.link, Direction.D2H, 10) == pytest.approx(6.0 * (4 / 3) / 3)
    assert copy_s(server.link, Direction.D2H, 40) == pytest.approx(18.0 * (7 / 3) / 9)
    # 3 s instead of 1: 10 B take 4 and not 2 s, 90 B 12 and not 10.
    server = with_figures(measured(TOY_SERVER), {"link.latency": 3.0})
    assert copy_s(server.link, Direction.H2D, 10) == pytest.approx(4.0 * 4 / 2)
    assert copy_s(server.link, Direction.H2D, 90) == pytest.approx(20.0 * 12 / 10)
    # Links have no types here, so all of them become as fast.
    server = with_figures(measured(SERVER), {"link.h2d": 20.0})
    assert server.topology is not None
    assert {link.down_bytes_per_s for link in server.topology.links.values()} == {20.0}
    assert copy_s(server.link, Direction.H2D, 10) == pytest.approx(4.0 * 1.5 / 2)
    assert copy_s(server.link, Direction.D2H, 10) == 6.0


def test_the_latency_of_a_link_is_that_of_the_way_to_the_host() -> None:
    """As a profile without the section `link` shows it: 0 and twice 5 us on p100_x2, which a study leaves as they are.

    With 30 us it is 0 and twice 15; where no link has any, all of it comes with the two of PCIe.
    """
    server = shipped_server("p100_x2")
    assert server.topology is not None
    assert server.link.latency_s == pytest.approx(10e-6)
    same = with_figures(server, {"link.latency": server.link.latency_s})
    assert same.topology == server.topology
    for before in (server, with_figures(server, {"link.latency": 0.0})):
        slower = with_figures(before, {"link.latency": 30e-6})
        assert slower.topology is not None
        way = [slower.topology.links[hop.link].latency_s for hop in slower.topology.to_host(0)]
        assert sorted(way) == pytest.approx([0.0, 15e-6, 15e-6])


def test_links_keep_all_that_a_figure_does_not_change() -> None:
    """At twice the rate NCCL reaches twice its 16 GB/s of PCIe gen4; cards and sums of NVSwitch stay."""
    server = shipped_server("rtx_4090_x8")
    faster = with_figures(server, {"link.bandwidth": 50.2e9}).topology
    assert faster is not None
    assert {faster.links[hop.link].nccl_bytes_per_s for hop in faster.to_host(0)[:1]} == {32e9}
    assert not faster.peer_to_peer
    cluster = shipped_server("h100_x8")
    changed = with_figures(cluster, {"link.d2h": 27.6e9}).topology
    assert changed is not None
    assert cluster.topology is not None
    assert (changed.cards, changed.ports, changed.multicast) == (cluster.topology.cards, cluster.topology.ports, True)


def test_nvlink_joins_the_gpus_of_a_server() -> None:
    """Both ways of every pair, in place of a bridge; the way to the host stays. One GPU has none to be joined with."""
    server = shipped_server("rtx_3090_x2_nvlink")
    joined = with_figures(server, {"link.nvlink": 300e9})
    assert joined.topology is not None
    assert server.topology is not None
    assert [hop.link for hop in joined.topology.between(1, 0)] == ["fabric-gpu1", "fabric-gpu0"]
    assert joined.topology.alone_bytes_per_s(joined.topology.between(0, 1)) == 300e9
    assert joined.topology.to_host(1) == server.topology.to_host(1)
    with pytest.raises(StudyError, match=r"rtx_4090: link\.nvlink: found one GPU"):
        with_figures(shipped_server("rtx_4090"), {"link.nvlink": 300e9})


def test_a_server_that_was_taken_for_a_card_is_said_with_what_joins_it() -> None:
    """A server that is named is taken as it is."""
    card, bridged, server = (shipped_profile(name) for name in ("rtx_3090", "rtx_3090_x2_nvlink", "h100_x8"))
    assert choice_text(server, [server]) == ""
    assert choice_text(card, [bridged]) == (
        "rtx_3090_x2_nvlink is taken for rtx_3090: two NVIDIA GeForce RTX 3090 with an NVLink bridge, on one processor"
        "; `--hardware` also knows rtx_3090_x4 and rtx_3090_x8."
    )
