"""DDP's buckets: which gradients they hold, when they are exchanged, and their memory.

Each gradient is that of a layer of its own, and its kernels write nothing else unless a test says so.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.toy import placement_of, toy_chain, toy_costs, toy_setting, toy_workload, with_fc
from tests.unit.plans.hand_written import F, script
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.buckets import bucket_bytes
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Aggregation, Allocate, AllReduce, Compute, Release, WaitEvent
from vdnnsim.plans.placement import Placement, needed_bytes, place_plan
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.units import ElementType

MIB = 2**20
CHAIN = toy_workload(toy_chain(4))


def in_buckets(sizes: Sequence[int], text: str, aggregation: Aggregation = Aggregation.DDP) -> TrainingPlan:
    """Allocate gradients dW0, dW1 and so on of these sizes, do as a script says, release them, and add exchanges."""
    taken = "; ".join(f"take dW{number}={size}" for number, size in enumerate(sizes))
    freed = "; ".join(f"free dW{number}" for number, _ in enumerate(sizes) if f"free dW{number}" not in text)
    plan = aggregate_gradients(script(f"{taken}; {text}; sync; {freed}", CHAIN), aggregation)
    check_plan(plan)
    return plan


def exchanges(plan: TrainingPlan) -> list[AllReduce]:
    return [each for each in plan.operations if isinstance(each, AllReduce)]


def contents(plan: TrainingPlan) -> list[tuple[int, ...]]:
    return [each.buffers for each in exchanges(plan)]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        # 1 MiB - 1 B is too little for the first, 25 MiB - 1 B for the second; 5 B are left.
        ([MIB - 1, 1, 25 * MIB - 1, 1, 5], [(0, 1), (2, 3), (4,)]),
        # The third takes 24 MiB and 1 MiB, not the first alone.
        ([MIB, 25 * MIB, 24 * MIB, MIB, 1], [(0,), (1,), (2, 3), (4,)]),
        # 102 MiB are 4 times 25 MiB and go in one piece, with the 3 MiB that were there.
        ([2 * MIB, 3 * MIB, 102 * MIB], [(0,), (1, 2)]),
        ([10, 20, 30], [(0, 1, 2)]),
    ],
)
def test_a_bucket_is_closed_when_it_has_reached_its_size(sizes: list[int], expected: list[tuple[int, ...]]) -> None:
    """Of gradients that are written in their order, by a kernel each."""
    writes = "; ".join(f"write dW{number} @0W" for number, _ in enumerate(sizes))
    assert contents(in_buckets(sizes, writes)) == expected


def test_one_kernel_may_complete_two_buckets() -> None:
    """Its 2 MiB close the first, its 25 MiB the second; they are exchanged one behind the other."""
    plan = in_buckets([2 * MIB, 25 * MIB], "write dW0 dW1 @3W")
    assert contents(plan) == [(0,), (1,)]
    assert [each.layer for each in exchanges(plan)] == [3, 3]
    assert [each.collective for each in exchanges(plan)] == [0, 1]
    # Two buckets of two gradients: of the four updates the first and the third wait.
    text = "; ".join([*(f"write dW{each} @0W" for each in range(4)), *(f"update dW{each}" for each in range(4))])
    operations = in_buckets([512 * 1024, 512 * 1024, 5, 5], text).operations
    waiting = [
        operation.reads
        for before, operation in pairwise(operations)
        if isinstance(before, WaitEvent) and isinstance(operation, Compute)
    ]
    assert waiting == [(0,), (2,)]


def test_tied_weights_are_exchanged_once() -> None:
    """GPT-2 small reads the embedding again at its end: the last layer writes its gradient, and then the first."""
    workload = Workload(build_network("gpt2_small"), 1, ElementType.FLOAT16)
    plan = aggregate_gradients(Base().plan(toy_setting(workload, toy_costs(workload, {}))), Aggregation.DDP)
    gradients = [gradient for each in exchanges(plan) for gradient in each.buffers]
    owners = [layer.index for layer in workload.graph.layers if layer.parameters]

    assert len(gradients) == len(set(gradients)) == len(owners)
    (tied,) = (layer.index for layer in workload.graph.layers if layer.shares_weights)
    storage = plan.buffers[gradients[-1]].storage
    assert storage is not None
    assert plan.workload.step.storages[storage].owner == tied


@pytest.mark.parametrize("need", ["update dW0", "compute>memory; offload dW0", "free dW0"])
def test_a_gradient_that_is_needed_early_closes_its_bucket(need: str) -> None:
    """dW0 is needed before dW1 is written, and so goes alone; the later bucket has its 25 MiB."""
    text = f"write dW0 @0W; {need}; write dW1 @0W; write dW2 @0W; write dW3 @0W"
    assert contents(in_buckets([10, 3 * MIB, 22 * MIB, 10], text)) == [(0,), (1, 2), (3,)]


def test_the_last_bucket_is_closed_in_a_plan_that_releases_no_gradient() -> None:
    plan = script("take dW; write dW @0W", CHAIN)
    assert contents(aggregate_gradients(plan, Aggregation.DDP)) == [(0,)]
    # The update reads dW0, which is being exchanged, before and after dW1 is written; dW2 still joins dW1.
    text = "write dW0 @0W; update dW0; write dW1 @0W; update dW0; write dW2 @0W"
    assert contents(in_buckets([MIB, 10, 10], text)) == [(0,), (1, 2)]


def test_buckets_are_a_second_copy_of_all_gradients() -> None:
    """Four gradients of 600 KiB in two buckets of 1200 KiB, from before the first kernel to the end.

    The FC layer, which comes last, completes the first; the CONV layer before it completes the second that FC begins.
    """
    plan = in_buckets([600 * 1024] * 4, "write dW0 @4W; write dW1 @4W; write dW2 @4W; write dW3 @3W")

    assert plan.buffers[4:] == (
        Buffer("bucket 1 of gradients", BufferKind.WEIGHT_GRADIENT, 1200 * 1024, Stage.CLASSIFIER),
        Buffer("bucket 2 of gradients", BufferKind.WEIGHT_GRADIENT, 1200 * 1024, Stage.FEATURES),
    )
    assert plan.operations[:2] == (Allocate(4, 4, F), Allocate(5, 3, F))
    assert plan.operations[-2:] == (Release(4), Release(5))
    placement = placement_of(plan, MemoryLimits(MemoryModel.BEST_FIT, 10 * MIB, 0, 1))
    assert placement.pool_bytes == 2 * 4 * 600 * 1024


@pytest.mark.parametrize(
    ("model", "taken_bytes"), [(MemoryModel.IDEAL, 3 * MIB + 60), (MemoryModel.CUDA_MALLOC, 4 * MIB)]
)
def test_blocks_of_the_driver_exceed_the_upper_bound_of_buckets(model: MemoryModel, taken_bytes: int) -> None:
    """FC has 2^18 x (5 + 1) weights in float16, 3 MiB and the first bucket; conv1's 60 B are the second.

    A bucket of 3 MiB has two blocks of 2 MiB, and that of 60 B a part of one that is there for other small buffers.
    """
    net = GraphBuilder("wide", MapShape(5, 1, 1))
    y = net.conv("conv1", 0, 5, 1, relu=False)
    workload = toy_workload(with_fc(net, y, 2**18))
    without = Base().plan(toy_setting(workload, toy_costs(workload, {})))
    limits = MemoryLimits(model, 2**30, 0, 1)
    placements = [place_plan(plan, limits) for plan in (without, aggregate_gradients(without, Aggregation.DDP))]
    alone, bucketed = (each.pool_bytes for each in placements if isinstance(each, Placement))

    assert bucketed - alone == taken_bytes
    assert bucket_bytes(workload, 1) == 3 * MIB + 60


def test_upper_bound_of_bucket_memory() -> None:
    """Four CONV layers of 5 x 5 + 5 weights, one FC layer of 5 + 1, in float16: 4 x 60 + 12 B, or in units of 50 B."""
    assert bucket_bytes(CHAIN, 1) == 4 * 60 + 12
    assert bucket_bytes(CHAIN, 50) == 4 * 100 + 50
    assert bucket_bytes(replace(CHAIN, optimizer=Optimizer.ADAM), 1) == 4 * 60 + 12


def test_gradients_that_are_bucket_views_live_throughout_beside_the_one_being_computed() -> None:
    """Gradients of 6 and 2 MiB are written by one kernel each and freed at the end: 8 MiB at most.

    Buckets beside them make it 16; with views in them, 8 throughout and the larger of what is computed: 14.
    """
    # Behind the head of the plan, as backward makes them.
    made = (f"compute>compute; take dW{at}={mib * MIB} @{at}W; write dW{at} @{at}W" for at, mib in enumerate((6, 2)))
    plan = script(f"{'; '.join(made)}; free dW0; free dW1", CHAIN)

    plans = [plan, *(aggregate_gradients(plan, each) for each in (Aggregation.DDP, Aggregation.DDP_VIEWS))]
    check_plan(plans[-1])
    assert [needed_bytes(each) for each in plans] == [8 * MIB, 16 * MIB, 14 * MIB]


@pytest.mark.parametrize(("aggregation", "mib"), [(Aggregation.DDP_VIEWS, 3), (Aggregation.DDP, 6)])
def test_gradients_that_live_throughout_need_no_second_copy_as_bucket_views(aggregation: Aggregation, mib: int) -> None:
    assert needed_bytes(in_buckets([3 * MIB], "write dW0 @0W", aggregation)) == mib * MIB
