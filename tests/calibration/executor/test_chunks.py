"""Copies in chunks and extents of memory on a device: the results of whole buffers, and memory to the byte."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from calibration.executor.compiled_plan import refuse_impossible
from calibration.executor.executor import Executor
from tests.calibration.executor.bench import (
    NETWORKS,
    UNLIMITED,
    Bench,
    assert_order_is_the_plans,
    assert_results_are_the_references,
    every_second_explicit,
)
from tests.calibration.executor.poisoned_device import poisoned, without_extents, without_room_for_extents
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import (
    Allocate,
    AllocateExtent,
    Offload,
    Operation,
    Prefetch,
    Release,
    ReleaseExtent,
    Stream,
)
from vdnnsim.plans.placement import DoesNotFit, place_unlimited
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.vdnn import VdnnAll

CHUNK_BYTES = 5000


def with_addresses_kept(plan: TrainingPlan) -> TrainingPlan:
    """Let what is offloaded in chunks keep its addresses: its extents are allocated again before each prefetch."""
    parted = {each.buffer for each in plan.operations if isinstance(each, Prefetch) and each.extent is not None}
    left: dict[int, int] = {}
    operations: list[Operation] = []
    for operation in plan.operations:
        match operation:
            case ReleaseExtent(buffer=buffer, extent=extent):
                left[buffer] = extent.stop
                operations.append(operation)
            case Release(buffer=buffer) if buffer in left and buffer in parted:
                rest = range(left[buffer], plan.buffers[buffer].nbytes)
                operations.append(ReleaseExtent(buffer, rest))
            case Allocate(buffer=buffer, layer=layer, phase=phase) if buffer in left and buffer in parted:
                chunks = [
                    each.extent for each in plan.operations if isinstance(each, Prefetch) and each.buffer == buffer
                ]
                operations += [AllocateExtent(buffer, each, layer, phase) for each in chunks if each is not None]
                del left[buffer]
            case _:
                operations.append(operation)
    return replace(plan, operations=tuple(operations))


@pytest.fixture
def plan(bench: Bench) -> TrainingPlan:
    whole = bench.plan(bench.workload(tiny_linear), VdnnAll(), every_second_explicit)
    return with_addresses_kept(in_chunks(whole, CHUNK_BYTES))


@pytest.mark.parametrize("network", NETWORKS)
def test_chunks_compute_the_results_of_whole_buffers(bench: Bench, network: Callable[[], LayerGraph]) -> None:
    """On a device that fills memory with NaN when it is allocated or freed, extents included."""
    workload = bench.workload(network)
    whole = bench.plan(workload, VdnnAll(), every_second_explicit)
    chunked = with_addresses_kept(in_chunks(whole, CHUNK_BYTES))
    check_plan(chunked)
    assert {type(each) for each in chunked.operations} >= {AllocateExtent, ReleaseExtent}
    assert any(isinstance(each, Offload) and each.extent is not None for each in chunked.operations)

    run = replace(bench, device=poisoned(bench.device)).execute(workload, chunked)

    assert_results_are_the_references(bench, workload, chunked, run)
    assert_order_is_the_plans(chunked, run.trace)
    placement = place_unlimited(chunked, UNLIMITED)
    assert run.trace.host_bytes == placement.host_bytes
    assert run.peaks.requested_bytes == placement.pool_bytes
    assert [(change.operation, change.delta_bytes) for change in run.trace.memory] == [
        (change.operation, change.delta_bytes) for change in placement.changes.values()
    ]
    copies = [chunked.operations[span.operation] for span in run.trace.spans_on(Stream.MEMORY)]
    assert all(isinstance(each, Offload | Prefetch) and chunked.copied_bytes(each) <= CHUNK_BYTES for each in copies)


def test_a_device_that_has_no_room_for_an_extent(bench: Bench, plan: TrainingPlan) -> None:
    """The answer names the extent; what was held is what the plan has in use there, less released extents."""
    asked = next(i for i, each in enumerate(plan.operations) if isinstance(each, AllocateExtent))
    operation = plan.operations[asked]
    assert isinstance(operation, AllocateExtent)
    changes = place_unlimited(plan, UNLIMITED).changes
    in_use = sum(change.delta_bytes for position, change in changes.items() if position < asked)

    answer = Executor(without_room_for_extents(bench.device), bench.workload(tiny_linear), bench.library).execute(
        plan, UNLIMITED
    )

    assert isinstance(answer, DoesNotFit)
    assert (answer.operation, answer.buffer, answer.phase) == (asked, operation.buffer, operation.phase)
    assert answer.requested_bytes == len(operation.extent)
    assert sum(nbytes for _, nbytes in answer.held_bytes) == in_use


def test_device_without_extents_refuses_plans_that_release_them(bench: Bench, plan: TrainingPlan) -> None:
    """PyTorch's allocator on a GPU is one."""
    refuse_impossible(plan, releases_extents=True)
    with pytest.raises(ExecutionRefused, match=r"release bytes 0 to 4999 of map.*cannot do memory of an extent"):
        Executor(without_extents(bench.device), bench.workload(tiny_linear), bench.library).execute(plan, UNLIMITED)
