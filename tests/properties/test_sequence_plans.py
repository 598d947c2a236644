"""Invariants of plans for random networks of sequences, and for the built-in ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operands import operands
from tests.random_plans import ROOMY, workloads
from tests.toy import replay, toy_costs, toy_setting
from vdnnsim.dnn.elementwise import ElementwiseProduct, LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn

POLICIES: tuple[Policy, ...] = (Base(), Resident(), VdnnAll(), VdnnConv(), VdnnDyn(), PageMigration())


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    """Sequences of two tokens: layers of every kind in a row, some added to or multiplied with their input."""
    net = GraphBuilder("random", MapShape(1, steps=2))
    y = net.layer("table", Embedding(5, 4, positions=draw(st.sampled_from((0, 2)))), 0)
    kinds = ("norm", "attention", "smooth", "dropout", "lstm", "residual", "gated", "relu", "lrn")
    for number, kind in enumerate(draw(st.lists(st.sampled_from(kinds), max_size=7))):
        match kind:
            case "norm":
                y = net.layer(f"norm{number}", LayerNormalization(centered=draw(st.booleans())), y)
            case "attention":
                y = net.layer(
                    f"attention{number}",
                    Attention(2, key_value_heads=2),
                    net.layer(f"qkv{number}", Linear(12, bias=False), y),
                )
            case "smooth":
                y = net.layer(f"smooth{number}", SmoothActivation(draw(st.sampled_from(Smoothness))), y)
            case "dropout":
                # Over its input only behind a product, whose Y no backward reads.
                over = draw(st.booleans())
                y = net.layer(f"under{number}", Linear(4), y) if over else y
                y = net.dropout(f"dropout{number}", y, mask_bytes=draw(st.sampled_from((1, 4))), in_place=over)
            case "lstm":
                y = net.layer(f"lstm{number}", Lstm(4), y)
            case "residual":
                y = net.add(f"sum{number}", net.layer(f"branch{number}", Linear(4), y), y, relu=draw(st.booleans()))
            case "gated":
                y = net.layer(f"product{number}", ElementwiseProduct(), net.layer(f"gate{number}", Linear(4), y), y)
            case "relu":
                y = net.layer(f"rectified{number}", Linear(4), y, relu=True)
            case _:
                y = net.layer(f"lrn{number}", LocalResponseNormalization(3), y)
    net.begin_classifier()
    if draw(st.booleans()):
        return net.build(net.layer("head", Linear(5, bias=False), y, weights_of=0))
    return net.build(net.layer("head", Linear(5), y))


WORKLOADS = workloads(graphs())


def checked_plan(workload: Workload, policy: Policy) -> TrainingPlan:
    plan = policy.plan(toy_setting(workload, toy_costs(workload, {}), ROOMY))
    check_plan(plan)
    return plan


@given(WORKLOADS, st.sampled_from(POLICIES))
def test_every_policy_plans_every_kernel_once_over_all_that_it_touches(workload: Workload, policy: Policy) -> None:
    """Each phase of each layer in training order, with as many buffers as its operands, and states in an update."""
    plan = checked_plan(workload, policy)
    kernels = [op for op in plan.operations if isinstance(op, Compute)]

    assert sorted((op.layer, op.phase.value) for op in kernels) == sorted(
        (layer.index, phase.value) for layer in workload.graph.layers for phase in workload.phases(layer)
    )
    for op in kernels:
        layer = workload.graph.layers[op.layer]
        needs = operands(workload, layer, op.phase)
        states = workload.optimizer.states if op.phase is Phase.UPDATE else 0
        reads = len(needs.maps_read) + len(needs.gradients_read) + states
        writes = len(needs.maps_written) + len(needs.gradients_written) + states
        assert len(op.reads) == reads + needs.weights_read + needs.weight_gradient_read + needs.statistics_read
        assert len(op.writes) == (
            writes + needs.weights_written + needs.weight_gradient_written + needs.statistics_written
        )


@given(WORKLOADS, st.sampled_from(POLICIES))
def test_statistics_are_written_once_before_they_are_read_once(workload: Workload, policy: Policy) -> None:
    """Each has a buffer of its own; in inference only a batch normalization would have one."""
    plan = checked_plan(workload, policy)
    buffers = {number for number, each in enumerate(plan.buffers) if each.kind is BufferKind.STATISTICS}
    writes = [buffer for op in plan.operations if isinstance(op, Compute) for buffer in op.writes if buffer in buffers]
    reads = [buffer for op in plan.operations if isinstance(op, Compute) for buffer in op.reads if buffer in buffers]

    assert sorted(writes) == sorted(buffers)
    assert sorted(reads) == sorted(buffers)
    assert sum(plan.buffers[each].nbytes for each in buffers) == sum(
        map(workload.statistics_bytes, workload.graph.layers)
    )


@given(WORKLOADS, st.sampled_from(POLICIES))
@settings(max_examples=20)
def test_base_has_the_largest_peak(workload: Workload, policy: Policy) -> None:
    """`base` holds all maps at once; no other policy here holds more."""
    costs = toy_costs(workload, {})
    trace = replay(checked_plan(workload, policy), costs, limits=ROOMY)
    base = replay(checked_plan(workload, Base()), costs, limits=ROOMY)

    assert trace.pool_bytes <= base.pool_bytes
