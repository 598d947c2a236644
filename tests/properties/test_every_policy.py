"""Invariants of every built-in policy with its default options, on networks of every kind."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from tests.toy import placement_of, toy_costs, toy_setting
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.liveness import maps_touched
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Allocate, Compute, Offload, Release
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting, make_plan
from vdnnsim.policies.registry import known_policies

POLICIES = known_policies()
OTHERS = ("googlenet", "mobilenet_v2", "unet", "vit_b_16", "densenet121", "p3d_resnet199", "llama_1b", "resnet101")
NETWORKS = (
    *("alexnet", "resnet50", "caffenet", "lstm_rnn", "lstm_cnn", "gpt2_small", "tiny_forked", "alexnet_torchvision"),
    *(pytest.param(each, marks=pytest.mark.thorough) for each in OTHERS),
)
AMPLE = MemoryLimits(MemoryModel.IDEAL, device_bytes=2**50, host_bytes=2**50, granule_bytes=1)


@cache
def setting_of(network: str, mode: Mode = Mode.TRAINING) -> Setting:
    """Two images, momentum in training, kernels of 1 s, unlimited memory."""
    optimizer = Optimizer.MOMENTUM if mode is Mode.TRAINING else Optimizer.NONE
    workload = Workload(build_network(network), 2, optimizer=optimizer, mode=mode)
    costs = toy_costs(workload, {})
    return toy_setting(workload, costs, AMPLE)


@cache
def plan_of(name: str, network: str) -> TrainingPlan:
    return make_plan(POLICIES[name](), setting_of(network))


def computed(plan: TrainingPlan) -> Counter[tuple[int, Phase, int]]:
    """How often each kernel runs, by layer, phase and recomputation."""
    return Counter((op.layer, op.phase, op.repeat) for op in plan.operations if isinstance(op, Compute))


pytestmark = pytest.mark.parametrize("name", POLICIES)
networks = pytest.mark.parametrize("network", NETWORKS)


@pytest.mark.sampled(3)
@networks
def test_the_plan_keeps_the_contract_and_releases_all_it_allocates(name: str, network: str) -> None:
    """The check proves that nothing is left allocated; every buffer is released as often as it is allocated."""
    plan = plan_of(name, network)

    check_plan(plan)
    taken = Counter(op.buffer for op in plan.operations if isinstance(op, Allocate))
    returned = Counter(op.buffer for op in plan.operations if isinstance(op, Release))
    assert all(returned[buffer] == times for buffer, times in taken.items())
    assert plan.policy == POLICIES[name]().label


@networks
def test_every_kernel_runs_once_and_only_forward_is_recomputed(name: str, network: str) -> None:
    """Recomputations are counted from 1, each of its number once."""
    workload = setting_of(network).workload
    runs = computed(plan_of(name, network))
    times = Counter((layer, phase) for layer, phase, _ in runs.elements())

    assert set(times) == {(layer.index, phase) for layer in workload.graph.layers for phase in workload.phases(layer)}
    assert set(runs.values()) == {1}
    assert all((layer, phase, repeat) in runs for (layer, phase), n in times.items() for repeat in range(n))
    assert {phase for _, phase, repeat in runs if repeat} <= {Phase.FORWARD}
    order = [op.phase is Phase.UPDATE for op in plan_of(name, network).operations if isinstance(op, Compute)]
    assert order == sorted(order), "updates come last"


@networks
def test_memory_holds_the_largest_working_set(name: str, network: str) -> None:
    """At least what the most demanding kernel touches of maps and gradients, and W; at most all buffers at once."""
    plan = plan_of(name, network)
    workload = plan.workload
    placed = placement_of(plan, AMPLE)
    gradients = {each.index for each in workload.graph.maps if each.needs_gradient}

    def touched_bytes(layer: int, phase: Phase) -> int:
        touched = maps_touched(workload, workload.graph.layers[layer], phase)
        maps = {*touched.maps_read, *touched.maps_written}
        other = {*touched.gradients_read, *touched.gradients_written} & gradients
        return sum(workload.map_bytes(index) for index in maps) + sum(workload.map_bytes(index) for index in other)

    most_bytes = max(touched_bytes(layer, phase) for layer, phase, _ in computed(plan))
    weights_bytes = sum(workload.weight_bytes(layer) for layer in workload.graph.layers)
    assert placed.pool_bytes >= most_bytes
    assert placed.pool_bytes >= 2 * weights_bytes
    assert placed.pool_bytes <= sum(buffer.nbytes for buffer in plan.buffers)


@pytest.mark.parametrize("network", ["alexnet", "resnet50", "gpt2_small"])
def test_inference_is_forward_alone_and_offloads_nothing(name: str, network: str) -> None:
    setting = setting_of(network, Mode.INFERENCE)
    plan = POLICIES[name]().plan(setting)

    check_plan(plan)
    assert computed(plan) == {(layer.index, Phase.FORWARD, 0): 1 for layer in setting.workload.graph.layers}
    # In the pool of GeePS there is room for two accesses alone.
    assert name == "geeps" or not any(isinstance(op, Offload) for op in plan.operations)


def test_the_plan_is_a_pure_function(name: str) -> None:
    setting = setting_of("tiny_forked")

    assert POLICIES[name]().plan(setting) == POLICIES[name]().plan(replace(setting))
