"""Copies that share links, that are timed by a curve, and in pages; links of 10 B/s, bytes in tens.

A copy timed by a curve lasts as measured alone, beside others longer by what the links have left for it: the toy chain
of two GPUs offloads its input, 10 B, and fetches it; their links carry 10 B/s and wait for nothing.
"""

import math
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toy import TOY_SERVER, replay, toy_costs, toy_setting
from tests.two_gpus import COSTS, SERVER, WORKLOAD, placed
from tests.unit.plans.hand_written import WORKLOAD as PAGED
from tests.unit.plans.hand_written import script
from vdnnsim.analysis.several_gpus import timed_copies
from vdnnsim.cost.transfer import paged_copy_s
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.copies import Curve, Direction, MeasuredCopies
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop, Node, NodeKind, Sharing, Topology, TopologyLink, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Offload, Paged, Prefetch
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.vdnn import VdnnAll

Start = tuple[float, tuple[Hop, ...], int]


def server(sharing: Sharing, kept: float = 1.0) -> Topology:
    """Three GPUs behind one switch with an uplink of some kind; the GPUs' own links are split duplex."""

    def own(name: str) -> TopologyLink:
        return TopologyLink(name, 10.0, 10.0, 0.0, Sharing.SPLIT_DUPLEX)

    uplink = TopologyLink("uplink", 10.0, 10.0, 0.0, sharing, kept, kept)
    return Topology(
        (
            Node("memory", NodeKind.HOST_MEMORY, None, None),
            Node("switch", NodeKind.SWITCH, "memory", uplink),
            Node("gpu0", NodeKind.GPU, "switch", own("x0")),
            Node("gpu1", NodeKind.GPU, "switch", own("x1")),
            Node("gpu2", NodeKind.GPU, "switch", own("x2")),
        )
    )


SPLIT = server(Sharing.SPLIT_DUPLEX)


def run(topology: Topology, starts: list[Start]) -> tuple[list[float], Interconnect]:
    env = simpy.Environment()
    links = Interconnect(env, topology)
    ends = [math.nan] * len(starts)

    def copy(number: int, at_s: float, path: tuple[Hop, ...], nbytes: int) -> Generator[simpy.Event, Any, None]:
        yield env.timeout(at_s)
        yield links.start(path, nbytes).done
        ends[number] = env.now

    for number, start in enumerate(starts):
        env.process(copy(number, *start))
    env.run()
    return ends, links


@pytest.mark.parametrize(
    ("topology", "copies", "ends"),
    [
        # Begin, GPU (negative: down to it) and bytes. Alone: 50 B at 10 B/s.
        (SPLIT, [(1.0, 0, 50)], [6.0]),
        # 5 B/s each: 50 B end at 10. The other has 100 - 50 = 50 B left then and all 10 B/s: 15.
        (SPLIT, [(0.0, 0, 50), (0.0, 1, 100)], [10.0, 15.0]),
        # Alone until 2: 20 of 60 B. Shared: 40 B at 5 B/s end at 10, as do 40 B of the second.
        (SPLIT, [(0.0, 0, 60), (2.0, 1, 40)], [10.0, 10.0]),
        # Directions of a split link do not meet; of a shared one they do: 10 B/s for both, 5 each.
        (SPLIT, [(0.0, 0, 50), (0.0, -1, 50)], [5.0, 5.0]),
        (server(Sharing.SHARED), [(0.0, 0, 50), (0.0, -1, 50)], [10.0, 10.0]),
        # A lossy link keeps 0.8 of 10 B/s while the other direction is busy: 40 B up end at 5. 80 B down have moved 40
        # then, and the rest at 10 B/s: 9.
        (server(Sharing.LOSSY_DUPLEX, kept=0.8), [(0.0, 0, 40), (0.0, -1, 80)], [5.0, 9.0]),
        # Three: 10/3 B/s each; equal copies end at the same time, without rounding errors.
        (SPLIT, [(0.0, gpu, 50) for gpu in range(3)], [15.0] * 3),
    ],
)
def test_copies_share_the_uplink(topology: Topology, copies: list[tuple[float, int, int]], ends: list[float]) -> None:
    starts = [
        (at_s, topology.from_host(-gpu) if gpu < 0 else topology.to_host(gpu), nbytes) for at_s, gpu, nbytes in copies
    ]
    found, links = run(topology, starts)
    assert found == pytest.approx(ends)
    assert links.loads[-1].copies == 0


