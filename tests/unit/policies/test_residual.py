"""The policies on what the vDNN paper does not have: batch normalization and shortcuts."""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, replay, replayed, toy_costs, toy_graph, toy_setting, toy_workload
from tests.unit.policies.copies import issued
from vdnnsim.analysis.memory import peak_by_kind
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, maps_of_all, maps_of_conv


def residual() -> LayerGraph:
    """A block of a residual network: all maps hold 5 elements but those of fc and the loss, which hold 1.

    conv1 0, bn1 1, bn1/relu 2, conv2 3, bn2 4, add 5 = bn2 + bn1, add/relu 6, fc 7, loss 8; their maps are input 0,
    conv1 1, bn1 2, conv2 3, bn2 4, add 5, fc 6, loss 7.
    """
    return toy_graph("conv1 conv unbiased; bn1 bn relu; conv2 conv unbiased; bn2 bn; add add bn2 bn1 relu")


WORKLOAD = toy_workload(residual())
COSTS = toy_costs(WORKLOAD, {})


def plan_of(policy: Policy) -> TrainingPlan:
    """Plan with free workspaces and kernels of 1 s; replayed, so that the plan is checked as well."""
    return replayed(policy, WORKLOAD, COSTS).plan


def test_base_keeps_the_statistics_and_needs_three_gradient_buffers() -> None:
    """One image in float16. Maps: 6 of 10 B and 2 of 2 B. W: 25 elements per CONV, 10 per BN, 6 for FC: 76, 152 B.

    Statistics: mean and inverse deviation of 5 channels, twice, in float32: 80 B. Backward of the addition reads its
    gradient and writes those of bn2 and bn1: three of 10 B, which the rest reuses.
    """
    trace = replayed(Base(), WORKLOAD, COSTS)

    assert dict(peak_by_kind(trace)) == {
        BufferKind.FEATURE_MAP: 64,
        BufferKind.WEIGHTS: 152,
        BufferKind.WEIGHT_GRADIENT: 152,
        BufferKind.STATISTICS: 80,
        BufferKind.GRADIENT_MAP: 30,
    }


def test_a_normalization_has_one_backward_kernel_for_both_gradients() -> None:
    plan = plan_of(Base())
    (kernel,) = [
        op for op in plan.operations if isinstance(op, Compute) and (op.layer, op.phase.is_backward) == (4, True)
    ]
    names = plan.buffer_names
    assert kernel.phase is Phase.BACKWARD
    assert {names[i] for i in kernel.reads} == {"map conv2", "gradient of bn2", "weights of bn2", "statistics of bn2"}
    assert {names[i] for i in kernel.writes} == {"gradient of conv2", "weight gradient of bn2"}
    # Forward has no batch to take them from; training writes them first, so there they are not given.
    inference = replace(WORKLOAD, mode=Mode.INFERENCE)
    plan = Base().plan(toy_setting(inference, toy_costs(inference, {})))
    trained = plan_of(Base())
    assert [each.given for each in plan.buffers if each.kind is BufferKind.STATISTICS] == [True, True]
    assert [each.given for each in trained.buffers if each.kind is BufferKind.STATISTICS] == [False, False]
    (forward,) = [op for op in plan.operations if isinstance(op, Compute) and op.layer == 1]
    assert "statistics of bn1" in {plan.buffer_names[i] for i in forward.reads}


def test_shortcuts_and_normalizations_under_vdnn() -> None:
    """bn1's Y, map 2, is read by conv2 and the addition; bn2's Y, map 4, by the addition; fc's X, map 5, stays."""
    assert maps_of_all(WORKLOAD) == {0, 1, 2, 3, 4}
    assert maps_of_conv(WORKLOAD) == {0, 2}
    # bn1's Y has its last reader in the addition. bn2's Y is not saved, and so not copied.
    assert issued(plan_of(VdnnAll()), Offload) == [
        ("map input", "conv1"),
        ("map conv1", "bn1"),
        ("map conv2", "bn2"),
        ("map bn1", "add"),
    ]
    assert issued(plan_of(VdnnConv()), Offload) == [("map input", "conv1"), ("map bn1", "add")]
    # Backward: fc finds bn1's Y at the addition. The addition and bn2 search nothing, so bn2 fetches its X itself.
    # conv2 has its X, bn1's Y; its search finds conv1's Y at bn1. bn1 searches nothing, so conv1 fetches the input.
    plan = plan_of(VdnnAll())
    demanded = [op.on_demand for op in plan.operations if isinstance(op, Prefetch)]
    assert issued(plan, Prefetch) == [
        ("map bn1", "fc"),
        ("map conv2", "bn2"),
        ("map conv1", "conv2"),
        ("map input", "conv1"),
    ]
    assert demanded == [False, True, False, True]


def test_the_input_of_a_layer_without_backward_is_not_kept() -> None:
    """The pool over the input batch computes no gradient, so the input is not read again."""
    plan = replayed(VdnnAll(), toy_workload(toy_graph("pool pool; bn bn relu"))).plan
    assert issued(plan, Offload) == [("map pool", "bn")]


@pytest.mark.parametrize("device_bytes", [1000, 300])
def test_statistics_are_paged_like_anything_else(device_bytes: int) -> None:
    """458 B are in use at most; in 300 B the statistics are paged as well."""
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    plan = PageMigration().plan(toy_setting(WORKLOAD, COSTS, limits))
    replay(plan, COSTS, limits=limits)
    paged = {name for name, _ in issued(plan, Prefetch)}

    assert ("statistics of bn1" in paged) == (device_bytes == 300)
