"""Servers with replaced figures, some of which have measured copies."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import TOY_SERVER
from tests.two_gpus import SERVER
from vdnnsim.cost.transfer import copy_s
from vdnnsim.hardware.copies import Direction, MeasuredCopies
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Link, Server
from vdnnsim.study.points.server_figures import with_figures

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
    server = read_profile(find_profile("p100_x2", Path()))
    assert server.topology is not None
    assert server.link.latency_s == pytest.approx(10e-6)
    same = with_figures(server, {"link.latency": server.link.latency_s})
    assert same.topology == server.topology
    for before in (server, with_figures(server, {"link.latency": 0.0})):
        slower = with_figures(before, {"link.latency": 30e-6})
        assert slower.topology is not None
        way = [slower.topology.links[hop.link].latency_s for hop in slower.topology.to_host(0)]
        assert sorted(way) == pytest.approx([0.0, 15e-6, 15e-6])
