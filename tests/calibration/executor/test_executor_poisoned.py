"""Executed plans in poisoned memory, where whatever is allocated or freed is overwritten with NaN; copies in chunks."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from calibration.executor import executor
from calibration.executor.compiled_plan import refuse_impossible
from calibration.executor.executor import Executor
from tests.calibration.executor.bench import (
    NETWORKS,
    UNLIMITED,
    Bench,
    assert_results_are_the_references,
    every_second_explicit,
)
from tests.calibration.executor.poisoned_device import poisoned, without_extents, without_room_for_extents
from tests.calibration.executor.test_executor import check
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.chunks import in_chunks
from vdnnsim.plans.operations import (
    Allocate,
    AllocateExtent,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    Release,
    ReleaseExtent,
    Stream,
)
from vdnnsim.plans.placement import DoesNotFit, place_unlimited
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

LATE_S = 0.01


@pytest.mark.parametrize("policy", [Base(), VdnnAll()], ids=lambda policy: policy.label)
@pytest.mark.parametrize("network", NETWORKS)
def test_nothing_is_read_too_early_or_late(bench: Bench, network: Callable[[], LayerGraph], policy: Policy) -> None:
    late = replace(bench, device=poisoned(bench.device))
    workload = bench.workload(network)
    plan = bench.plan(workload, policy, every_second_explicit)
    assert_results_are_the_references(bench, workload, plan, late.execute(workload, plan))


def first(plan: TrainingPlan, kind: type[Operation], begin: int = 0) -> int:
    return next(i for i, each in enumerate(plan.operations) if i >= begin and isinstance(each, kind))


@pytest.mark.parametrize(
    ("left_out", "copies_late_s", "kernels_late_s"),
    [
        # The host's wait for an offload: the map is freed while it is copied.
        (lambda plan: first(plan, HostSynchronize), LATE_S, 0.0),
        # The host's wait for a prefetch: a kernel reads what has not arrived.
        (lambda plan: first(plan, HostSynchronize, first(plan, Prefetch)), LATE_S, 0.0),
        # The wait for an allocation: the bytes of the first prefetch are not yet the map's.
        (lambda plan: first(plan, Prefetch) - 1, 0.0, LATE_S),
        (lambda plan: first(plan, Prefetch), 0.0, 0.0),
    ],
    ids=["wait for an offload", "wait for a prefetch", "wait for an allocation", "prefetch"],
)
def test_an_operation_left_out_changes_the_gradients(
    bench: Bench,
    monkeypatch: pytest.MonkeyPatch,
    left_out: Callable[[TrainingPlan], int],
    copies_late_s: float,
    kernels_late_s: float,
) -> None:
    """The check of plans refuses each of these; without it, and where one stream is late, the results are wrong."""
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, VdnnAll())
    at = left_out(plan)
    mutant = replace(plan, operations=plan.operations[:at] + plan.operations[at + 1 :])
    with pytest.raises(PlanError):
        check_plan(mutant)
    device = poisoned(bench.device, copies_late_s=copies_late_s, kernels_late_s=kernels_late_s)
    late = replace(bench, device=device)
    sane = late.execute(workload, plan)
    assert_results_are_the_references(bench, workload, plan, sane)
    monkeypatch.setattr(executor, "check_plan", lambda _: None)
    # The recorder would find what overlaps as well.
    monkeypatch.setattr(executor, "trace_of", lambda *_: sane.trace)

    wrong = late.execute(workload, mutant)

    assert any(not torch.equal(wrong.gradients[index], gradient) for index, gradient in sane.gradients.items())


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
    whole = bench.plan(bench.workload(network), VdnnAll(), every_second_explicit)
    chunked = with_addresses_kept(in_chunks(whole, CHUNK_BYTES))
    check_plan(chunked)
    assert {type(each) for each in chunked.operations} >= {AllocateExtent, ReleaseExtent}
    assert any(isinstance(each, Offload) and each.extent is not None for each in chunked.operations)

    run = check(replace(bench, device=poisoned(bench.device)), network, chunked, UNLIMITED)

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
