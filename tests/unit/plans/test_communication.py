"""The events between the streams of a plan with collectives, and what the check of plans refuses without them.

The second part is of the streams of what ranks exchange, of whose memory PyTorch's allocator has a pool each, the third
of what `aggregate_gradients` adds: a weight gradient is exchanged once its last kernel has written it.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from tests.captured_ranks import sharded
from tests.toy import touching, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.plans.hand_written import COMPUTE, WORKLOAD, F, refusal, script, with_operations
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.communication import with_communication
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.device_requests import device_requests
from vdnnsim.plans.operations import (
    Aggregation,
    AllReduce,
    Communicate,
    Compute,
    Offload,
    RecordEvent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll

COMMUNICATION = Stream.COMMUNICATION


def waits(plan: TrainingPlan) -> list[tuple[str, Stream]]:
    """What follows each wait, and the stream that waits."""
    return [
        (describe(plan.operations[position + 1], plan.buffer_names, plan.layers), each.stream)
        for position, each in enumerate(plan.operations)
        if isinstance(each, WaitEvent)
    ]


def test_a_plan_without_collectives_stays_as_it_is() -> None:
    plan = script("take x; write x; free x")
    assert with_communication(plan) is plan


def test_streams_wait_for_each_other_by_data_alone() -> None:
    """The gather waits for the kernel that wrote x, not for the one on y; the last kernel for the gather.

    z is of the communication stream, which waits for its last reader before it is released.
    """
    bare = script(
        "take x; take y; take z; write x; write y; gather x z; read y; read z z; read z; free x; free y; free z"
    )
    assert "x is exchanged before the stream waited for its kernel" in refusal(bare)
    plan = with_communication(bare)
    check_plan(plan)
    assert [stream for _, stream in waits(plan)] == [COMMUNICATION, COMPUTE, COMMUNICATION]
    assert [what for what, _ in waits(plan)][:2] == [
        "all_gather of 2 ranks in forward of conv1",
        "backward weights of conv1 (only)",
    ]
    assert [each.stream for each in plan.operations[-3:] if hasattr(each, "stream")] == [
        *(COMPUTE, COMPUTE, COMMUNICATION)
    ]
    kernels = [position for position, each in enumerate(plan.operations) if isinstance(each, Communicate)]
    assert isinstance(plan.operations[kernels[0] - 1], WaitEvent)
    # Its event stands right after the first kernel, before the second.
    event = next(each.event for each in plan.operations if isinstance(each, WaitEvent))
    recorded = [getattr(each, "event", None) for each in plan.operations].index(event)
    assert recorded == 4


def test_a_collective_on_the_compute_stream_needs_no_event() -> None:
    plan = script("take x; write x; gather x x; read x; free x")
    here = [replace(each, stream=COMPUTE) if isinstance(each, Communicate) else each for each in plan.operations]
    plan = with_operations(plan, here)
    check_plan(with_communication(plan))
    assert with_communication(plan) == plan


def test_copies_and_synchronizations_of_a_plan_count() -> None:
    """X goes to the host and back by the plan's own events; what is gathered after waits for the copy back.

    After the host waited for both streams, no collective waits for the kernel before.
    """
    copied = "compute>memory; offload x; prefetch x; gather x; memory>compute"
    plan = with_communication(script(f"take x; take y; write x; {copied}; write y; sync; gather y; free x; free y"))
    check_plan(plan)
    own = {0, 1}
    added = [each for each in plan.operations if isinstance(each, WaitEvent) and each.event not in own]
    # The last two let the compute stream release x and y.
    assert [each.stream for each in added] == [COMMUNICATION, COMPUTE, COMPUTE]


def test_what_lies_in_another_buffer_waits_for_its_collective() -> None:
    plan = script("take below; write below; gather below; lay above below; write above; free above; free below")
    full = with_communication(plan)
    check_plan(full)
    *_, last = (position for position, each in enumerate(full.operations) if isinstance(each, WaitEvent))
    assert "covered before the compute stream waited" in refusal(without(full, last))


def test_an_extent_that_is_released_waits_for_the_collective_on_its_buffer() -> None:
    plan = with_communication(script("take x; write x; gather x; free x[0:5]; free x"))
    check_plan(plan)
    assert waits(plan)[1] == ("release bytes 0 to 4 of x", COMPUTE)


def without(plan: TrainingPlan, left_out: int) -> TrainingPlan:
    return with_operations(plan, [each for at, each in enumerate(plan.operations) if at != left_out])


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (0, "is exchanged before the stream waited for its kernel"),
        (1, "is read before the compute stream waited for its exchange"),
        (2, "is released before the communication stream waited for its kernel"),
    ],
)
def test_each_event_is_needed(left_out: int, message: str) -> None:
    """The gather of x, the kernel that reads z, and the release of z wait for one each."""
    plan = with_communication(script("take x; take z; write x; gather x z; read z; free x; free z"))
    found = [position for position, each in enumerate(plan.operations) if isinstance(each, WaitEvent)]
    assert message in refusal(without(plan, found[left_out]))


def test_a_collective_reads_what_was_written() -> None:
    plan = with_communication(script("take x; gather x"))
    assert "x is exchanged before anything was written to it" in refusal(plan)


def test_layers_of_a_rank_have_its_collectives() -> None:
    """Copy, gather and copy-out belong to the layer whose weight they gather."""
    step = CapturedWorkload.of(sharded()).step

    assert [each.collective is not None for each in step.operations_of(0, F)] == [False, True, False, False]


SCATTER, SUM, GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER


def streams(text: str, kinds: Sequence[CollectiveKind | None]) -> list[int]:
    """Those of the buffers in order, where collectives of a script are of these kinds, or with None kernels."""
    plan, left = script(text), iter(kinds)
    made = [
        replace(each, collective=(kind := next(left)) and structs.replace(each.collective, kind=kind))
        if isinstance(each, Communicate) and each.collective is not None
        else each
        for each in plan.operations
    ]
    ready = with_communication(with_operations(plan, made))
    asked = device_requests(ready, MemoryModel.PYTORCH, 1, Pieces(ready))
    return [each.request.stream for each in asked if each.request.nbytes is not None]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((GATHER, GATHER, GATHER), [0, 1, 1]),
        ((SCATTER, None, None), [0, 2, 2]),
        ((SCATTER, SUM, None), [0, 2, 3]),
        ((SUM, None, None), [0, 1, 1]),
    ],
)
def test_what_is_reduced_and_then_cast_is_of_streams_of_its_own(
    kinds: Sequence[CollectiveKind | None], expected: list[int]
) -> None:
    """X is of the compute stream, y what the first makes of it, in which the second works, and z of the third.

    FSDP gathers on one stream, scatters sums on a second, and sums those over copies of a model on a third; it casts a
    sum where it was made last.
    """
    text = "take x; take y; take z; write x; gather x y; gather y y; gather y z; read z; free x; free y; free z"
    assert streams(text, kinds) == expected


# dW of conv1 is written in two parts, read by the update, offloaded and released.
WRITTEN_TWICE = "take dW; write dW @0W; write dW @0W; compute>memory; offload dW; update dW; sync; free dW"


def test_the_last_kernel_that_writes_is_followed_by_the_exchange() -> None:
    """Event 0 is the plan's own; the exchange is between its own 1 and 2. Offload, update and release wait once each.

    The release finds that the compute stream has waited already, for the update.
    """
    written_twice = script(WRITTEN_TWICE)
    plan = aggregate_gradients(written_twice, Aggregation.RING)

    check_plan(plan)
    assert plan.operations[3:] == (
        RecordEvent(1, Stream.COMPUTE),
        WaitEvent(1, COMMUNICATION),
        AllReduce(0, (0,), 0, Aggregation.RING),
        RecordEvent(2, COMMUNICATION),
        RecordEvent(0, Stream.COMPUTE),
        WaitEvent(0, Stream.MEMORY),
        WaitEvent(2, Stream.MEMORY),
        Offload(0, 0),
        WaitEvent(2, Stream.COMPUTE),
        Compute(0, Phase.UPDATE, "only", touching(reads=[0])),
        *written_twice.operations[-2:],
    )


@pytest.mark.parametrize("aggregation", [Aggregation.CPU, Aggregation.DDP])
def test_inference_exchanges_nothing(aggregation: Aggregation) -> None:
    workload = replace(WORKLOAD, mode=Mode.INFERENCE)
    plan = Base().plan(toy_setting(workload, toy_costs(workload, {})))

    assert aggregate_gradients(plan, aggregation) == plan


@pytest.mark.parametrize("policy", [Base(), VdnnAll(), PageMigration()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.ADAM])
def test_every_plan_keeps_the_contract(policy: Policy, optimizer: Optimizer) -> None:
    """Page migration cannot hold all of dW at once, and so pages sums out."""
    workload = replace(toy_workload(toy_chain(3)), optimizer=optimizer)
    setting = toy_setting(workload, toy_costs(workload, {}))
    plan = policy.plan(replace(setting, known_limits=replace(setting.limits, device_bytes=300)))

    aggregated = aggregate_gradients(plan, Aggregation.GPU)
    check_plan(aggregated)
    paged = {op.buffer for op in plan.operations if isinstance(op, Offload)}
    exchanged = {buffer for op in aggregated.operations if isinstance(op, AllReduce) for buffer in op.buffers}
    assert len(exchanged) == 4
    assert bool(paged & exchanged) is isinstance(policy, PageMigration)
