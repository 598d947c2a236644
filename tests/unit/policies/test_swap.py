"""`swap` and `staggered_swap` (Kim et al. 2018) on chains of CONV layers with kernels of 1 s and maps of 10 B."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from tests.networks import each_network
from tests.toy import (
    TOY_LIMITS,
    TOY_SERVER,
    ReplayTrials,
    placement_of,
    replay,
    toy_chain,
    toy_costs,
    toy_setting,
    toy_workload,
)
from tests.two_gpus import link
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.topology import Hop, Node, NodeKind, Topology, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Offload
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.policies.swap import StaggeredSwap, Swap, SwapIn, Synchronization

TYPES = known_policies()
CHAIN = toy_workload(toy_chain(4))
COSTS = toy_costs(CHAIN, {})


SWITCH = Topology(
    (
        Node("memory", NodeKind.HOST_MEMORY, None, None),
        Node("switch", NodeKind.SWITCH, "memory", link("uplink")),
        Node("gpu0", NodeKind.GPU, "switch", link("x0")),
        Node("gpu1", NodeKind.GPU, "switch", link("x1")),
    )
)
"""Two GPUs behind one switch, each link 10 B/s in either direction."""


def setting_of(groups: tuple[tuple[int, ...], ...], convolutions: int) -> Setting:
    workload = toy_workload(toy_chain(convolutions))
    gpus = sum(map(len, groups))
    return replace(toy_setting(workload, toy_costs(workload, {})), gpus=gpus, groups=groups)


def offloaded(plan: TrainingPlan) -> list[str]:
    return [plan.buffers[op.buffer].name.removeprefix("map ") for op in plan.operations if isinstance(op, Offload)]


def convs(numbers: Iterable[int]) -> list[str]:
    return [f"conv{number}" for number in numbers]


def replay_both(plans: Iterable[TrainingPlan]) -> ServerTrace:
    work = []
    for plan in plans:
        check_plan(plan)
        placement = placement_of(plan)
        work.append((plan, placement))
    return simulate_server(work, COSTS, replace(TOY_SERVER, topology=SWITCH), PinnedMemory.ARENA)


def most_copies_up(trace: ServerTrace) -> int:
    """Most copies that shared the uplink at once, on their way to the host."""
    return max(load.copies for load in trace.loads if load.hop == Hop("uplink", Way.UP))


JUST_IN_TIME = StaggeredSwap(swap_in=SwapIn.JUST_IN_TIME)


def test_swap_copies_the_same_layers_on_all_gpus() -> None:
    """Layers 0, 3 and 6 of seven, which are called conv1, conv4 and conv7."""
    plans = Swap().plans(setting_of(((0, 1),), 7))
    assert [offloaded(plan) for plan in plans] == [convs((1, 4, 7))] * 2
    # Swap with the options of the other is the other.
    options = Swap(stagger=True, synchronization=Synchronization.NONE, swap_in=SwapIn.UNTRIGGERED)
    setting = setting_of(((0, 1),), 7)
    plans, others = options.plans(setting), StaggeredSwap(swap_in=SwapIn.UNTRIGGERED).plans(setting)
    assert [plan.operations for plan in plans] == [plan.operations for plan in others]


@pytest.mark.parametrize(
    ("groups", "offsets"),
    [
        (((0,),), [0]),
        (((0, 1),), [0, 1]),
        # Two switches with two GPUs each: numbers are within the group.
        (((0, 1), (2, 3)), [0, 1, 0, 1]),
        (((0, 2), (1, 3)), [0, 0, 1, 1]),
        # i mod x: the fourth GPU of a switch begins where the first does.
        (((0, 1, 2, 3),), [0, 1, 2, 0]),
    ],
)
def test_the_ith_gpu_of_x_swaps_layers_i_and_every_xth_after(
    groups: tuple[tuple[int, ...], ...], offsets: list[int]
) -> None:
    """Step 3 of III-A with x = 3 and seven CONV layers, numbered from 0: 0 3 6, 1 4 or 2 5."""
    plans = JUST_IN_TIME.plans(setting_of(groups, 7))

    layers = {0: convs((1, 4, 7)), 1: convs((2, 5)), 2: convs((3, 6))}
    assert len({id(plan) for plan in plans}) == len(set(offsets)), "those with equal triggers share a plan"
    assert [offloaded(plan) for plan in plans] == [layers[offset] for offset in offsets]


def test_swap_copies_on_all_gpus_at_once_and_waits() -> None:
    """Fig. 3 above, with x = 2: conv1 and conv3 are offloaded on both GPUs, at 5 B/s each, in 2 s instead of 1.

    Forward: conv1 to 1, conv2 to 2, the copies to 3, where all synchronizes; conv3 to 4, conv4 to 5, the copies to 6;
    fc to 7, the loss to 8. Backward: the loss to 9, fc to 11 and beside it the map of conv3, conv4 to 13, conv3 to 15
    and beside it the map of conv1, conv2 to 17, conv1 to 18: 2 s more than the kernels take.
    """
    trace = replay_both(Swap(interval=2).plans(setting_of(((0, 1),), 4)))
    assert trace.iteration_s == 18
    assert most_copies_up(trace) == 2
    # Fig. 3 below, with x = 2: GPU 0 swaps conv1 and conv3, GPU 1 conv2 and conv4, and no copy meets another. To the
    # host: conv1 from 1 to 2, conv2 to 3, conv3 to 4, conv4 to 5. Back, one step of backward ahead: conv4 with the
    # loss from 6 to 7, conv3 with fc from 7 to 8, conv2 with conv4 from 9 to 10, conv1 with conv3 from 11 to 12.
    trace = replay_both(StaggeredSwap(interval=2, swap_in=SwapIn.JUST_IN_TIME).plans(setting_of(((0, 1),), 4)))
    assert [gpu.iteration_s for gpu in trace.gpus] == [16, 16]
    assert most_copies_up(trace) == 1


def test_synchronization_of_layers_costs_time() -> None:
    """One GPU at 2 B/s, x = 4: the map of conv1 is offloaded from 1 to 6, and prefetched in 5 s.

    Synchronized: conv3 starts at 6 instead of 2; forward ends at 10, backward of the loss at 11, of fc at 13, of conv4
    at 15; with that of conv3 the map is prefetched until 20; conv2 to 22, conv1 to 23. Otherwise only backward of conv2
    waits: 6, 7, 9, 11, conv3 to 13 and the map to 16, conv2 to 18, conv1 to 19.
    """
    server = replace(TOY_SERVER, link=replace(TOY_SERVER.link, h2d_bytes_per_s=2.0, d2h_bytes_per_s=2.0))
    setting = setting_of(((0,),), 4)
    synchronized, free = Swap(interval=4), Swap(interval=4, synchronization=Synchronization.NONE)

    assert replay(synchronized.plan(setting), COSTS, server=server).iteration_s == 23
    assert replay(free.plan(setting), COSTS, server=server).iteration_s == 19


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"interval": 0}, "interval: found 0, expected an integer from 1 to 1000"),
        ({"interval": 1001}, "interval: found 1001, expected an integer from 1 to 1000"),
        ({"interval": 1.5}, "interval: found 1.5, expected an integer, as 3"),
        ({"stagger": "yes"}, "stagger: found 'yes', expected true or false, as false"),
        ({"swap_in": "adaptive"}, "swap_in: found 'adaptive', which needs synchronization: none"),
        ({"swap_in": "untriggered"}, "swap_in: found 'untriggered', which needs synchronization: none"),
        ({"policy": "staggered_swap", "synchronization": "layer"}, "swap_in: found 'adaptive', which needs"),
    ],
)
def test_wrong_options_are_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        resolve_policy({"policy": "swap", **spec}, TYPES)


@pytest.mark.parametrize("name", each_network(sorted(NETWORKS)))
def test_every_network_is_swapped(name: str) -> None:
    """Every third CONV output is offloaded, from the first on GPU 0, from the second on GPU 1; plans are valid and fit.

    But one that no backward reads: where a join, a token or the loss alone does in forward.
    """
    workload = replace(toy_workload(build_network(name)), batch_size=2)
    costs = toy_costs(workload, {})
    limits = replace(TOY_LIMITS, device_bytes=2**40, host_bytes=2**40)
    setting = Setting(workload, costs, limits, ReplayTrials(costs, limits), gpus=2, groups=((0, 1),))
    convolutions = [layer for layer in workload.graph.layers if layer.kind is LayerKind.CONV]

    for policy in (Swap(), JUST_IN_TIME, StaggeredSwap(swap_in=SwapIn.UNTRIGGERED)):
        plans = policy.plans(setting)
        for gpu, plan in enumerate(plans):
            check_plan(plan)
            assert isinstance(place_plan(plan, limits), Placement)
            third = convolutions[gpu if policy.stagger else 0 :: 3]
            read = [layer.name for layer in third if workload.graph.maps[layer.output].saved_for]
            assert sorted(offloaded(plan)) == sorted(read)
