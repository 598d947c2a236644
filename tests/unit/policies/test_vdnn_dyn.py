"""vDNN_dyn on a chain where each pass of III-C can be the one that fits.

conv1 pool1 conv2 pool2 conv3 fc loss, one image in float16: the input and the maps of conv1 to conv3 and of the pools
hold 10 B each, those of fc and the loss 2 B. W has 3 x 30 + 6 = 96 elements, so W and dW take 2 x 192 = 384 B. Only
the weight gradient of conv3 has a choice: 1 s with 40 B of workspace, 2 s with 4 B, 3 s with none.

base(p)  all maps 6 x 10 + 2 x 2 = 64 B, two gradient buffers of 10 B, 40 B: 384 + 64 + 20 + 40 = 508 B; it judges
         whether no offload is needed, what then runs is none(p), which is layer-wise
conv     most in backward of conv3: X, dX, dY, the X of conv2 that it prefetches, and conv1's and conv2's Y, which only
         pools read and which therefore stay: 384 + 60 = 444 B and the workspace: 484, 448 or 444 B
all      in backward of conv3 X, dX, dY and the X of pool2: 384 + 40 = 424 B and the workspace: 464, 428 or 424 B; but
         backward of pool2 needs X, Y, dX, dY and the X of conv2 that it prefetches: at least 384 + 50 = 434 B
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    ReplayTrials,
    ToyCosts,
    placement_of,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Compute, Offload
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting, Trial
from vdnnsim.policies.vdnn import NoOffloadPass, VdnnDyn

W = Phase.BACKWARD_WEIGHTS


def setting(capacity_bytes: int, host_bytes: int = 1000) -> Setting:
    workload = toy_workload(toy_graph("conv1 conv; pool1 pool; conv2 conv; pool2 pool; conv3 conv"))
    table = dict(toy_costs(workload, {}).kernels)
    conv3 = next(layer.index for layer in workload.graph.layers if layer.name == "conv3")
    table[conv3, W] = tuple(
        KernelCost(name, seconds, nbytes, Origin.ASSUMED)
        for name, seconds, nbytes in (("fast", 1.0, 40), ("middle", 2.0, 4), ("slow", 3.0, 0))
    )
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes, host_bytes=host_bytes)
    return toy_setting(workload, ToyCosts(table), limits)


def choice(plan: TrainingPlan) -> str:
    """The algorithm chosen for the weight gradient of conv3."""
    return next(
        op.algorithm
        for op in plan.operations
        if isinstance(op, Compute) and op.phase is W and plan.layers[op.layer] == "conv3"
    )


@pytest.mark.parametrize(
    ("capacity_bytes", "algorithms", "algorithm"),
    [
        (1000, "none(p)", "fast"),
        (508, "none(p)", "fast"),
        (507, "conv(p)", "fast"),
        (484, "conv(p)", "fast"),
        (483, "all(p)", "fast"),
        (464, "all(p)", "fast"),
        (463, "greedy conv", "middle"),
        (448, "greedy conv", "middle"),
        (447, "greedy conv", "slow"),
        (444, "greedy conv", "slow"),
        (443, "greedy all", "middle"),
        (434, "greedy all", "middle"),
    ],
)
def test_each_pass_is_taken_to_the_byte_at_which_it_fits(capacity_bytes: int, algorithms: str, algorithm: str) -> None:
    plan = VdnnDyn().plan(setting(capacity_bytes))

    order = ["all(m)", "base(p)", "conv(p)", "all(p)", "greedy conv", "greedy all"]
    assert plan.algorithms == algorithms
    taken = "base(p)" if algorithms == "none(p)" else algorithms
    assert [each.name for each in plan.passes] == order[: order.index(taken) + 1]
    assert [each.fits for each in plan.passes] == [True] + [False] * (len(plan.passes) - 2) + [True]
    assert choice(plan) == algorithm


def test_without_offload_an_iteration_is_still_layer_wise() -> None:
    """Nothing is copied. The most is in use in backward of conv3, which all maps from before it have been waiting for.

    The input, conv1, pool1, conv2, pool2 (its X): 50 B, dX and dY 20 B, workspace 40 B: 384 + 110 = 494 B, of the 508 B
    by which the pass was judged. Judged by itself, it succeeds down to 494 B.
    """
    judged_network_wide = VdnnDyn().plan(setting(508))
    judged_by_itself = VdnnDyn(no_offload_pass=NoOffloadPass.LAYER_WISE)

    assert not any(isinstance(op, Offload) for op in judged_network_wide.operations)
    placed = placement_of(judged_network_wide, setting(508).limits)
    assert placed.pool_bytes == 494
    resident = judged_by_itself.plan(setting(494))
    assert ([each.name for each in resident.passes], resident.algorithms) == (["all(m)", "none(p)"], "none(p)")
    assert judged_by_itself.plan(setting(493)).algorithms == "conv(p)"


def test_a_network_that_all_m_cannot_train_is_tried_once() -> None:
    """All(m) needs 434 B; with 433 B the first pass fails and its plan is what is reported as not fitting."""
    given = setting(433)

    plan = VdnnDyn().plan(given)

    assert [(each.name, each.fits) for each in plan.passes] == [("all(m)", False)]
    assert isinstance(place_plan(plan, given.limits), DoesNotFit)


def test_a_layer_that_cannot_do_without_workspace_ends_a_greedy_pass() -> None:
    """Without the slow algorithm, greedy conv needs 448 B at least; greedy all can do with 434 B."""
    given = setting(447)
    kernels = {key: tuple(k for k in options if k.algorithm != "slow") for key, options in given.costs.kernels.items()}
    costs = ToyCosts(kernels)

    plan = VdnnDyn().plan(toy_setting(given.workload, costs, given.limits))

    assert [each.fits for each in plan.passes] == [True, False, False, False, False, True]
    assert (plan.algorithms, choice(plan)) == ("greedy all", "middle")


def test_where_host_memory_is_short_the_passes_go_on() -> None:
    """All(m) offloads 5 maps of 10 B, and 49 B of host memory are too few; but base(p) needs none and fits 508 B.

    With 507 B it does not. conv offloads 3 maps, which fit, and needs 484 B.
    """
    resident, offloading = (VdnnDyn().plan(setting(capacity, host_bytes=49)) for capacity in (508, 507))

    assert [(each.name, each.fits) for each in resident.passes] == [("all(m)", False), ("base(p)", True)]
    assert [each.fits for each in offloading.passes] == [False, False, True]
    assert offloading.algorithms == "conv(p)"


def test_downgrading_an_algorithm_frees_no_host_memory() -> None:
    """29 B cannot hold the 3 maps of conv: greedy leaves its plans alone, and the last resort fails like the first."""
    plan = VdnnDyn().plan(setting(507, host_bytes=29))

    assert len(plan.passes) == 7
    assert not any(each.fits for each in plan.passes)
    assert choice(plan) == "slow"


class _OnlyThisFits:
    """Trials that fail but for plans of all(m)."""

    def __init__(self, given: Setting) -> None:
        self._trials = ReplayTrials(given.cost_model)
        self._refusal = place_plan(VdnnDyn().plan(setting(433)), setting(433).limits)

    def run_trial(self, plan: TrainingPlan) -> Trial:
        assert isinstance(self._refusal, DoesNotFit)
        return self._trials.run_trial(plan) if plan.algorithms == "all(m)" else Trial(self._refusal, 0.5)


def test_the_last_resort_is_the_first_configuration() -> None:
    """Where every trial but all(m) fails, all(m) is run a second time at the end of the paper's order and taken."""
    given = setting(1000)
    plan = VdnnDyn().plan(replace(given, known_trials=_OnlyThisFits(given)))
    names = ["all(m)", "base(p)", "conv(p)", "all(p)", "greedy conv", "greedy all", "all(m)"]
    assert [each.name for each in plan.passes] == names
    assert [each.cost_s for each in plan.passes[1:-1]] == [0.5] * 5
    assert plan.algorithms == "all(m)"
    # Every trial fails and the host has no memory: greedy plans are unchanged, and refused.
    given = setting(1000)
    full_host = replace(given.limits, host_bytes=0)
    plan = VdnnDyn().plan(replace(given, known_limits=full_host, known_trials=_OnlyThisFits(given)))
    assert plan.passes[-1].name == "all(m)"
