"""Copies timed by a curve, replayed: alone as measured, beside others longer by what the links have left for them.

The toy chain of two GPUs offloads its input, 10 B, and fetches it; their links carry 10 B/s and wait for nothing.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.toy import TOY_SERVER, replay, toy_setting
from tests.two_gpus import COSTS, SERVER, WORKLOAD, placed
from vdnnsim.analysis.several_gpus import timed_copies
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.copies import Curve, Direction, MeasuredCopies
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.policies.vdnn import VdnnAll

PLAN = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))


def with_curves(server: Server, d2h: Curve, h2d: Curve) -> Server:
    copies = MeasuredCopies(Path("toy.csv"), "", {Direction.H2D: h2d, Direction.D2H: d2h})
    return replace(server, link=replace(server.link, copies=copies))


SHARED = with_curves(SERVER, ((5, 1.0), (20, 4.0)), ((10, 1.25), (20, 9.0)))


def taken(server: Server, gpus: int) -> list[tuple[float, float]]:
    """(duration, duration alone) of each copy of the last GPU."""
    trace = simulate_server([placed(PLAN)] * gpus, COSTS, server, PinnedMemory.ARENA).gpus[-1]
    return [(copy.taken_s, copy.alone_s) for copy in timed_copies(trace, server, gpus - 1)]


def test_on_a_link_of_its_own_a_copy_takes_the_time_of_the_curve() -> None:
    """10 B lie a third of the way from 5 to 20: 1 + 3 / 3 = 2 s; back they were measured: 1.25 s."""
    server = with_curves(TOY_SERVER, ((5, 1.0), (20, 4.0)), ((10, 1.25), (20, 9.0)))
    copies = timed_copies(replay(PLAN, COSTS, server=server), server, 0)
    assert [copy.taken_s for copy in copies] == pytest.approx([2.0, 1.25])
    assert [copy.alone_s for copy in copies] == pytest.approx([2.0, 1.25])


def test_only_the_transfer_is_stretched_by_others_and_limited_by_links() -> None:
    assert taken(SHARED, 1) == [pytest.approx((2.0, 2.0)), pytest.approx((1.25, 1.25))]
    # 2 s are 1 s of waiting and 10 B at 10 B/s, which two that share have 2 s for: 3 s. Back 0.25 + 2 = 2.25 s.
    assert taken(SHARED, 2) == [pytest.approx((3.0, 2.0)), pytest.approx((2.25, 1.25))]
    # 10 B in half a second are 20 B/s, twice what the links carry: 1 s alone, 2 s beside the other GPU's.
    fast = with_curves(SERVER, ((5, 0.1), (10, 0.5)), ((5, 0.1), (10, 0.5)))
    assert taken(fast, 1) == [pytest.approx((1.0, 1.0))] * 2
    assert taken(fast, 2) == [pytest.approx((2.0, 1.0))] * 2
    # 10 B in 1 s, either way.
    same = with_curves(SERVER, ((5, 0.5), (10, 1.0)), ((5, 0.5), (10, 1.0)))
    assert taken(same, 2) == [pytest.approx(each) for each in taken(SERVER, 2)]
