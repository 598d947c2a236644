from dataclasses import replace

import pytest

from tests.toy import toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.errors import PlanError
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.operations import (
    Allocate,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.base import Base
from vdnnsim.policies.layerwise import PrefetchSearch
from vdnnsim.policies.port import Policy
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY = Stream.COMPUTE, Stream.MEMORY
WORKLOAD = toy_workload(toy_chain(1))


@pytest.fixture
def writer() -> PlanWriter:
    """The layers are conv1, fc and loss."""
    return PlanWriter(WORKLOAD)


def name(writer: PlanWriter, label: str, *, given: bool = False) -> int:
    return writer.buffer(label, BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=given)


def take(writer: PlanWriter, label: str, *, given: bool = False) -> int:
    """Name and allocate a buffer."""
    buffer = name(writer, label, given=given)
    writer.allocate(buffer, 0, F)
    return buffer


def write(writer: PlanWriter, *buffers: int) -> None:
    writer.compute(0, F, "only", reads=(), writes=buffers)


def read(writer: PlanWriter, *buffers: int) -> None:
    writer.compute(0, W, "only", reads=buffers, writes=())


def order(writer: PlanWriter, first: Stream, then: Stream) -> None:
    """Let one stream wait for all that another has been given so far."""
    writer.wait(writer.record(first), then)


def refusal(plan: TrainingPlan) -> str:
    with pytest.raises(PlanError) as failure:
        check_plan(plan)
    return str(failure.value)


def finished(writer: PlanWriter) -> TrainingPlan:
    return writer.finish("hand", "m")


def with_operations(plan: TrainingPlan, operations: list[Operation]) -> TrainingPlan:
    return replace(plan, operations=tuple(operations))


def round_trip() -> TrainingPlan:
    """Write x (0, 1), copy it to the host (2 to 4), release it (5 to 7), fetch it (8 to 11) and read it (12 to 15)."""
    writer = PlanWriter(WORKLOAD)
    x = take(writer, "x")
    write(writer, x)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    writer.allocate(x, 0, W)
    order(writer, COMPUTE, MEMORY)
    writer.prefetch(x, 0, on_demand=False)
    order(writer, MEMORY, COMPUTE)
    read(writer, x)
    writer.release(x)
    return finished(writer)


def test_a_plan_without_operations_keeps_the_contract(writer: PlanWriter) -> None:
    check_plan(finished(writer))


def test_a_map_that_goes_to_the_host_and_comes_back_keeps_the_contract() -> None:
    check_plan(round_trip())


ROUND_TRIP_WITHOUT = [
    (0, "operation 0 (forward of conv1 (only)): x is used while it is not allocated"),
    (1, "operation 3 (offload of x during forward of conv1): x is offloaded before anything was written to it"),
    (2, "operation 2 (wait for event 0 on the memory stream): event 0 is waited for before it is recorded"),
    (
        3,
        (
            "operation 3 (offload of x during forward of conv1): "
            "x is offloaded before the memory stream waited for its kernel"
        ),
    ),
    (4, "operation 10 (prefetch of x during backward of conv1): x is prefetched but not on the host"),
    (5, "operation 5 (wait for event 1 on the compute stream): event 1 is waited for before it is recorded"),
    (6, "operation 6 (release x): x is released before the compute stream waited for its copy"),
    (7, "operation 7 (allocate x): x is allocated twice"),
    (8, "operation 10 (prefetch of x during backward of conv1): x is used while it is not allocated"),
    (9, "operation 9 (wait for event 2 on the memory stream): event 2 is waited for before it is recorded"),
    (
        10,
        (
            "operation 10 (prefetch of x during backward of conv1): "
            "x is prefetched before the memory stream waited for its allocation"
        ),
    ),
    (11, "operation 13 (backward weights of conv1 (only)): x is read before anything was written to it"),
    (12, "operation 12 (wait for event 3 on the compute stream): event 3 is waited for before it is recorded"),
    (
        13,
        "operation 13 (backward weights of conv1 (only)): x is read before the compute stream waited for its prefetch",
    ),
    (15, "operation 14 (backward weights of conv1 (only)): x is still allocated at the end"),
]


@pytest.mark.parametrize(("deleted", "message"), ROUND_TRIP_WITHOUT)
def test_without_any_one_of_its_operations_the_round_trip_breaks_the_contract(deleted: int, message: str) -> None:
    """Positions count the plan that is left, so what stood behind the deleted operation stands one lower.

    Operation 14, the kernel that reads x at the end, may go: the check does not know which kernels a network needs.
    """
    plan = round_trip()

    broken = with_operations(plan, [op for i, op in enumerate(plan.operations) if i != deleted])

    assert refusal(broken) == f"hand: {message}"


def test_what_the_round_trip_can_do_without() -> None:
    assert {deleted for deleted, _ in ROUND_TRIP_WITHOUT} == set(range(16)) - {14}
    plan = round_trip()
    check_plan(with_operations(plan, [op for i, op in enumerate(plan.operations) if i != 14]))


@pytest.mark.parametrize(
    ("doubled", "message"),
    [
        (Allocate, "operation 1 (allocate x): x is allocated twice"),
        (RecordEvent, "operation 3 (record event 0 on the compute stream): event 0 is recorded twice"),
        (Offload, "operation 5 (offload of x during forward of conv1): x is offloaded twice"),
        (Release, "operation 8 (release x): x is used while it is not allocated"),
        (Prefetch, "operation 12 (prefetch of x during backward of conv1): x is prefetched but not on the host"),
    ],
)
def test_what_must_not_be_done_twice(doubled: type[Operation], message: str) -> None:
    """The first operation of the kind is issued twice in a row."""
    plan = round_trip()
    first = next(i for i, op in enumerate(plan.operations) if isinstance(op, doubled))
    operations = list(plan.operations)
    operations.insert(first, operations[first])

    assert refusal(with_operations(plan, operations)) == f"hand: {message}"


@pytest.mark.parametrize("doubled", [Compute, WaitEvent])
def test_what_may_be_done_twice(doubled: type[Operation]) -> None:
    """A kernel may be recomputed, and a second wait for an event finds it reached."""
    plan = round_trip()
    first = next(i for i, op in enumerate(plan.operations) if isinstance(op, doubled))
    operations = list(plan.operations)
    operations.insert(first, operations[first])

    check_plan(with_operations(plan, operations))


def test_a_kernel_must_not_write_what_is_being_copied(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    write(writer, x)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (forward of conv1 (only)): x is written before the compute stream waited for its copy"
    )


def test_a_kernel_may_read_what_is_being_offloaded(writer: PlanWriter) -> None:
    """Both only read the bytes; that is how vDNN hides an offload behind the last consumer."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    read(writer, x)
    writer.synchronize()
    writer.release(x)

    check_plan(finished(writer))


def test_a_kernel_that_reads_holds_a_prefetch_back_as_well(writer: PlanWriter) -> None:
    """The bytes would change under the kernel: x is on the host and still here when a kernel reads it."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    order(writer, COMPUTE, MEMORY)
    read(writer, x)
    writer.prefetch(x, 0, on_demand=False)

    assert refusal(finished(writer)) == (
        "hand: operation 5 (prefetch of x during backward of conv1): "
        "x is prefetched before the memory stream waited for its allocation"
    )


def test_a_kernel_must_not_write_into_a_prefetch() -> None:
    """In the round trip the prefetch is operation 11, and the compute stream waits for it from 13 on."""
    plan = round_trip()
    operations = [*plan.operations[:12], Compute(0, F, "only", (), (0,)), *plan.operations[12:]]

    assert refusal(with_operations(plan, operations)) == (
        "hand: operation 12 (forward of conv1 (only)): x is written before the compute stream waited for its copy"
    )


def test_an_event_marks_what_was_issued_before_it_and_nothing_later(writer: PlanWriter) -> None:
    """The event is recorded on the memory stream before the copy, so waiting for it says nothing about the copy."""
    x = take(writer, "x", given=True)
    early = writer.record(MEMORY)
    writer.offload(x, 0)
    writer.wait(early, COMPUTE)
    writer.release(x)

    assert refusal(finished(writer)) == (
        "hand: operation 4 (release x): x is released before the compute stream waited for its copy"
    )


def test_one_event_serves_all_that_its_stream_does_after_the_wait(writer: PlanWriter) -> None:
    """A kernel writes x and y. Both copies stand behind one wait for it, both releases behind one wait for them."""
    x, y = take(writer, "x"), take(writer, "y")
    write(writer, x, y)
    order(writer, COMPUTE, MEMORY)
    writer.offload(x, 0)
    writer.offload(y, 0)
    order(writer, MEMORY, COMPUTE)
    writer.release(x)
    writer.release(y)

    check_plan(finished(writer))


@pytest.mark.parametrize(
    ("streams", "fits"),
    [((COMPUTE, MEMORY), True), ((MEMORY,), True), ((COMPUTE,), False), ((), False)],
)
def test_a_synchronization_orders_what_the_host_issues_later(
    writer: PlanWriter, streams: tuple[Stream, ...], *, fits: bool
) -> None:
    """The host waits for the copy on the memory stream, so the Release, issued later, comes after it.

    A synchronization with the compute stream alone, or with none, says nothing about the copy.
    """
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    plan = finished(writer)
    operations = [HostSynchronize(streams) if isinstance(op, HostSynchronize) else op for op in plan.operations]

    if fits:
        check_plan(with_operations(plan, operations))
    else:
        assert refusal(with_operations(plan, operations)) == (
            "hand: operation 3 (release x): x is released before the compute stream waited for its copy"
        )


def test_a_synchronization_orders_a_prefetch_after_its_allocation(writer: PlanWriter) -> None:
    """The host has waited for the compute stream, which reached the Allocate; no event is needed."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    writer.allocate(x, 0, W)
    writer.synchronize()
    writer.prefetch(x, 0, on_demand=True)
    writer.synchronize()
    read(writer, x)
    writer.release(x)

    check_plan(finished(writer))


def test_a_synchronization_says_nothing_about_what_is_issued_after_it(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.synchronize()
    writer.offload(x, 0)
    writer.release(x)

    assert refusal(finished(writer)) == (
        "hand: operation 3 (release x): x is released before the compute stream waited for its copy"
    )


def test_what_the_host_knows_of_a_stream_includes_what_that_stream_waited_for(writer: PlanWriter) -> None:
    """The compute stream waits for the copy, the host for the compute stream: so the copy is done."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    order(writer, MEMORY, COMPUTE)
    writer.synchronize()
    writer.release(x)
    plan = finished(writer)
    operations = [HostSynchronize((COMPUTE,)) if isinstance(op, HostSynchronize) else op for op in plan.operations]

    check_plan(with_operations(plan, operations))


def test_content_that_was_given_may_be_read_at_once_and_other_content_may_not(writer: PlanWriter) -> None:
    x, y = take(writer, "x", given=True), take(writer, "y")
    read(writer, x)
    read(writer, y)

    assert refusal(finished(writer)) == (
        "hand: operation 3 (backward weights of conv1 (only)): y is read before anything was written to it"
    )


def test_given_content_that_went_to_the_host_is_not_given_again(writer: PlanWriter) -> None:
    """The input batch was offloaded and released: a fresh allocation holds nothing until it was fetched."""
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)
    writer.allocate(x, 0, W)
    read(writer, x)

    assert refusal(finished(writer)) == (
        "hand: operation 5 (backward weights of conv1 (only)): x is read before anything was written to it"
    )


