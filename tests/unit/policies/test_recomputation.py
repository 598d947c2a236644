"""`memonger` and `checkpoint` on a chain, every second and byte worked out by hand.

conv1 to conv7, fc, loss: nine modules of one layer. The input and the maps of the CONV layers hold 10 B, those of fc
and the loss 2 B; kernels take 1 s. W are 7 x 30 + 6 elements, 432 B, and so are dW: 864 B. Nine forwards, eight data
gradients (conv1 has none) and eight weight gradients (the loss has none) take 25 s.

With nothing recomputed most is held in backward of fc: the input and seven maps, the gradients of conv7 and fc, 92 B.

In PyTorch's loop there is a label of 8 B, and dW are made in backward and held to its end. In the last kernel, the
weight gradient of conv1, all 432 B of them are there, the input and the gradient of conv1, 20 B. No kernel before it
holds more, for that of a layer i more has (i - 1) x 60 B of dW less, and of maps never as much more.
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    placement_of,
    replay,
    toy_chain,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from tests.unit.policies.copies import recomputed
from tests.unit.policies.test_residual import residual
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.step import Access, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Allocate, Compute, Release
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Resident
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import Policy, make_plan
from vdnnsim.policies.iterations.segments import modules
from vdnnsim.policies.memonger import Memonger, Segmentation, segments_within
from vdnnsim.policies.pytorch import PyTorch

CHAIN = toy_workload(toy_chain(7))
COSTS = toy_costs(CHAIN, {})
RESIDENT_BYTES = 864
AT_LAST_BYTES = 8 + 20


def plan_of(policy: Policy, workload: Workload = CHAIN) -> TrainingPlan:
    """A checked plan with kernels of 1 s."""
    plan = make_plan(policy, toy_setting(workload, toy_costs(workload, {})))
    check_plan(plan)
    return plan


def of_maps(buffer: Buffer) -> bool:
    return buffer.kind in (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)


@pytest.mark.parametrize(
    ("policy", "again", "held_bytes"),
    [
        # Segments conv1-3, conv4-6, conv7-loss. conv3 and conv6 stay; of the last one backward reads conv7 alone. Most
        # is held in backward of conv6: input, conv3, conv4, conv5, the gradients of conv6 and conv5.
        (Memonger(), ["conv7", "conv4", "conv5", "conv1", "conv2"], 60),
        # The budgets 0, 27 = sqrt(74 x 20 / 2), 17 = sqrt(20 x 30 / 2), and from 21 to 26. Of conv1-2, conv3-5,
        # conv6-loss at 27 most is held in backward of fc: input, conv2, conv5, conv6, conv7, and gradients of 10 and
        # 2 B. Every map for itself, at 0, holds 92 B; pairs, at 17, hold 70 B in backward of conv7; from 21 to 26 the
        # end of the last segment alone moves.
        (Memonger(segmentation=Segmentation.BUDGET), ["conv6", "conv7", "conv3", "conv4", "conv1"], 62),
        # The segments of memonger, but the last one is not recomputed.
        (Checkpoint(), ["conv4", "conv5", "conv1", "conv2"], 60),
        (Checkpoint(segments=3), ["conv4", "conv5", "conv1", "conv2"], 60),
        # conv1-4 and the rest; in backward of fc input, conv4 to conv7, and gradients of 10 and 2 B.
        (Checkpoint(segments=2), ["conv1", "conv2", "conv3"], 62),
        # Two each: conv1-2, conv3-4, conv5-6, and the rest, conv7-loss. In backward of fc input, conv2, conv4, conv6,
        # conv7, and gradients of 10 and 2 B.
        (Checkpoint(segments=4), ["conv5", "conv3", "conv1"], 62),
        # One each, five, and the rest: conv1 to conv5 stay; conv6 and conv7 are in the rest.
        (Checkpoint(segments=6), [], 92),
        (Checkpoint(segments=1), [], 92),
    ],
    ids=lambda value: value.label if isinstance(value, Policy) else "",
)
def test_recomputed_layers_and_peak_memory(policy: Policy, again: list[str], held_bytes: int) -> None:
    trace = replay(plan_of(policy), COSTS)

    assert [name for name, _ in recomputed(trace.plan)] == again
    assert trace.iteration_s == 25 + len(again)
    assert maximum_bytes(trace, of_maps) == held_bytes
    at_last_bytes = AT_LAST_BYTES if isinstance(policy, Checkpoint) else held_bytes
    assert maximum_bytes(trace) == RESIDENT_BYTES + at_last_bytes


@pytest.mark.parametrize(
    ("policy", "held_bytes"),
    [
        # conv6 reads conv5 for its dW of 60 B, which is computed beside 60 B of maps and then added.
        (Checkpoint(set_to_none=False), 60 + 60),
        # Backward of conv7, after fc has dropped its map: input, conv4, conv5, conv6, gradients of conv7 and conv6.
        (Checkpoint(set_to_none=False, segments=2), 60 + 60),
        # Input and conv1 to conv6, gradients of conv7 and conv6.
        (Checkpoint(set_to_none=False, segments=1), 90 + 60),
    ],
)
def test_a_kept_weight_gradient_is_computed_in_memory_of_its_own(policy: Policy, held_bytes: int) -> None:
    """All dW live throughout, and each that backward computes is a temporary beside the maps and a label."""
    trace = replay(plan_of(policy), COSTS, limits=replace(TOY_LIMITS, device_bytes=2000))

    assert maximum_bytes(trace) == RESIDENT_BYTES + 8 + held_bytes


@pytest.mark.parametrize(("policy", "held_bytes"), [(Memonger(), 60 + 8), (Checkpoint(), AT_LAST_BYTES)])
def test_memonger_holds_one_workspace_throughout(policy: Policy, held_bytes: int) -> None:
    """MXNet's temporary space has 8 B, the largest workspace, beside 60 B of maps.

    PyTorch frees workspaces: those of 7 B and 8 B, in forward of conv1 and conv2, do not count at the peak.
    """
    wanted = {("conv1", Phase.FORWARD): 7, ("conv2", Phase.FORWARD): 8}
    costs = toy_costs(CHAIN, {}, workspace_bytes=wanted)
    plan = policy.plan(toy_setting(CHAIN, costs))
    check_plan(plan)

    assert maximum_bytes(replay(plan, costs)) == RESIDENT_BYTES + held_bytes


def test_one_segment_is_training_without_recomputation() -> None:
    """The operations of `pytorch`; and the kernels of `none`, but for labels and the temporary of the loss."""

    def kernels(plan: TrainingPlan) -> list[tuple[Compute, list[tuple[Role, str, Access]]]]:
        added = (Role.LABELS, Role.WORKSPACE)
        return [
            (
                replace(op, operands=()),
                [
                    (each.role, plan.buffer_names[each.memory], each.access)
                    for each in op.operands
                    if each.role not in added
                ],
            )
            for op in plan.operations
            if isinstance(op, Compute)
        ]

    alone = plan_of(Checkpoint(segments=1))

    assert alone.operations == plan_of(PyTorch()).operations
    assert kernels(alone) == kernels(plan_of(Resident()))


@pytest.mark.parametrize("convolutions", [14, 34, 62, 98, 142])
def test_a_chain_needs_maps_by_the_square_root_and_one_more_forward(convolutions: int) -> None:
    """There are n = 16, 36, ... modules of r = sqrt n layers, r segments.

    In the middle of backward of the last CONV segment there are the input, r - 2 stored maps before it, r - 1
    recomputed ones, and two gradients: 2 r maps. Of each segment all but the last layer is recomputed, of the last
    segment all but fc and the loss: r (r - 1) - 1 layers.
    """
    workload = toy_workload(toy_chain(convolutions))
    root = round((convolutions + 2) ** 0.5)
    plan = plan_of(Memonger(), workload)
    wide = replace(TOY_LIMITS, device_bytes=10**9)
    placed = placement_of(plan, wide)
    weights_bytes = 2 * (60 * convolutions + 12)
    assert placed.pool_bytes - weights_bytes == 2 * root * 10
    assert len(recomputed(plan)) == root * (root - 1) - 1


def test_modules_are_cut_where_one_map_passes() -> None:
    """Not before an activation in place, nor within the block, over which bn1's Y passes."""
    assert modules(toy_workload(residual())) == [range(1), range(1, 3), range(3, 7), range(7, 8), range(8, 9)]
    # A network without a place to cut is one module.
    around = toy_graph("conv1 conv; conv2 conv; add add conv2 input")
    assert modules(toy_workload(around)) == [range(3), range(3, 4), range(4, 5)]


