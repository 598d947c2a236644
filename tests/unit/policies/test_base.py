"""`base` and `none`, which offload nothing."""

from tests.toy import ToyCosts, replay, replayed, toy_chain, toy_costs, toy_graph, toy_setting, toy_workload
from vdnnsim.analysis.memory import peak_by_kind
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute, HostSynchronize, Offload, Prefetch
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.vdnn import NoOffloadPass, VdnnDyn

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS


def test_network_wide_allocation_of_a_chain() -> None:
    """Two 1x1 CONV layers of 5 to 5 channels, an FC layer to 1 feature and the loss, one image in float16.

    Feature maps: input, conv1, conv2 of 10 B each, fc and loss of 2 B each: 34 B. Weights: 5 x 5 + 5 = 30 elements
    per CONV and 5 + 1 = 6 for FC: 66 elements, 132 B, and as much for dW. Gradient maps: two buffers as large as the
    largest, conv2's 10 B: 20 B. Workspace: the largest of 7 B and 4 B.
    """
    workload = toy_workload(toy_chain(2))
    costs = toy_costs(workload, {}, workspace_bytes={("conv1", F): 4, ("conv2", W): 7})

    trace = replayed(Base(), workload, costs)

    assert dict(peak_by_kind(trace)) == {
        BufferKind.FEATURE_MAP: 34,
        BufferKind.WEIGHTS: 132,
        BufferKind.WEIGHT_GRADIENT: 132,
        BufferKind.GRADIENT_MAP: 20,
        BufferKind.WORKSPACE: 7,
    }
    assert trace.memory[-1].time_s == trace.iteration_s, "everything is held to the end"


def test_an_optimizer_adds_its_states_and_an_update_per_layer_with_weights() -> None:
    """Adam keeps two states of 132 B; conv1, conv2 and fc are updated after backward: 9 kernels before, 3 more.

    Without: forward of 4 layers, data gradients of all but conv1, weight gradients of 3: 4 + 3 + 3 = 10.
    """
    workload = Workload(toy_chain(2), 1, toy_workload(toy_chain(2)).element_type, optimizer=Optimizer.ADAM)
    trace = replayed(Base(), workload)

    assert dict(peak_by_kind(trace))[BufferKind.OPTIMIZER_STATE] == 264
    assert len(trace.spans) == 13


def test_a_fork_needs_a_third_gradient_buffer() -> None:
    """conv1 (10 B) forks to a (4 channels, 8 B) and b (1 channel, 2 B), which are joined to 5 channels (10 B).

    Backward of the join reads its gradient (10 B) and writes those of a and b, so three gradient maps live at once.
    Two slots hold 10 B, the largest. The third one is for b's: the join's gradient and a's have taken the two.
    """
    trace = replayed(Base(), toy_workload(toy_graph("conv1 conv; a conv 4; b conv 1 conv1; join concat a b")))

    assert dict(peak_by_kind(trace))[BufferKind.GRADIENT_MAP] == 10 + 10 + 2


CHAIN_OF_THREE = toy_workload(toy_chain(3))
"""conv1 conv2 conv3 fc loss, with maps of 10 B, those of fc and the loss 2 B, and kernels of 1 s."""
COSTS_OF_THREE = toy_costs(CHAIN_OF_THREE, {})


def test_none_copies_nothing_and_holds_maps_until_their_last_reader() -> None:
    """5 kernels forward, and 1 + 2 + 2 + 2 + 1 backward: 13 s."""
    plan = Resident().plan(toy_setting(CHAIN_OF_THREE, COSTS_OF_THREE))
    assert not any(isinstance(op, Offload | Prefetch | HostSynchronize) for op in plan.operations)
    assert replay(plan, COSTS_OF_THREE).iteration_s == 13
    # W and dW take 384 B. Most is in use in backward of fc: input, conv1 to conv3, gradients of conv3 and fc: 52 B.
    # Network-wide allocation would take all maps, 44 B, and two gradients, 20 B.
    assert replayed(Resident(), CHAIN_OF_THREE, COSTS_OF_THREE).pool_bytes == 384 + 52
    # None is the pass without offload of vdnn dyn.
    setting = toy_setting(CHAIN_OF_THREE, COSTS_OF_THREE)
    dynamic = VdnnDyn(no_offload_pass=NoOffloadPass.LAYER_WISE).plan(setting)
    assert dynamic.algorithms == "none(p)"
    assert Resident().plan(setting).operations == dynamic.operations


def test_its_algorithms_are_those_of_a_rule() -> None:
    """Forward of conv1 in 1 s with a workspace, or in 2 s without."""
    fast, small = KernelCost("fast", 1.0, 40, Origin.ASSUMED), KernelCost("small", 2.0, 0, Origin.ASSUMED)
    setting = toy_setting(CHAIN_OF_THREE, ToyCosts({**COSTS_OF_THREE.kernels, (0, Phase.FORWARD): (fast, small)}))

    plans = [Resident(algorithms=algorithms).plan(setting) for algorithms in Algorithms]

    assert [plan.policy for plan in plans] == ["none(m)", "none(p)", "none(tensorflow)"]
    first = [next(op for op in plan.operations if isinstance(op, Compute)) for plan in plans]
    assert [op.algorithm for op in first] == ["small", "fast", "fast"]