def test_an_offload_may_stay_on_the_host_if_nobody_reads_it_again(writer: PlanWriter) -> None:
    x = take(writer, "x", given=True)
    writer.offload(x, 0)
    writer.synchronize()
    writer.release(x)

    check_plan(finished(writer))


def test_a_buffer_may_be_laid_into_another_and_taken_out_again(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)
    write(writer, inside)
    read(writer, inside)
    writer.release(inside)
    writer.alias(inside, storage)
    writer.release(inside)
    writer.release(storage)

    check_plan(finished(writer))


def test_storage_must_outlive_what_lies_in_it(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)
    writer.release(storage)

    assert refusal(finished(writer)) == ("hand: operation 2 (release storage): storage is used while inside lies in it")


def test_storage_holds_one_buffer_at_a_time(writer: PlanWriter) -> None:
    storage, first, second = take(writer, "storage"), name(writer, "first"), name(writer, "second")
    writer.alias(first, storage)
    writer.alias(second, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (lay second into storage): storage is used while first lies in it"
    )


def test_a_buffer_must_fit_into_its_storage(writer: PlanWriter) -> None:
    """11 B do not fit into 10 B."""
    storage = take(writer, "storage")
    large = writer.buffer("large", BufferKind.GRADIENT_MAP, 11, Stage.FEATURES)
    writer.alias(large, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 1 (lay large into storage): large is larger than storage, in which it is to lie"
    )


