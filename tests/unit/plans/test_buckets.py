"""DDP's buckets: which gradients they hold, when they are exchanged, and their memory.

Each gradient is that of a layer of its own, and its kernels write nothing else unless a test says so.
"""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.plan_writer import PlanWriter
from tests.toy import placement_of, touching, toy_chain, toy_costs, toy_setting, toy_workload, with_fc
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.buckets import bucket_bytes
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Allocate, AllReduce, Compute, Release, Stream, WaitEvent
from vdnnsim.plans.placement import MemoryLimits, Placement, needed_bytes, place_plan
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.units import ElementType

MIB = 2**20
CHAIN = toy_workload(toy_chain(4))
F, W, UPDATE = Phase.FORWARD, Phase.BACKWARD_WEIGHTS, Phase.UPDATE


class Backward:
    def __init__(self, *sizes: int) -> None:
        """Allocate a gradient of each size."""
        self.writer = PlanWriter(CHAIN)
        self.gradients = [
            self.writer.buffer(f"dW{number}", BufferKind.WEIGHT_GRADIENT, size, Stage.FEATURES)
            for number, size in enumerate(sizes)
        ]
        for gradient in self.gradients:
            self.writer.allocate(gradient, 0, F)

    def write(self, *gradients: int, layer: int = 0) -> None:
        self.writer.compute(layer, W, "only", touching(writes=gradients))

    def read(self, gradient: int) -> None:
        self.writer.compute(gradient, UPDATE, "only", touching(reads=(gradient,)))

    def in_buckets(self, aggregation: Aggregation = Aggregation.DDP) -> TrainingPlan:
        """Release all gradients, and add exchanges."""
        self.writer.synchronize()
        for gradient in self.gradients:
            self.writer.release(gradient)
        plan = aggregate_gradients(self.writer.finish("hand", "m"), aggregation)
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
    backward = Backward(*sizes)
    for gradient in backward.gradients:
        backward.write(gradient)
    assert contents(backward.in_buckets()) == expected


def test_one_kernel_may_complete_two_buckets() -> None:
    """Its 2 MiB close the first, its 25 MiB the second; they are exchanged one behind the other."""
    backward = Backward(2 * MIB, 25 * MIB)
    backward.write(0, 1, layer=3)
    plan = backward.in_buckets()
    assert contents(plan) == [(0,), (1,)]
    assert [each.layer for each in exchanges(plan)] == [3, 3]
    assert [each.collective for each in exchanges(plan)] == [0, 1]
    # Two buckets of two gradients: of the four updates the first and the third wait.
    backward = Backward(512 * 1024, 512 * 1024, 5, 5)
    for gradient in backward.gradients:
        backward.write(gradient)
    for gradient in backward.gradients:
        backward.read(gradient)
    operations = backward.in_buckets().operations
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


@pytest.mark.parametrize("need", ["update", "offload", "release"])
def test_a_gradient_that_is_needed_early_closes_its_bucket(need: str) -> None:
    """dW0 is needed before dW1 is written, and so goes alone; the later bucket has its 25 MiB."""
    backward = Backward(10, 3 * MIB, 22 * MIB, 10)
    backward.write(0)
    writer = backward.writer
    match need:
        case "update":
            backward.read(0)
        case "offload":
            writer.wait(writer.record(Stream.COMPUTE), Stream.MEMORY)
            writer.offload(0, 0)
        case _:
            writer.release(backward.gradients.pop(0))
    for gradient in (1, 2, 3):
        backward.write(gradient)

    assert contents(backward.in_buckets()) == [(0,), (1, 2), (3,)]


def test_the_last_bucket_is_closed_in_a_plan_that_releases_no_gradient() -> None:
    backward = Backward(10)
    backward.write(0)
    assert contents(aggregate_gradients(backward.writer.finish("hand", "m"), Aggregation.DDP)) == [(0,)]
    # The update reads dW0, which is being exchanged, before and after dW1 is written; dW2 still joins dW1.
    backward = Backward(MIB, 10, 10)
    backward.write(0)
    backward.read(0)
    backward.write(1)
    backward.read(0)
    backward.write(2)
    assert contents(backward.in_buckets()) == [(0,), (1, 2)]


def test_buckets_are_a_second_copy_of_all_gradients() -> None:
    """Four gradients of 600 KiB in two buckets of 1200 KiB, from before the first kernel to the end.

    The FC layer, which comes last, completes the first; the CONV layer before it completes the second that FC begins.
    """
    backward = Backward(*[600 * 1024] * 4)
    for gradient, layer in zip(backward.gradients, (4, 4, 4, 3), strict=True):
        backward.write(gradient, layer=layer)
    plan = backward.in_buckets()

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
    writer = PlanWriter(CHAIN)
    gradients = [
        writer.buffer(f"dW{number}", BufferKind.WEIGHT_GRADIENT, size * MIB, Stage.FEATURES)
        for number, size in enumerate((6, 2))
    ]
    for layer, gradient in enumerate(gradients):
        # Behind the head of the plan, as backward makes them.
        writer.wait(writer.record(Stream.COMPUTE), Stream.COMPUTE)
        writer.allocate(gradient, layer, W)
        writer.compute(layer, W, "only", touching(writes=[gradient]))
    for gradient in gradients:
        writer.release(gradient)
    plan = writer.finish("hand", "m")

    plans = [plan, *(aggregate_gradients(plan, each) for each in (Aggregation.DDP, Aggregation.DDP_VIEWS))]
    check_plan(plans[-1])
    assert [needed_bytes(each) for each in plans] == [8 * MIB, 16 * MIB, 14 * MIB]


@pytest.mark.parametrize(("aggregation", "mib"), [(Aggregation.DDP_VIEWS, 3), (Aggregation.DDP, 6)])
def test_gradients_that_live_throughout_need_no_second_copy_as_bucket_views(aggregation: Aggregation, mib: int) -> None:
    backward = Backward(3 * MIB)
    backward.write(0)

    assert needed_bytes(backward.in_buckets(aggregation)) == mib * MIB
