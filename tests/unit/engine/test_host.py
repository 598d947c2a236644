"""Host time of a plan, run eagerly, as one CUDA graph, or compiled."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from tests.captured_steps import chain
from tests.toy import TOY_SERVER, placement_of, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.engine.host import Execution, check_execution, issue_seconds
from vdnnsim.engine.simulate import simulate
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Host, Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.operations import Allocate, Compute, HostSynchronize, Offload, Prefetch, RecordEvent, WaitEvent
from vdnnsim.plans.repetition import leading_operations
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.vdnn import VdnnAll

WORKLOAD = toy_workload(toy_chain(1))
COSTS = toy_costs(WORKLOAD, {})
HOST = Host(1000, issue_s=1.0, pin_latency_s=0.0, pin_bytes_per_s=1.0, dispatch_forward_s=10, dispatch_backward_s=100)
SLOW = replace(TOY_SERVER, host=HOST)


def replayed(
    plan: TrainingPlan, execution: Execution, costs: CostModel = COSTS, server: Server = SLOW
) -> IterationTrace:
    placement = placement_of(plan)
    return simulate(plan, costs, server, placement, PinnedMemory.ARENA, execution)


def test_executions_issue_their_calls() -> None:
    """Forward of conv1 and fc: 11 s each; of the loss, two operators, 21. Backward of fc and of conv1: 101 s each.

    Backward of the loss is three operators, 301 s. fc has a second kernel in backward, for the same operator of
    forward, which costs its call alone: 43 + 503 + 1. The last kernel, of 1 s, begins when it is issued.
    """
    trace = replayed(Base().plan(toy_setting(WORKLOAD, COSTS)), Execution.EAGER)
    assert trace.host_issue_s == 547
    assert trace.iteration_s == 548
    # Forward of conv1 and the gradient of its weights are a call each, of 1000 s beside the 547 s above.
    server = replace(TOY_SERVER, host=replace(HOST, dispatch_library_s=1000))
    assert replayed(Base().plan(toy_setting(WORKLOAD, COSTS)), Execution.EAGER, server=server).host_issue_s == 2547
    # After 1 s all 7 kernels of 1 s are there.
    trace = replayed(Base().plan(toy_setting(WORKLOAD, COSTS)), Execution.CUDA_GRAPHS)
    assert trace.host_issue_s == 1
    assert trace.iteration_s == 8
    # Forward of fc is part of another kernel and takes no time: 6 calls of 3 s, and the last kernel runs for 1 s.
    costs = toy_costs(WORKLOAD, {("fc", Phase.FORWARD): 0.0})
    server = replace(TOY_SERVER, host=replace(HOST, issue_s=3.0))
    trace = replayed(Base().plan(toy_setting(WORKLOAD, costs)), Execution.COMPILED, costs, server)
    assert trace.host_issue_s == 18
    assert trace.iteration_s == 19


def test_updates_are_one_call_and_sums_of_gradients_none() -> None:
    """Forward dispatches fc1, fc2, the addition and, twice, the loss, the update once for both layers: 6 x 1000 s.

    Backward dispatches the loss, thrice, fc2 and fc1, not the addition, which sums gradients: 5 x 100,000 s.
    """
    net = GraphBuilder("toy", MapShape(4))
    first = net.fc("fc1", 0, 4, relu=False)
    second = net.fc("fc2", first, 4, relu=False)
    workload = Workload(net.build(net.add("sum", first, second, relu=False)), 1, optimizer=Optimizer.SGD)
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    host = Host(1000, 0.0, 0.0, 1.0, dispatch_forward_s=1e3, dispatch_backward_s=1e5)

    assert sum(issue_seconds(plan, host, Execution.EAGER, {}).values()) == 506_000


def with_work(work: ConvolutionWork | None, name: str = "convolution") -> CapturedWorkload:
    """The chain, whose first operator is another."""
    step = chain()
    first = msgspec.structs.replace(step.operations[0], work=work, name=f"aten.{name}.default")
    return CapturedWorkload.of(msgspec.structs.replace(step, operations=(first, *step.operations[1:])))


@pytest.mark.parametrize(
    ("change", "calls"),
    [({}, 1), ({"groups": 8, "input_channels": 8}, 0), ({"computes": ("input", "weight")}, 2), (None, 0)],
)
def test_captured_convolutions_call_cudnn(change: dict[str, Any] | None, calls: int) -> None:
    """One gradient is a call; a depthwise convolution is PyTorch's own. The chain's other convolution is one call."""
    work = chain().operations[0].work
    assert isinstance(work, ConvolutionWork)
    workload = with_work(None if change is None else msgspec.structs.replace(work, **change))
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    host = Host(1000, issue_s=0.0, pin_latency_s=0.0, pin_bytes_per_s=1.0, dispatch_library_s=1.0)

    assert sum(issue_seconds(plan, host, Execution.EAGER, {}).values()) == calls + 1


def test_captured_operators_of_cudnn_call_it() -> None:
    workload = with_work(None, "cudnn_batch_norm")
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    host = Host(1000, issue_s=0.0, pin_latency_s=0.0, pin_bytes_per_s=1.0, dispatch_library_s=1.0)

    assert sum(issue_seconds(plan, host, Execution.EAGER, {}).values()) == 2


def test_copies_and_events_are_one_call_each() -> None:
    """vDNN_all copies one map out and back; each of its 2 copies, and of its events and waits, is a call of 1 s."""
    plan = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))
    seconds = issue_seconds(plan, HOST, Execution.EAGER, {})

    others = [seconds[at] for at in seconds if not isinstance(plan.operations[at], Compute)]
    assert len(others) > 2
    assert set(others) == {1.0}


def test_a_calibrated_host_takes_what_was_measured_of_each() -> None:
    """vDNN_all: a kernel of a measured 7 s, others of 1, copies of 20, events and waits of 300, allocations of 4000.

    What is allocated before the first kernel takes none of the iteration's time.
    """
    plan = VdnnAll().plan(toy_setting(WORKLOAD, COSTS))
    host = Host(1000, 1.0, 0.0, 1.0, issue_copy_s=20.0, issue_event_s=300.0, allocation_s=4000.0)
    first = next(at for at, each in enumerate(plan.operations) if isinstance(each, Compute))

    seconds = issue_seconds(plan, host, Execution.EAGER, {}, {first: 7.0})

    begun = leading_operations(plan)
    by_type = {Compute: 1.0, Offload: 20.0, Prefetch: 20.0, RecordEvent: 300.0, WaitEvent: 300.0, Allocate: 4000.0}
    for at, each in enumerate(plan.operations):
        expected = 7.0 if at == first else by_type.get(type(each), 0.0) if at >= begun else 0.0
        assert seconds.get(at, 0.0) == expected
    assert sum(isinstance(each, Allocate) for each in plan.operations[begun:]) > 2
    # A CUDA graph is one call, which allocates nothing.
    assert sum(issue_seconds(plan, host, Execution.CUDA_GRAPHS, {}, {first: 7.0}).values()) == 1


def test_captured_backward_is_dispatched_once_for_each_operator_of_forward() -> None:
    """Of `chain`: forward is 8 operators, 88 s; its update is one, 11 s.

    Backward is 9 operators: of the loss's first gradient, which is of no forward, and of 7 operators of forward, for
    one of which, the fc, two products run: 8 x 101 + 1.
    """
    workload = CapturedWorkload.of(chain())
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))

    seconds = issue_seconds(plan, HOST, Execution.EAGER, {})

    assert sum(seconds.values()) == 88 + 11 + 808 + 1


@pytest.mark.parametrize(
    ("plan", "execution", "pinned", "why"),
    [
        (
            VdnnAll().plan(toy_setting(WORKLOAD, COSTS)),
            Execution.CUDA_GRAPHS,
            PinnedMemory.ARENA,
            "its host waits for the GPU within the iteration",
        ),
        (
            replace(
                (waiting := VdnnAll().plan(toy_setting(WORKLOAD, COSTS))),
                operations=tuple(each for each in waiting.operations if not isinstance(each, HostSynchronize)),
            ),
            Execution.CUDA_GRAPHS,
            PinnedMemory.PER_OFFLOAD,
            "its host pins memory within the iteration",
        ),
        (
            Checkpoint().plan(toy_setting(deep := toy_workload(toy_chain(4)), toy_costs(deep, {}))),
            Execution.COMPILED,
            PinnedMemory.ARENA,
            "it recomputes operators",
        ),
    ],
)
def test_plans_that_an_execution_cannot_run_are_refused(
    plan: TrainingPlan, execution: Execution, pinned: PinnedMemory, why: str
) -> None:
    check_execution(plan, Execution.EAGER, pinned)
    with pytest.raises(PolicyError, match=f"execution: found '{execution.value}', but {why}.*; expected 'eager'$"):
        check_execution(plan, execution, pinned)


@pytest.mark.parametrize("execution", list(Execution))
def test_a_plan_without_waits_and_recomputation_runs_in_any_execution(execution: Execution) -> None:
    check_execution(Base().plan(toy_setting(WORKLOAD, COSTS)), execution, PinnedMemory.PER_OFFLOAD)
