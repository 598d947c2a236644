"""Copies whose times were measured by size: the curve, and what of it links that are shared see."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.two_gpus import SERVER
from vdnnsim.cost.transfer import before_flow_s, copy_s, pin_s
from vdnnsim.hardware.copies import Curve, Direction, MeasuredCopies
from vdnnsim.hardware.server import Link, Server

# A latency of 2 s and 10 B/s, but for copies of 20 B, which take 1 s more than that.
CURVE: Curve = ((10, 3.0), (20, 5.0), (40, 6.0))
LINE = Link("wire", h2d_bytes_per_s=10.0, d2h_bytes_per_s=5.0, latency_s=2.0)


def measured(h2d: Curve, d2h: Curve = (), link: Link = LINE) -> Link:
    return replace(link, copies=MeasuredCopies(Path("toy.csv"), "", {Direction.H2D: h2d, Direction.D2H: d2h}))


def on_two_gpus(h2d: Curve, d2h: Curve = ()) -> Server:
    """Links of 10 B/s without a latency."""
    return replace(SERVER, link=measured(h2d, d2h))


@pytest.mark.parametrize(
    ("nbytes", "seconds"),
    [(10, 3.0), (20, 5.0), (40, 6.0), (15, 4.0), (11, 3.2), (30, 5.5), (1, 3.0), (0, 3.0), (80, 12.0), (400, 60.0)],
)
def test_a_copy_takes_the_time_of_the_curve(nbytes: int, seconds: float) -> None:
    """Between 3 and 5 s a byte more takes 0.2 s, between 5 and 6 s 0.05 s.

    What is smaller than 10 B takes as long as 10 B; 40 B in 6 s are the rate of whatever is larger, 20/3 B/s.
    """
    assert copy_s(measured(CURVE), Direction.H2D, nbytes) == pytest.approx(seconds)


def test_without_a_curve_a_copy_takes_latency_plus_bytes_over_bandwidth_as_pinning_does(toy_server: Server) -> None:
    """20 bytes: 1 + 20 / 10 = 3 s to the GPU, 1 + 20 / 5 = 5 s back, 2 + 20 / 4 = 7 s to pin.

    Where one direction alone has a curve, the other takes 2 + 20 / 5 = 6 s to the host.
    """
    link = toy_server.link
    assert (copy_s(link, Direction.H2D, 20), copy_s(link, Direction.D2H, 20)) == (3.0, 5.0)
    assert pin_s(toy_server.host, 20) == 7.0
    assert copy_s(measured(CURVE), Direction.D2H, 20) == 6.0


@given(
    sizes=st.lists(st.integers(1, 2**40), min_size=2, max_size=9, unique=True),
    times=st.lists(st.floats(1e-6, 1e3), min_size=9, max_size=9),
    nbytes=st.integers(1, 2**41),
)
def test_a_curve_meets_its_points_and_stays_between_them(sizes: list[int], times: list[float], nbytes: int) -> None:
    curve = tuple(zip(sorted(sizes), times, strict=False))
    link = measured(curve)
    for size, seconds in curve:
        assert copy_s(link, Direction.H2D, size) == pytest.approx(seconds)
    below = [seconds for size, seconds in curve if size <= nbytes][-1:]
    above = [seconds for size, seconds in curve if size >= nbytes][:1]
    if below and above:
        low, high = sorted((*below, *above))
        assert low * (1 - 1e-12) <= copy_s(link, Direction.H2D, nbytes) <= high * (1 + 1e-12)


def test_on_shared_links_what_the_curve_has_beyond_the_rate_passes_before_the_first_byte() -> None:
    """15 B take 4 s by the curve and 1.5 s at the 10 B/s of the path, so they wait for 2.5 s; up there is no curve."""
    server = on_two_gpus(CURVE)
    assert server.topology is not None
    assert before_flow_s(server, Direction.H2D, server.topology.from_host(0), 15) == pytest.approx(2.5)
    assert before_flow_s(server, Direction.D2H, server.topology.to_host(0), 15) == 0.0
    # 30 B in 2 s are 15 B/s, and the links of the path carry 10: nothing passes before the first byte.
    server = on_two_gpus(((10, 1.5), (30, 2.0)))
    assert server.topology is not None
    assert before_flow_s(server, Direction.H2D, server.topology.from_host(0), 30) == 0.0
    assert before_flow_s(server, Direction.H2D, server.topology.from_host(0), 10) == pytest.approx(0.5)