def test_storage_is_covered_only_after_its_copy(writer: PlanWriter) -> None:
    """What is on its way to the host must have left before something else is laid over it."""
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.offload(storage, 0)
    writer.alias(inside, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (lay inside into storage): storage is covered before the compute stream waited for its copy"
    )


def test_nothing_is_left_of_what_was_in_storage_before(writer: PlanWriter) -> None:
    """A given buffer is covered and uncovered; reading it then is reading nothing."""
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.alias(inside, storage)
    writer.release(inside)
    read(writer, storage)

    assert refusal(finished(writer)).endswith("storage is read before anything was written to it")


def test_a_buffer_cannot_be_laid_into_storage_that_is_not_there(writer: PlanWriter) -> None:
    storage, inside = name(writer, "storage"), name(writer, "inside")
    writer.alias(inside, storage)

    assert refusal(finished(writer)) == (
        "hand: operation 0 (lay inside into storage): storage is used while it is not allocated"
    )


def test_a_buffer_cannot_be_laid_into_storage_while_it_is_allocated(writer: PlanWriter) -> None:
    storage, other = take(writer, "storage"), take(writer, "other")
    writer.alias(other, storage)

    assert refusal(finished(writer)) == "hand: operation 2 (lay other into storage): other is allocated twice"


def test_what_lies_in_storage_starts_without_content(writer: PlanWriter) -> None:
    storage, inside = take(writer, "storage", given=True), name(writer, "inside")
    writer.alias(inside, storage)
    read(writer, inside)

    assert refusal(finished(writer)) == (
        "hand: operation 2 (backward weights of conv1 (only)): inside is read before anything was written to it"
    )


