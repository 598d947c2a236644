"""The replay of a captured rank, one of two whose peer link moves 10 B/s; every kernel takes 1 s."""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_ranks import offloading, sharded, staged
from tests.toy import server_with
from tests.two_gpus import PEERED
from vdnnsim.analysis.metrics import measure, stall_seconds
from vdnnsim.cost.table import AdjustedCosts, CostModel
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import PolicyError, ScenarioError
from vdnnsim.hardware.copies import Direction
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Allocate, Communicate, Release, Stream
from vdnnsim.plans.placement import PlacedChange
from vdnnsim.plans.recorder import Recorder
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies import optimal
from vdnnsim.policies.base import Resident
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.plots.iteration.timeline import trace_bars
from vdnnsim.scenario.simulator import Simulator

SERVER = server_with({"launch_overhead_s": 1.0})
FAST = replace(SERVER.gpu, dram_bytes_per_s=1e9, flop_per_s=dict.fromkeys(SERVER.gpu.flop_per_s, 1e9))


def replay(step: CapturedStep) -> IterationTrace:
    server = replace(SERVER, gpu=FAST, topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(step), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    (result,) = simulator.run(PyTorch(), simulator.oracle())
    check_plan(result.trace.plan)
    return result.trace


@pytest.fixture(scope="module")
def trace() -> IterationTrace:
    return replay(sharded())


def ends(trace: IterationTrace, stream: Stream) -> list[float]:
    return [round(span.end_s, 3) for span in trace.spans_on(stream)]


def test_collectives_run_beside_kernels_and_wait_for_their_data_alone(trace: IterationTrace) -> None:
    """Each rank sends 8 of 16 B, in 0.8 s, and some microseconds of NCCL.

    The communication stream copies in (1.0), gathers (1.8), and does so for fc2 at once (2.8, 3.6). Copy-out and
    product follow the first gather (2.8, 3.8), those of fc2 at once (4.8, 5.8), for the second gather has ended.
    Backward of fc2 (ones 6.8, product 7.8, copy 8.8) is reduced (9.6) beside that of fc1 (9.8), whose own copy (10.8)
    is reduced by 11.6; then the update.
    """
    assert ends(trace, Stream.COMMUNICATION) == pytest.approx([1.0, 1.8, 2.8, 3.6, 9.6, 11.6], abs=1e-3)
    assert ends(trace, Stream.COMPUTE) == pytest.approx([2.8, 3.8, 4.8, 5.8, 6.8, 7.8, 8.8, 9.8, 10.8, 12.6], abs=1e-3)


class HalfAsFast(AdjustedCosts):
    """Costs of which all kernels take twice as long on fewer multiprocessors."""

    def on_multiprocessors(self, count: int) -> CostModel:
        assert count == 2, "four, without a block for each of two channels"
        return AdjustedCosts(self, lambda *kernel: tuple(each.retimed(lambda s: 2 * s) for each in kernel[-1]))


def test_kernels_beside_a_collective_have_the_multiprocessors_that_it_leaves() -> None:
    """Kernels take twice as long while one runs.

    The product of fc1 (2.8) is beside the second gather until 3.6, then 0.4 of it are done: it ends at 4.2. Of fc2
    copy-out, product, ones, the product of backward and the copy end at 9.2. Beside its reduction until 10.0 the
    product of fc1 does as much: it ends at 10.6, the copy at 11.6, the second reduction at 12.4, the update at 13.4.
    Copies on the communication stream are beside none.
    """
    server = replace(SERVER, gpu=replace(FAST, multiprocessors=4), topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(sharded()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    simulator = replace(simulator, cost_model=HalfAsFast(simulator.cost_model, lambda *kernel: kernel[-1]))

    (result,) = simulator.run(PyTorch(), simulator.oracle())

    assert ends(result.trace, Stream.COMMUNICATION) == pytest.approx([1.0, 1.8, 2.8, 3.6, 10.0, 12.4], abs=1e-3)
    kernels = [2.8, 4.2, 5.2, 6.2, 7.2, 8.2, 9.2, 10.6, 11.6, 13.4]
    assert ends(result.trace, Stream.COMPUTE) == pytest.approx(kernels, abs=1e-3)


def test_what_kernels_wait_for_is_exposed_communication(trace: IterationTrace) -> None:
    """The first gather, 1.8 s, and the last reduction, 0.8 s."""
    stalls = [(each.cause, round(each.end_s - each.start_s, 2)) for each in trace.stalls]

    assert stalls == [(StallCause.COMMUNICATION, 1.8), (StallCause.COMMUNICATION, 0.8)]
    kinds = [trace.plan.operations[each.waited_for or 0] for each in trace.stalls]
    assert [each.collective and each.collective.nbytes for each in kinds if isinstance(each, Communicate)] == [16, 16]


def test_memory_is_of_the_stream_that_first_uses_it(trace: IterationTrace) -> None:
    """Gathered weights and reduced gradients; a shard is given, and what is to be reduced is of the compute stream."""
    plan = trace.plan
    of_communication = [
        plan.buffers[each.buffer].name
        for each in plan.operations
        if isinstance(each, Allocate | Release) and each.stream is Stream.COMMUNICATION
    ]

    assert of_communication.count("gathered") == 4
    assert set(of_communication) == {"gathered", "fc1.weight.grad", "fc2.weight.grad"}


def test_memory_changes_in_the_order_of_the_plan(trace: IterationTrace) -> None:
    """The most is live in backward of fc1: 68 B.

    Shards take 16 B, input, loss and its gradient 4 B each, the gradient of fc1 16 B, that of fc2 which is being
    reduced 16 B, and its sum for the shard 8 B.
    """
    times = [each.time_s for each in trace.memory]
    positions = [each.operation for each in trace.memory]

    assert times == sorted(times)
    assert positions == sorted(positions)
    assert trace.pool_bytes == 68


def test_a_collective_on_the_compute_stream_holds_it() -> None:
    """Without a stream of their own 12 kernels of 1 s and 4 collectives of 0.8 s run one after the other."""
    step = sharded()
    operations = (msgspec.structs.replace(each, aside=False) for each in step.operations)

    trace = replay(msgspec.structs.replace(step, operations=tuple(operations)))

    assert not trace.spans_on(Stream.COMMUNICATION)
    assert trace.iteration_s == pytest.approx(12 * 1.0 + 4 * 0.8, abs=1e-3)
    assert dict(stall_seconds(trace)) == {StallCause.COMMUNICATION: pytest.approx(4 * 0.8, abs=1e-3)}


def test_a_late_host_delays_a_collective_on_the_compute_stream() -> None:
    """The host needs 10 s for the first operation and each other; the collective waits for it, as a kernel would."""
    step = sharded()
    operations = (msgspec.structs.replace(each, aside=False) for each in step.operations)
    slow = replace(SERVER, gpu=FAST, topology=PEERED, host=replace(SERVER.host, issue_s=10.0))
    workload = CapturedWorkload.of(msgspec.structs.replace(step, operations=tuple(operations)))
    simulator = Simulator.of(workload, slow, MemoryModel.IDEAL, PinnedMemory.ARENA)

    (result,) = simulator.run(PyTorch(), simulator.oracle())

    first, second, *_ = result.trace.spans_on(Stream.COMPUTE)
    assert (first.start_s, second.start_s) == (10.0, 20.0)
    stall = result.trace.stalls[1]
    assert stall.cause is StallCause.HOST
    assert (round(stall.start_s, 3), stall.end_s) == (11.0, 20.0)


def test_a_rank_of_a_server_stands_for_the_others() -> None:
    """Both ranks have half of the host's memory, and copies that are planned share the uplink of their switch.

    As one of two ranks, or as one that is not said to be one, its collectives take as long.
    """
    server = replace(SERVER, gpu=FAST, topology=PEERED)
    simulators = [
        Simulator.of(CapturedWorkload.of(step), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
        for step in (sharded(), msgspec.structs.replace(sharded(), ranks=2))
    ]
    one, of_two = simulators
    assert of_two.limits.host_bytes == one.limits.host_bytes // 2
    copies = [each.setting().copies.seconds(Direction.D2H, 10) for each in simulators]
    assert copies == [1.0, 2.0]
    assert replay(sharded()).spans == replay(msgspec.structs.replace(sharded(), ranks=2)).spans


def test_shards_on_the_host_cross_a_shared_uplink_and_its_memory_bounds_their_update() -> None:
    """Two ranks copy 8 B each over 10 B/s, in 1.6 s, multiply by 2.6, make a gradient by 4.6, and copy it by 6.2.

    The update moves 36 B each, of 36 B/s for both, and is done at 8.2. At most 20 B are on the GPU, in backward: input,
    output, its gradient, 4 B each, and the gradient of the weight.
    """
    check_captured_step(offloading(), "offloading")

    trace = replay(offloading())

    assert ends(trace, Stream.FROM_HOST) == [1.6]
    assert ends(trace, Stream.COMPUTE) == [2.6, 3.6, 4.6]
    assert ends(trace, Stream.TO_HOST) == [6.2, 8.2]
    waits = {StallCause.PREFETCH: 1.6, StallCause.ON_HOST: 8.2 - 4.6}
    assert dict(stall_seconds(trace)) == pytest.approx(waits)
    assert (trace.pool_bytes, trace.host_bytes) == (20, 16)
    metrics = measure(trace, 1)
    assert metrics.iteration_s == pytest.approx(8.2)
    assert metrics.prefetched_bytes == metrics.offloaded_bytes == 8
    bars = {each.look.meaning for each in trace_bars(trace, dict.fromkeys((*Stream, None), 0.0))}
    stalls = {f"stall: {each.value}" for each in waits}
    assert bars == {"forward", "backward", "update", "prefetch", "offload", *stalls}
    words = [describe(each, trace.plan.buffer_names, trace.plan.layers) for each in trace.plan.operations]
    assert "from_host in forward of fc1" in words


def test_speed_is_compared_with_the_loop_where_base_waits_for_copies_to_the_host() -> None:
    """The loop takes the 8.2 s that nothing can undercut, so it has all of the speed with unlimited memory."""
    server = replace(SERVER, gpu=FAST, topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(offloading()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    (result,) = simulator.run(PyTorch(), simulator.oracle())
    assert simulator.oracle().iteration_s == pytest.approx(8.2)
    assert result.performance_ratio == 1.0


def test_the_planner_finds_a_plan_beside_shards_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as keeping all, 8.2 s, though the bound leaves out the host: no other plan is tried."""

    def tried(policy: Policy, _: Setting) -> TrainingPlan:
        pytest.fail(f"{policy.label} was planned")

    monkeypatch.setattr(optimal, "make_plan", tried)
    server = replace(SERVER, gpu=FAST, topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(offloading()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    (result,) = simulator.run(Optimal(), simulator.oracle())
    assert result.metrics.iteration_s == pytest.approx(8.2)


def test_the_host_adds_up_no_gradients_of_micro_batches() -> None:
    with pytest.raises(
        ScenarioError, match="found 2 micro-batches with fsdp=2,offload=cpu, expected one, or sync=last"
    ):
        CapturedWorkload.of(msgspec.structs.replace(offloading(), parallel="fsdp=2,offload=cpu"), 2)


def test_what_is_on_the_host_is_used_by_no_kernel() -> None:
    step = offloading()
    on_host = (msgspec.structs.replace(each, on_host=number == 2) for number, each in enumerate(step.storages))
    with pytest.raises(ScenarioError, match=r"storages\[2\]\.on_host: found true"):
        check_captured_step(msgspec.structs.replace(step, storages=tuple(on_host)), "offloading")


def test_stages_of_a_pipeline_wait_for_each_other() -> None:
    """What is sent takes 2 s. The first rank's forwards end at 1 and 2, their results arrive at 3 and 5.

    The second rank's forwards end at 4 and 6, its backwards at 5 and 7, their gradients arrive at 7 and 9; it adds up
    until 8 and updates until 9. Backward of the first ends at 8 and 10, its sum at 11, its update at 12.
    """
    first, last = map(CapturedWorkload.of, staged())
    server = replace(SERVER, gpu=FAST, topology=PEERED)
    workload = replace(first, pipeline=(first, last))
    simulator = Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA, gpus=2)

    traces = [each.trace for each in simulator.run(PyTorch(), simulator.oracle())]

    assert [ends(each, Stream.COMPUTE) for each in traces] == [
        pytest.approx([1, 2, 8, 10, 11, 12], abs=1e-3),
        pytest.approx([4, 5, 6, 7, 8, 9], abs=1e-3),
    ]
    assert [ends(each, Stream.SEND) for each in traces] == [pytest.approx(at, abs=1e-3) for at in ([3, 5], [7, 9])]
    assert [ends(each, Stream.RECEIVE) for each in traces] == [pytest.approx(at, abs=1e-3) for at in ([7, 9], [3, 5])]
    assert [dict(stall_seconds(each)) for each in traces] == [
        {StallCause.PIPELINE: pytest.approx(6, abs=1e-2)},
        {StallCause.PIPELINE: pytest.approx(3, abs=1e-2)},
    ]
    assert first.phases(first.graph.layers[0]) == (Phase.FORWARD, Phase.BACKWARD)


def test_a_pipeline_is_replayed_as_it_was_captured() -> None:
    first, last = map(CapturedWorkload.of, staged())
    workload = replace(first, pipeline=(first, last))
    simulator = Simulator.of(workload, SERVER, MemoryModel.IDEAL, PinnedMemory.ARENA)

    with pytest.raises(PolicyError, match="expected pytorch"):
        simulator.planned(Resident())


def test_memory_of_the_communication_stream_may_change_under_its_collectives(trace: IterationTrace) -> None:
    """They run in the order of that stream; memory of the compute stream may not."""
    operations = trace.plan.operations
    at, gather = next((at, each) for at, each in enumerate(operations) if isinstance(each, Communicate))
    releases = {each.stream: at for at, each in enumerate(operations) if isinstance(each, Release)}
    recorder = Recorder(trace.plan)
    recorder.communication_starts(at, gather, 0.0)

    def change(stream: Stream) -> None:
        recorder.memory_change(PlacedChange(releases[stream], gather.writes[0], -16, None), 0.0)

    change(Stream.COMMUNICATION)
    with pytest.raises(AssertionError, match="changes under a copy"):
        change(Stream.COMPUTE)