def test_loads_record_the_rate_of_a_link() -> None:
    """The uplink carries 10 B/s of one copy, of two, of one again, then nothing."""
    _, links = run(SPLIT, [(0.0, SPLIT.to_host(0), 60), (2.0, SPLIT.to_host(1), 60)])
    uplink = [(load.time_s, load.bytes_per_s, load.copies) for load in links.loads if load.hop == Hop("uplink", Way.UP)]

    assert uplink == [(0.0, 10.0, 1), (2.0, 10.0, 2), (10.0, 10.0, 1), (12.0, 0.0, 0)]


@settings(max_examples=60)
@given(
    st.sampled_from(Sharing),
    st.lists(st.tuples(st.floats(0, 20), st.integers(0, 2), st.booleans(), st.integers(1, 200)), max_size=12),
)
def test_no_link_is_overloaded_and_every_byte_arrives(
    sharing: Sharing, copies: list[tuple[float, int, bool, int]]
) -> None:
    """What a copy moved, its rates summed over time, is its size; the loads of a direction stay within 10 B/s."""
    topology = server(sharing, kept=0.7)
    starts = [
        (at_s, topology.to_host(gpu) if is_up else topology.from_host(gpu), nbytes)
        for at_s, gpu, is_up, nbytes in copies
    ]
    ends, links = run(topology, starts)

    assert all(end >= at_s + nbytes / 10 - 1e-9 for end, (at_s, _, nbytes) in zip(ends, starts, strict=True))
    assert all(load.bytes_per_s <= 10 * (1 + 1e-9) for load in links.loads)
    carried: dict[Hop, float] = {}
    last: dict[Hop, tuple[float, float]] = {}
    for load in links.loads:
        since_s, rate = last.get(load.hop, (load.time_s, 0.0))
        carried[load.hop] = carried.get(load.hop, 0.0) + rate * (load.time_s - since_s)
        last[load.hop] = load.time_s, load.bytes_per_s
    for way in Way:
        sent = sum(nbytes for _, _, is_up, nbytes in copies if is_up is (way is Way.UP))
        assert carried.get(Hop("uplink", way), 0.0) == pytest.approx(sent, abs=len(copies))


def test_copies_that_only_another_joined_go_on_apart() -> None:
    """Beside a copy over both links, one on each link has 5 B/s. That of 10 B ends at 2 s, and the others have 10 B/s.

    They moved 10 B until then: of 60 B the last ends 5 s later, of 30 B 2 s later. Nothing joins them any more.
    """
    both = (*SPLIT.to_host(0)[:1], *SPLIT.to_host(1)[:1])
    starts: list[Start] = [(0.0, both[:1], 60), (0.0, both, 10), (0.0, both[1:], 30)]
    assert run(SPLIT, starts)[0] == pytest.approx([7.0, 2.0, 4.0])


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


def paging_plan() -> TrainingPlan:
    """10 B are offloaded and fetched in pages of 4 B, 5 s each."""
    plan = script(
        "given x; offload x; memory>compute; free x; take x; compute>memory; prefetch x; memory>compute; read x; free x"
    )
    paged = Paged(page_bytes=4, page_latency_s=5.0)
    operations = (
        replace(each, mechanism=paged) if isinstance(each, Offload | Prefetch) else each for each in plan.operations
    )
    return replace(plan, operations=tuple(operations))


@pytest.mark.parametrize("pinned", PinnedMemory)
def test_every_page_takes_its_latency(pinned: PinnedMemory) -> None:
    """10 B are 3 pages, 15 s each way, where the link at 1 B/s would take 10 s; the kernel of 1 s ends at 31 s.

    No memory is pinned, whatever the scenario says of offloads, so that the host spends no time.
    """
    trace = replay(paging_plan(), toy_costs(PAGED, {}), pinned=pinned)

    assert [(span.start_s, span.end_s) for span in trace.spans] == [(0, 15), (15, 30), (30, 31)]
    assert trace.host_issue_s == 0


@pytest.mark.parametrize(("nbytes", "pages"), [(1, 1), (4096, 1), (4097, 2), (3 * 4096, 3)])
def test_a_page_that_is_begun_is_copied_whole(nbytes: int, pages: int) -> None:
    assert paged_copy_s(nbytes, page_bytes=4096, page_latency_s=0.5) == pages * 0.5
