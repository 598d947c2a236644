"""The three policies of Layrub on chains whose bytes and seconds can be worked out.

Kernels take 1 s, the link moves 1 B/s. Maps hold 10 B, those of fc and the loss 2 B. Beside the input three more
batches wait on the GPU, as in Caffe: `AHEAD`, 30 B.
"""

import pytest

from tests.toy import replayed, toy_chain, toy_costs, toy_graph, toy_setting, toy_workload
from tests.unit.policies.copies import issued
from tests.unit.policies.test_frameworks import FORKED, NORMALIZED
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Alias, Compute, HostSynchronize, Offload, Prefetch
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.layrub import LayrubHybrid, LayrubInter, LayrubIntra

AHEAD = 30


def over_maps(plan: TrainingPlan) -> list[tuple[str, str]]:
    """(gradient, map over which it lies) in order of issue."""
    kinds = [buffer.kind for buffer in plan.buffers]
    return [
        (plan.buffers[op.buffer].name, plan.buffers[op.storage].name)
        for op in plan.operations
        if isinstance(op, Alias)
        and kinds[op.buffer] is BufferKind.GRADIENT_MAP
        and plan.buffers[op.storage].storage is not None
    ]


@pytest.mark.parametrize(
    ("graph", "beyond_bytes"),
    [
        # W and dW 264 B, maps 34 B, of Caffe's 350 B: gradients lie over maps within layers. Between layers: beside
        # backward of fc its X, conv1's Y being prefetched, dX, and dY of 2 B; beside conv2's four of 10 B. Both: beside
        # backward of conv2 its dY over its Y, its X, over which dX is laid, and the input being prefetched.
        (toy_chain(2), {LayrubIntra: 264 + 34, LayrubInter: 264 + 40, LayrubHybrid: 264 + 30}),
        # Backward of the addition begins the gradient of conv1's Y, which conv2 still reads: a region of 10 B. A second
        # one for the diff of the other output of Caffe's Split, until both are summed. W and dW 264 B, maps 44 B.
        (FORKED, {LayrubIntra: 264 + 44 + 20}),
        # Within layers: W 164 B, maps 34 B, and the 60 B of statistics and two temporary maps, as in Caffe. Between
        # layers all share two of them, 20 B, beside the 40 B of statistics. Beside backward of batch normalization lie
        # its X, dX, dY and the input being prefetched: four regions. With dX over X they are three, and a third
        # temporary map holds dY.
        (NORMALIZED, {LayrubIntra: 164 + 34 + 60, LayrubInter: 164 + 40 + 20 + 40, LayrubHybrid: 164 + 40 + 30 + 30}),
    ],
)
def test_memory_that_is_held(graph: LayerGraph, beyond_bytes: dict[type[Policy], int]) -> None:
    found = {policy: replayed(policy(), toy_workload(graph)).pool_bytes for policy in beyond_bytes}
    assert found == {policy: AHEAD + expected for policy, expected in beyond_bytes.items()}


def test_within_layers_gradients_lie_over_maps_behind_a_barrier() -> None:
    """Backward of fc and of conv2 has a barrier: 3.05 % of 2 s each."""
    trace = replayed(LayrubIntra(), toy_workload(toy_chain(2)))
    assert trace.iteration_s == pytest.approx(10 + 2 * 0.061)
    assert over_maps(trace.plan) == [
        ("gradient of fc", "map fc"),
        ("gradient of conv2", "map conv2"),
        ("gradient of conv1", "map conv1"),
    ]
    assert ("gradient of conv1", "map conv1") not in over_maps(replayed(LayrubIntra(), toy_workload(FORKED)).plan)


def test_barriers_and_synchronizations() -> None:
    plan = replayed(LayrubIntra(), toy_workload(toy_chain(2))).plan
    backward = [each for each in plan.operations if isinstance(each, Compute) and each.phase.is_backward]
    assert [(plan.layers[each.layer], each.phase, each.barrier_s > 0) for each in backward] == [
        ("loss", Phase.BACKWARD_DATA, False),
        ("fc", Phase.BACKWARD_WEIGHTS, False),
        ("fc", Phase.BACKWARD_DATA, True),
        ("conv2", Phase.BACKWARD_WEIGHTS, False),
        ("conv2", Phase.BACKWARD_DATA, True),
        ("conv1", Phase.BACKWARD_WEIGHTS, False),
    ]
    # Forward of conv1, conv2 and fc; backward of loss, fc, conv2 and conv1.
    plan = replayed(LayrubInter(), toy_workload(toy_chain(2))).plan
    assert sum(isinstance(each, HostSynchronize) for each in plan.operations) == 7


def test_between_layers_maps_are_offloaded_by_their_last_reader_and_prefetched_a_layer_ahead() -> None:
    """conv1 reads the input last, conv2 conv1's Y, fc conv2's Y; each is prefetched beside the backward before its own.

    Forward: each copy of 10 B outlasts its kernel: 30 s, and 1 s of the loss. Backward: beside the loss, fc and conv2
    10 s each, then conv1's own second: 62 s.
    """
    trace = replayed(LayrubInter(), toy_workload(toy_chain(2)))

    assert issued(trace.plan, Offload) == [("map input", "conv1"), ("map conv1", "conv2"), ("map conv2", "fc")]
    assert issued(trace.plan, Prefetch) == [("map conv2", "loss"), ("map conv1", "fc"), ("map input", "conv2")]
    assert trace.iteration_s == 62


