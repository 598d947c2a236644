"""`none` on conv1 conv2 conv3 fc loss, with maps of 10 B, those of fc and the loss 2 B, and kernels of 1 s."""

from tests.toy import ToyCosts, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute, HostSynchronize, Offload, Prefetch
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Resident
from vdnnsim.policies.vdnn import NoOffloadPass, VdnnDyn

WORKLOAD = toy_workload(toy_chain(3))
COSTS = toy_costs(WORKLOAD, {})


def test_nothing_is_copied_and_nothing_waits() -> None:
    """5 kernels forward, and 1 + 2 + 2 + 2 + 1 backward: 13 s."""
    plan = Resident().plan(toy_setting(WORKLOAD, COSTS))

    assert not any(isinstance(op, Offload | Prefetch | HostSynchronize) for op in plan.operations)
    assert replay(plan, COSTS).iteration_s == 13


def test_a_map_stays_until_its_last_reader_is_done() -> None:
    """W and dW take 384 B. Most is in use in backward of fc: input, conv1 to conv3, gradients of conv3 and fc: 52 B.

    Network-wide allocation would take all maps, 44 B, and two gradients, 20 B.
    """
    assert replay(Resident().plan(toy_setting(WORKLOAD, COSTS)), COSTS).pool_bytes == 384 + 52


def test_it_is_the_pass_without_offload_of_vdnn_dyn() -> None:
    setting = toy_setting(WORKLOAD, COSTS)
    dynamic = VdnnDyn(no_offload_pass=NoOffloadPass.LAYER_WISE).plan(setting)

    assert dynamic.algorithms == "none(p)"
    assert Resident().plan(setting).operations == dynamic.operations


def test_its_algorithms_are_those_of_a_rule() -> None:
    """Forward of conv1 in 1 s with a workspace, or in 2 s without."""
    fast, small = KernelCost("fast", 1.0, 40, Origin.ASSUMED), KernelCost("small", 2.0, 0, Origin.ASSUMED)
    setting = toy_setting(WORKLOAD, ToyCosts({**COSTS.kernels, (0, Phase.FORWARD): (fast, small)}))

    plans = [Resident(algorithms=algorithms).plan(setting) for algorithms in Algorithms]

    assert [plan.policy for plan in plans] == ["none(m)", "none(p)", "none(tensorflow)"]
    first = [next(op for op in plan.operations if isinstance(op, Compute)) for plan in plans]
    assert [op.algorithm for op in first] == ["small", "fast", "fast"]
