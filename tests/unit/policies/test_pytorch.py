"""`pytorch`, and the tensors that autograd saves under it and the other policies of PyTorch."""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, placement_of, replayed, toy_costs, toy_setting, toy_workload, with_fc
from vdnnsim.analysis.memory import maximum_bytes, peak_by_kind
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute, Release
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.base import Resident
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu


def pooled(*, average: bool = False, height: int = 1) -> LayerGraph:
    """conv1, pool with windows of one element, fc, loss: maps of 10 B a pixel, those of fc and the loss 2 B."""
    net = GraphBuilder("pooled", MapShape(5, height))
    add = net.average_pool if average else net.pool
    y = add("pool", net.conv("conv1", 0, 5, 1, relu=False), 1, stride=1)
    return with_fc(net, y)


WORKLOAD = toy_workload(pooled())


def plan_of(policy: Policy, workload: Workload = WORKLOAD) -> TrainingPlan:
    """A plan with kernels of 1 s; replayed, so that it is checked as well."""
    return replayed(policy, workload).plan


def backward_of(plan: TrainingPlan, layer: str) -> Compute:
    (found,) = [
        op
        for op in plan.operations
        if isinstance(op, Compute) and plan.layers[op.layer] == layer and op.phase.is_backward
    ]
    return found


def test_max_pooling_saves_its_indices() -> None:
    """Five indices of 8 B; backward reads X and them, and Y no more."""
    plan = plan_of(PyTorch())
    kernel = backward_of(plan, "pool")
    (indices,) = [each for each in plan.buffers if each.kind is BufferKind.STATISTICS]
    assert {plan.buffer_names[i] for i in kernel.reads} == {"map conv1", "gradient of pool", "statistics of pool"}
    assert indices.nbytes == 40
    assert plan.workload.graph.saving is SavingRule.AUTOGRAD
    # It is fc that saves it, and fc's weight gradient comes last.
    released = plan.operations.index(Release(plan.buffer_names.index("map pool")))
    before = [op for op in plan.operations[:released] if isinstance(op, Compute)]
    assert (plan.layers[before[-1].layer], before[-1].phase.value) == ("fc", "backward weights")


@pytest.mark.parametrize(("height", "kept"), [(2, {"map conv1"}), (1, set())])
def test_average_pooling_saves_its_input_unless_it_is_a_mean(height: int, kept: set[str]) -> None:
    """Backward reads X, which autograd keeps for its sizes, and neither Y nor an index.

    Of two pixels a window is one. Where it is all of the map, autograd's node is `mean`, which keeps nothing.
    """
    plan = plan_of(PyTorch(), toy_workload(pooled(average=True, height=height)))

    assert {plan.buffer_names[i] for i in backward_of(plan, "pool").reads} == kept | {"gradient of pool"}


@pytest.mark.parametrize(("wanted_bytes", "taken_bytes"), [(100, [60, 2, 50]), (45, [5, 2]), (0, [2])])
def test_saved_indices_are_no_workspace_of_a_pooling(wanted_bytes: int, taken_bytes: list[int]) -> None:
    """Of the measured bytes forward has 40 B less, for the indices, backward 10 B less besides, for a second Y.

    Between the two, in backward of the loss, stands the gradient of the logarithms of the probabilities: one, 2 B.
    """
    pool = WORKLOAD.graph.layers[1]
    rows = [
        KernelRow(KernelShape.of(WORKLOAD, pool, phase), ONLY, "", 1.0, 0.0, 10, wanted_bytes, 15, 20, Origin.MEASURED)
        for phase in (Phase.FORWARD, Phase.BACKWARD_DATA)
    ]
    costs = MeasuredCosts(rows, Roofline(1.0, 1.0, 0.0), WORKLOAD.element_type)
    plan = PyTorch().plan(toy_setting(WORKLOAD, costs))

    assert [each.nbytes for each in plan.buffers if each.kind is BufferKind.WORKSPACE] == taken_bytes


def test_peak_memory_of_a_small_network() -> None:
    """W: 30 elements for conv1, 6 for fc, 72 B; a label, 8 B; dW of fc, 12 B, is made in backward, that of conv1 last.

    Most is held in the weight gradient of fc: input, conv1, pool, 30 B, the gradients of fc and pool, 12 B, the
    indices, 40 B, and dW of fc: 94 B. Backward of pool holds 2 B less: without its own map, which fc was the last to
    read, and fc's gradient, with conv1's gradient of 10 B. Backward of conv1 holds 20 B of maps and 72 B of dW.
    `none`, where the paper's rule holds, has all dW throughout, no indices or labels, and pool's map one kernel longer:
    30 B and gradients of 20 B.
    """
    trace = replayed(PyTorch(), WORKLOAD)

    assert dict(peak_by_kind(trace)) == {
        BufferKind.WEIGHTS: 72,
        BufferKind.WEIGHT_GRADIENT: 12,
        BufferKind.FEATURE_MAP: 30,
        BufferKind.GRADIENT_MAP: 12,
        BufferKind.STATISTICS: 40,
        BufferKind.LABELS: 8,
    }
    assert maximum_bytes(replayed(Resident(), WORKLOAD)) == 144 + 50
    assert trace.iteration_s == 4 + 5


@pytest.mark.parametrize("policy", [PyTorch(), Checkpoint(), SaveOnCpu()])
def test_all_policies_of_pytorch_save_what_autograd_saves(policy: Policy) -> None:
    plan = plan_of(policy)

    assert plan.workload.graph.saving is SavingRule.AUTOGRAD
    assert "statistics of pool" in plan.buffer_names


@pytest.mark.parametrize(("set_to_none", "counted_bytes"), [(True, 838_069_808), (False, 900_451_280)])
def test_peak_of_resnet_50_is_that_of_torchvision(*, set_to_none: bool, counted_bytes: int) -> None:
    """Live storages of its module in training, with a batch of 8; running moments are left out of ours."""
    workload = Workload(build_network("resnet50"), 8)
    plan = PyTorch(set_to_none=set_to_none).plan(toy_setting(workload, toy_costs(workload, {})))
    placed = placement_of(plan, replace(TOY_LIMITS, device_bytes=2**40))
    assert placed.pool_bytes == pytest.approx(counted_bytes, rel=1e-3)


@pytest.mark.parametrize(
    ("network", "counted_bytes", "other_bytes"),
    [
        # The total weight of the loss, a float32.
        ("resnet50", 5_498_677_252, 4),
        # Besides, torchvision's has dropout behind two rectifiers of 4096 features: an output and a mask in float32
        # each. It lacks three of the sixteen CONV layers of the paper's, with 256, 512 and 512 channels.
        ("vgg16", 4_688_570_884, 4 + 4 * 64 * 4096 * 4 - 64 * 4 * (256 * 56**2 + 512 * 28**2 + 512 * 14**2)),
    ],
)
def test_autograd_saves_as_much_as_its_hooks_count(network: str, counted_bytes: int, other_bytes: int) -> None:
    """`saved_tensors_hooks` over torchvision's network with a batch of 64, parameters aside, each storage once.

    Among them are the labels, an int64 for each image.
    """
    workload = Workload(build_network(network), 64).saved_by(SavingRule.AUTOGRAD)
    maps = sum(workload.map_bytes(each.index) for each in workload.graph.maps if each.saved_for)
    statistics = sum(workload.statistics_bytes(layer) for layer in workload.graph.layers)

    assert maps + statistics + 64 * 8 == workload.step.saved_bytes == counted_bytes - other_bytes