def test_copies_hide_the_barriers_of_hybrid() -> None:
    assert replayed(LayrubHybrid(), toy_workload(toy_chain(2))).iteration_s == 62


def test_records_of_rectifiers_pass_through_one_region() -> None:
    """Two records of 5 B in a region of 5 B; W and dW 264 B, maps 34 B. dX lies over X all the same.

    conv1 and its rectifier end at 2 s, the copy of the record at 7 s, before which nothing runs; conv2, its rectifier
    and the record at 14 s, fc and the loss at 16 s. Backward of the loss ends at 17 s; beside that of fc, of 2.061 s,
    the record of the second rectifier is prefetched until 22 s. It ends at 23 s; beside conv2 the other record is
    prefetched until 28 s, then its rectifier and conv1 run.
    """
    trace = replayed(LayrubIntra(), toy_workload(toy_graph("conv1 conv relu; conv2 conv relu")))

    assert trace.pool_bytes == AHEAD + 264 + 34 + 5
    assert issued(trace.plan, Offload) == [
        ("record of conv1/relu", "conv1/relu"),
        ("record of conv2/relu", "conv2/relu"),
    ]
    assert issued(trace.plan, Prefetch) == [("record of conv2/relu", "fc"), ("record of conv1/relu", "conv2")]
    assert trace.iteration_s == 30
    assert ("gradient of conv2", "map conv2") in over_maps(trace.plan)


def test_two_batch_normalizations_in_a_row_take_turns_in_the_region() -> None:
    """What the lower one keeps is prefetched after backward of the upper one, not beside it."""
    plan = replayed(LayrubInter(), toy_workload(toy_graph("conv conv unbiased; bn1 bn; bn2 bn"))).plan

    backward_or_copy = [
        (type(op).__name__, plan.layers[op.layer])
        for op in plan.operations
        if (isinstance(op, Prefetch) and plan.buffers[op.buffer].name.startswith("temporary"))
        or (isinstance(op, Compute) and op.phase.is_backward and plan.layers[op.layer].startswith("bn"))
    ]
    assert backward_or_copy == [("Prefetch", "fc"), ("Compute", "bn2"), ("Prefetch", "bn2"), ("Compute", "bn1")]
    check_plan(plan)


def test_the_temporary_maps_of_a_batch_normalization_are_offloaded_after_it() -> None:
    """Its X, the normalized map, and 20 B of temporary maps are offloaded after its kernel and prefetched beside fc's.

    Forward: conv beside the copy of the input 10 s, bn and 30 B 31 s, fc beside its X 10 s, the loss 1 s: 52 s.
    Backward: the loss beside fc's X 10 s, fc beside 30 B 30 s, bn beside the input 10 s, conv 1 s: 103 s.
    """
    trace = replayed(LayrubInter(), toy_workload(NORMALIZED))

    assert issued(trace.plan, Offload) == [
        ("map input", "conv"),
        ("map conv", "bn"),
        ("temporary maps of bn", "bn"),
        ("map bn", "fc"),
    ]
    assert issued(trace.plan, Prefetch) == [
        ("map bn", "loss"),
        ("map conv", "fc"),
        ("temporary maps of bn", "fc"),
        ("map input", "bn"),
    ]
    assert trace.iteration_s == 103


def test_maps_that_are_copied_and_overwritten() -> None:
    """Backward of an addition reads no input; conv2's Y, which nothing reads, is offloaded and prefetched for it."""
    plan = replayed(LayrubInter(), toy_workload(FORKED)).plan
    assert ("map conv2", "add") in issued(plan, Offload)
    assert ("map conv2", "fc") in issued(plan, Prefetch)
    # Caffe keeps a mask and a normalized map for them; one kernel reads X and writes dX.
    assert ("gradient of conv", "map conv") in over_maps(
        replayed(LayrubIntra(), toy_workload(toy_graph("conv conv; pool pool"))).plan
    )
    assert ("gradient of conv", "map conv") in over_maps(replayed(LayrubIntra(), toy_workload(NORMALIZED)).plan)


def region_mib(network: str) -> float:
    """MiB of the regions of `layrub_hybrid` at batch size 32."""
    workload = Workload(build_network(network), batch_size=32)
    plan = LayrubHybrid().plan(toy_setting(workload, toy_costs(workload, {})))
    check_plan(plan)
    return sum(buffer.nbytes for buffer in plan.buffers if buffer.name.startswith("region")) / 2**20


@pytest.mark.parametrize("network", ["resnet50", "resnet101", "resnet152"])
def test_regions_do_not_grow_with_depth(network: str) -> None:
    """Of the largest maps, 64 x 112 x 112 or 256 x 56 x 56, two hold the outputs of blocks and two their gradients.

    Three hold all other maps, but the output of the classifier and its gradient, 32 x 2048 floats; the largest record
    has a quarter of such a map: 7 x 98 + 0.25 + 24.5 MiB. The paper has 759.5 MB, 31 quarters (5.2.1). The temporary
    maps of batch normalization, which it does not count, do not lie in regions.
    """
    assert region_mib(network) == 710.75