def forked() -> LayerGraph:
    """A CONV layer with its rectifier, a pool forked to two CONV layers and joined again, an FC layer; maps of 10 B."""
    net = GraphBuilder("fork", MapShape(5))
    pool = net.pool("pool1", net.conv("conv1", 0, 5, 1), 1, stride=1)
    join = net.concat("join", (net.conv("left", pool, 5, 1), net.conv("right", pool, 5, 1)))
    net.begin_classifier()
    return net.build(net.fc("fc", join, 1, relu=False))


@pytest.mark.parametrize("graph", [toy_chain(3), forked()], ids=["chain", "fork"])
@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.ADAM])
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    "policy",
    [Base(), VdnnAll(), VdnnConv(), VdnnAll(prefetch_search=PrefetchSearch.FIG10_WITHOUT_POOL)],
    ids=["base", "vdnn_all", "vdnn_conv", "vdnn_all_without_pool"],
)
def test_the_plans_of_our_policies_keep_the_contract(
    graph: LayerGraph, optimizer: Optimizer, mode: Mode, policy: Policy
) -> None:
    """With and without an update, in training and inference; conv1 wants a workspace in forward."""
    workload = replace(toy_workload(graph), optimizer=optimizer, mode=mode)

    check_plan(policy.plan(toy_setting(workload, toy_costs(workload, {}, workspace_bytes={("conv1", F): 7}))))


def harmless_deletions(graph: LayerGraph) -> list[str]:
    """Return which operations of the plan of vdnn_all the check does not miss, described."""
    workload = toy_workload(graph)
    plan = VdnnAll().plan(toy_setting(workload, toy_costs(workload, {})))
    check_plan(plan)
    harmless = []
    for deleted, operation in enumerate(plan.operations):
        try:
            check_plan(with_operations(plan, [op for i, op in enumerate(plan.operations) if i != deleted]))
        except PlanError:
            continue
        harmless.append(describe(operation, plan.buffer_names, plan.layers))
    return harmless


def test_a_chain_under_vdnn_all_misses_any_operation_but_seven() -> None:
    """Every RecordEvent, HostSynchronize, Prefetch, Offload, Allocate and Release is needed, and most waits are.

    Three waits are not, all in forward. Event 0 holds the offload of the input batch, which no kernel writes. Events 1
    and 2 hold the offloads of conv1's and conv2's maps until their kernels are done; but the layer of each kernel also
    offloaded its own X and so ended with a synchronization, after which the host issued the copy.

    Four kernels are not: they write dW, which nobody reads without an update.
    """
    assert harmless_deletions(toy_chain(3)) == [
        "wait for event 0 on the memory stream",
        "wait for event 1 on the memory stream",
        "wait for event 2 on the memory stream",
        "backward weights of fc (only)",
        "backward weights of conv3 (only)",
        "backward weights of conv2 (only)",
        "backward weights of conv1 (only)",
    ]


def test_a_fork_under_vdnn_all_needs_the_waits_that_no_synchronization_covers() -> None:
    """Needed is event 1: it holds the offload of conv1's map, which the rectifier rewrote after the synchronization.

    So is event 3, for the maps of left and right, which a rectifier rewrote likewise. Harmless are event 0, for the
    input batch is given, and event 2: pool1, which wrote the map that right offloads, ended with a synchronization.

    Of the kernels, a rectifier in place leaves map and gradient written without it; left adds to a gradient that right
    has begun, so that something is written without left; and nobody reads dW.
    """
    assert harmless_deletions(forked()) == [
        "wait for event 0 on the memory stream",
        "forward of conv1/relu (only)",
        "forward of left/relu (only)",
        "wait for event 2 on the memory stream",
        "forward of right/relu (only)",
        "backward weights of fc (only)",
        "backward data of right/relu (only)",
        "backward weights of right (only)",
        "backward data of left/relu (only)",
        "backward data of left (only)",
        "backward weights of left (only)",
        "backward data of conv1/relu (only)",
        "backward weights of conv1 (only)",
    ]