def test_a_block_is_recomputed_with_its_activations() -> None:
    """Five modules of `residual`, three to a segment: conv1 to add/relu, then fc and loss.

    add/relu stays. bn2 reads conv2, conv2 reads bn1 with its activation, bn1 reads conv1; nobody's backward reads bn2.
    """
    plan = plan_of(Memonger(), toy_workload(residual()))
    assert [name for name, _ in recomputed(plan)] == ["conv1", "bn1", "bn1/relu", "conv2"]
    # bn1's are released after its forward and allocated again; bn2's, not recomputed, live until its backward.
    ids = [plan.buffer_names.index(f"statistics of {name}") for name in ("bn1", "bn2")]
    taken = [sum(isinstance(op, Allocate) and op.buffer == buffer for op in plan.operations) for buffer in ids]
    assert taken == [2, 1]
    assert sum(isinstance(op, Release) and op.buffer == ids[0] for op in plan.operations) == 2


def test_a_budget_ends_segments() -> None:
    """At 27 B: input, conv1, conv2 are 30 B; conv3 to conv5 30 B; conv6, conv7, fc and loss stay under it at 24 B."""
    groups, stored_bytes, largest_bytes = segments_within(CHAIN, 27)
    assert [(group[0].start, group[-1].stop) for group in groups] == [(0, 2), (2, 5), (5, 9)]
    assert (stored_bytes, largest_bytes) == (20, 30)
    # conv1, fc, loss: segments of 20, 2, 2 B, then sqrt(14 x 20 / 2) = 11 B gives 20 B and the rest. sqrt(10 x 20 /
    # 2) = 10 B and the like: sqrt 2 times that is less than 20 B, so there is nothing to try between.
    workload = toy_workload(toy_chain(1))
    assert [name for name, _ in recomputed(plan_of(Memonger(segmentation=Segmentation.BUDGET), workload))] == []


def test_more_segments_than_modules_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"^checkpoint\(p, segments=10\): segments: found 10, expected at most 9"):
        plan_of(Checkpoint(segments=10))


@pytest.mark.parametrize("policy", [Memonger(), Checkpoint()])
def test_resnet_50_is_cut_at_its_blocks(policy: Policy) -> None:
    """Its 16 blocks end with an addition; the longest map that passes is theirs."""
    workload = Workload(build_network("resnet50"), 2)
    plan = make_plan(policy, toy_setting(workload, toy_costs(workload, {})))

    check_plan(plan)
    assert len(recomputed(plan)) > len(workload.graph.layers) // 2
