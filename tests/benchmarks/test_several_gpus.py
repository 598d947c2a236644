"""Speed of replays with several GPUs, as ratios within one run, in seconds of this process: `make bench`.

Each figure is the best of several runs.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import simpy

from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.topology import Node, NodeKind, Sharing, Topology, TopologyLink
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.policies.swap import StaggeredSwap, SwapIn
from vdnnsim.scenario.simulator import Simulator

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).parents[2]
RUNS = 9
REPLAYS = 8
"""In one run: one replay takes two milliseconds, which the clock and the collector of garbage disturb."""


def best_s(work: Callable[[], object]) -> float:
    """Shortest of several runs, by the piece of work."""
    times = []
    for _ in range(RUNS):
        begin = time.process_time()
        for _ in range(REPLAYS):
            work()
        times.append((time.process_time() - begin) / REPLAYS)
    return min(times)


def staggered(profile: str, gpus: int) -> tuple[Callable[[], object], int]:
    """A replay of VGG with 13 CONV layers under staggered swap, and its number of operations on all GPUs."""
    server = read_profile(find_profile(profile, ROOT / "scenarios"))
    simulator = Simulator.of(
        Workload(build_network("vgg_d_13conv"), 64), server, MemoryModel.IDEAL, PinnedMemory.ARENA, gpus=gpus
    )
    # The search for triggers replays as often as it needs, on one GPU or on eight; what is timed here is one replay.
    plans = StaggeredSwap(swap_in=SwapIn.JUST_IN_TIME).plans(simulator.setting())

    def work() -> object:
        placed = []
        for plan in plans:
            placement = place_plan(plan, simulator.limits)
            assert isinstance(placement, Placement)
            placed.append((plan, placement))
        return simulate_server(placed, simulator.cost_model, server, PinnedMemory.ARENA)

    return work, sum(len(plan.operations) for plan in plans)


@pytest.mark.parametrize("profile", ["h100_x8", "dgx1_p100"])
def test_eight_gpus_cost_at_most_twelve_times_one(profile: str) -> None:
    """Copies are re-timed where they share links. The exchange of gradients, which one GPU has not, is left out."""
    (one, few), (eight, many) = staggered(profile, 1), staggered(profile, 8)

    one_s, eight_s = best_s(one), best_s(eight)

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
    alone_s, beside_s = best_s(copies_beside(0)), best_s(copies_beside(60))

    sys.stdout.write(f"\n3000 copies alone {alone_s:.4f} s, beside 60 others {beside_s:.4f} s\n")
    assert beside_s <= 1.5 * alone_s
