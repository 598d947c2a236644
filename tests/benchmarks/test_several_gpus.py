"""Speed of replays with several GPUs, as ratios within one run, in seconds of this process: `make bench`.

Each figure is the best of several runs.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

import pytest
import simpy

from tests.benchmarks.timing import best_s, simulator_of
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.topology import Node, NodeKind, Sharing, Topology, TopologyLink
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.policies.swap import StaggeredSwap, SwapIn

pytestmark = pytest.mark.benchmark

# One replay takes two milliseconds, which the clock and the collector of garbage disturb.
best_replay_s = partial(best_s, runs=9, repeats=8, clock=time.process_time)


def staggered(profile: str, gpus: int) -> tuple[Callable[[], object], int]:
    """A replay of VGG with 13 CONV layers under staggered swap, and its number of operations on all GPUs."""
    simulator = simulator_of(profile, "vgg_d_13conv", 64, gpus)
    # The search for triggers replays as often as it needs, on one GPU or on eight; what is timed here is one replay.
    plans = StaggeredSwap(swap_in=SwapIn.JUST_IN_TIME).plans(simulator.setting())

    def work() -> object:
        placed = []
        for plan in plans:
            placement = place_plan(plan, simulator.limits)
            assert isinstance(placement, Placement)
            placed.append((plan, placement))
        return simulate_server(placed, simulator.cost_model, simulator.server, PinnedMemory.ARENA)

    return work, sum(len(plan.operations) for plan in plans)


@pytest.mark.parametrize("profile", ["h100_x8", "dgx1_p100"])
def test_eight_gpus_cost_at_most_twelve_times_one(profile: str) -> None:
    """Copies are re-timed where they share links. The exchange of gradients, which one GPU has not, is left out."""
    (one, few), (eight, many) = staggered(profile, 1), staggered(profile, 8)

    one_s, eight_s = best_replay_s(one), best_replay_s(eight)

    sys.stdout.write(
        f"\n{profile}: one GPU {few} operations in {one_s:.4f} s, eight {many} in {eight_s:.4f} s, "
        f"ratio {eight_s / one_s:.1f}\n"
    )
    assert eight_s <= 12 * one_s


def apart(gpus: int) -> Topology:
    """GPUs that share no link with each other."""
    links = (TopologyLink(f"x{number}", 1e9, 1e9, 0.0, Sharing.SPLIT_DUPLEX) for number in range(gpus))
    memory = Node("memory", NodeKind.HOST_MEMORY, None, None)
    return Topology((memory, *(Node(f"gpu{n}", NodeKind.GPU, "memory", link) for n, link in enumerate(links))))


def copies_beside(others: int) -> Callable[[], object]:
    """Many short copies of one GPU, two at a time, while every other GPU has one long copy under way."""
    topology = apart(1 + others)

    def work() -> None:
        env = simpy.Environment()
        links = Interconnect(env, topology)
        for number in range(others):
            links.start(topology.to_host(1 + number), 10**15)

        def stream() -> "simpy.events.ProcessGenerator":
            for _ in range(1500):
                yield links.start(topology.to_host(0), 10**6).done

        env.run(until=env.all_of([env.process(stream()), env.process(stream())]))

    return work


def test_a_retiming_costs_what_shares_links_with_it() -> None:
    """Sixty copies elsewhere may make 3000 copies of one GPU at most half as slow again; they start but once."""
    alone_s, beside_s = best_replay_s(copies_beside(0)), best_replay_s(copies_beside(60))

    sys.stdout.write(f"\n3000 copies alone {alone_s:.4f} s, beside 60 others {beside_s:.4f} s\n")
    assert beside_s <= 1.5 * alone_s
