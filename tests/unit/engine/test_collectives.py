"""Ranks that stand for others, and collectives matched between them; times in seconds.

A host has two GPUs below one socket, whose links carry 10 B/s each way; host memory carries 36 B/s. Cards carry 10 B/s,
too. NCCL's latencies are microseconds.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import simpy

from tests.toy import toy_setting
from tests.two_gpus import COSTS, SERVER, TREE, WORKLOAD, link, placed
from vdnnsim.cost.collectives import Cluster
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.engine.collectives import Collectives
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.topology import NetworkCard, Topology
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Stream
from vdnnsim.policies.vdnn import VdnnAll

HOSTS = Topology(TREE, cards=tuple(NetworkCard((f"gpu{gpu}",), link(f"n{gpu}")) for gpu in range(2)))
SECONDS = 1e-3
"""Of latencies."""


def ends(ranks: Sequence[Sequence[int]], *gpus: Sequence[float | Collective], of: int) -> list[list[float]]:
    """Return when the collectives of each GPU end, which waits so many seconds between them."""
    env = simpy.Environment()
    cluster = Cluster(HOSTS, of)
    hosts = tuple(dict.fromkeys(each[0] // cluster.local for each in ranks))
    interconnect = Interconnect(env, HOSTS, hosts)
    collectives = Collectives(env, replace(SERVER, topology=HOSTS), interconnect, cluster, ranks)
    found: list[list[float]] = [[] for _ in gpus]

    def run(number: int) -> simpy.events.ProcessGenerator:
        for each in gpus[number]:
            if isinstance(each, Collective):
                yield collectives.communicate(number, each)
                found[number].append(env.now)
            else:
                yield env.timeout(each)

    for number in range(len(gpus)):
        env.process(run(number))
    env.run()
    return found


def gather(nbytes: int, ranks: int, stride: int = 1) -> Collective:
    return Collective(CollectiveKind.ALL_GATHER, nbytes, "float32", ranks, stride)


def test_one_rank_stands_for_all_of_its_host() -> None:
    """Two ranks gather 80 B: each sends its 40 to the other in 4 s. Four, on two hosts, send 60 around over two cards.

    That is 30 B over each card and the link of its GPU, in 3 s, and 30 B from one GPU to the other: 60 B each way of a
    GPU's link in 6 s.
    """
    assert ends([(0, 1)], [gather(80, 2)], of=2) == [[pytest.approx(4.0, abs=SECONDS)]]
    assert ends([(0, 1)], [gather(80, 4)], of=4) == [[pytest.approx(6.0, abs=SECONDS)]]


def test_members_wait_for_each_other_in_the_order_of_their_group() -> None:
    """GPU 1 comes to its second collective of both at 10 s, after 4 s of the first, which GPU 0 joined at 1 s."""
    first, second = ends([(0,), (1,)], [1.0, gather(80, 2), gather(80, 2)], [gather(80, 2), 5.0, gather(80, 2)], of=2)
    assert first == second == [pytest.approx(5.0, abs=SECONDS), pytest.approx(14.0, abs=SECONDS)]


def test_collectives_of_two_groups_share_links() -> None:
    """Ranks 0 and 2, and 1 and 3, of two hosts gather 80 B over a card each in 4 s, whether together or not.

    They gather 80 B with each other at the same time: 40 B each way of their links, beside 40 B to and from the cards,
    at 5 B/s each: 8 s.
    """
    apart = gather(80, 2, stride=2)
    assert ends([(0, 1)], [apart], of=4) == [[pytest.approx(4.0, abs=SECONDS)]]
    beside, within = ends([(0, 1), (0, 1)], [apart], [gather(80, 2)], of=4)
    assert beside == within == [pytest.approx(8.0, abs=SECONDS)]


def test_a_send_meets_the_receive_at_its_other_end() -> None:
    """Stage 0 is on host 0, stage 1 on host 1. 100 B over a card take 10 s, from when both are there, at 3 s.

    Both ranks of a stage send at once, each over its own card. The second goes back, and so is another pair.
    """
    send = Collective(CollectiveKind.SEND, 100, "float32", 2, 2)
    receive = Collective(CollectiveKind.RECEIVE, 100, "float32", 2, -2)
    one, other = ends([(0, 1), (2, 3)], [3.0, send], [receive], of=4)
    assert one == other == [pytest.approx(13.0, abs=SECONDS)]
    returns = (
        Collective(CollectiveKind.SEND, 50, "float32", 2, -2),
        Collective(CollectiveKind.RECEIVE, 50, "float32", 2, 2),
    )
    one, other = ends([(0, 1), (2, 3)], [send, returns[1]], [receive, 1.0, returns[0]], of=4)
    assert one == other == [pytest.approx(10.0, abs=SECONDS), pytest.approx(16.0, abs=SECONDS)]
    # The other stage is not simulated: nobody waits for it.
    assert ends([(0, 1)], [send], of=4) == [[pytest.approx(10.0, abs=SECONDS)]]


def copies_s(topology: Topology, ranks: Sequence[Sequence[int]]) -> float:
    """Return how long the first copy of a plan takes that offloads."""
    plan = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))
    trace = simulate_server(
        [placed(plan)] * len(ranks), COSTS, replace(SERVER, topology=topology), PinnedMemory.ARENA, ranks=ranks
    )
    (first, *_) = trace.gpus[0].spans_on(Stream.MEMORY)
    return first.end_s - first.start_s


def test_copies_of_ranks_that_are_not_simulated_take_their_share() -> None:
    """10 B over a link of 10 B/s take 1 s; two ranks share the uplink of their switch, simulated both or one.

    Of four ranks two are on each host, which do not meet.
    """
    alone = copies_s(HOSTS, [(0,)])
    assert alone == pytest.approx(1.0)
    assert copies_s(HOSTS, [(0,), (1,)]) == copies_s(HOSTS, [(0, 1)]) == copies_s(HOSTS, [(0, 1, 2, 3)]) == 2 * alone
    assert copies_s(HOSTS, [(0,), (2,)]) == alone
