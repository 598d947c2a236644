"""A result of three policies, worked out by hand.

One image of a network of two layers, conv1 (feature extraction) and fc, on a GPU with 1000 B. Buffers: the input map x
(10 B, feature extraction), W of fc (20 B), a workspace of conv1's weight gradient.

`move(m)`, workspace of 30 B:

    time  compute stream         memory stream   in use
    0-1   conv1 forward          offload x       x, W = 30 B
    1-3   waits for the offload  offload x       30 B
    3-4   fc forward                             W = 20 B
    4-5   fc backward weights                    20 B
    5-7   waits for the fetch    x on demand     x, W = 30 B
    7-8   conv1 backward weights                 x, W, workspace = 60 B

Iteration 8 s, 1/8 image/s. Maximum 60 B at 7 s. Mean (3 x 30 + 2 x 20 + 2 x 30 + 60) / 8 = 250 / 8 = 31.25 B. Feature
extraction: x and the workspace, at most 40 B; a step of conv1 forward has 10 B and one backward 40 B, 25 B in the
mean; kernels of 2 s and stalls of 4 s, 6 s. Stalls 2 s for the offload and 2 s on demand.

`keep(p)`, workspace of 990 B, does not fit: it finds 970 B free. With unlimited memory it holds 10 + 20 + 990 = 1020 B:
conv1 forward 0-2, fc forward 2-3, fc backward weights 3-4, conv1 backward weights 4-6.

`dyn` is `move(m)` after two passes, of 8 s and 2 s.

The oracular baseline is what `keep(p)` does: 6 s in all, 4 s of feature extraction. So `move(m)` has 6/8 of its speed,
and 4/6 in feature extraction.
"""

from dataclasses import replace

import pytest

from tests.nested import changed
from tests.overlaps import refuse_overlaps
from tests.toy import TOY_LIMITS, TOY_SERVER, touching, toy_chain, toy_workload
from tests.two_gpus import COSTS, SERVER, WORKLOAD
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.hardware.server import Figure, Origin
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import Aggregation, Allocate, Compute, Offload, Prefetch, Release, Stream
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, MemoryChange, Span, Stall, StallCause
from vdnnsim.plans.training_plan import Buffer, BufferKind, ProfilingPass, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.scenario.simulator import Simulator

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
X_BUFFER = Buffer("map input", BufferKind.FEATURE_MAP, 10, Stage.FEATURES, given=True)
W_BUFFER = Buffer("W fc", BufferKind.WEIGHTS, 20, Stage.CLASSIFIER, given=True)


def plan(policy: str, workspace_bytes: int, *operations: object) -> TrainingPlan:
    workspace = Buffer("workspace", BufferKind.WORKSPACE, workspace_bytes, Stage.FEATURES)
    return TrainingPlan(
        workload=toy_workload(toy_chain(1)),
        policy=policy,
        algorithms=policy.partition("(")[2].rstrip(")"),
        buffers=(X_BUFFER, W_BUFFER, workspace),
        operations=operations,  # type: ignore[arg-type]  # each is one, as the calls below show
    )


def move_trace() -> IterationTrace:
    operations = (
        Allocate(0, 0, F),
        Allocate(1, 1, F),
        Compute(0, F, "gemm", touching(reads=(0,))),
        Offload(0, 0),
        Release(0),
        Compute(1, F, "only", touching(reads=(1,))),
        Compute(1, W, "only", touching(reads=(1,))),
        Allocate(0, 0, W),
        Prefetch(0, 0, on_demand=True),
        Allocate(2, 0, W),
        Compute(0, W, "fft", touching(reads=(0,), writes=(2,))),
        Release(2),
        Release(0),
        Release(1),
    )
    kernels = ((2, 0.0, 1.0), (5, 3.0, 4.0), (6, 4.0, 5.0), (10, 7.0, 8.0))
    copies = ((3, 0.0, 3.0), (8, 5.0, 7.0))
    changes = ((0.0, 0, 0, 10), (0.0, 1, 1, 20), (3.0, 4, 0, -10), (5.0, 7, 0, 10), (7.0, 9, 2, 30))
    ends = ((8.0, 11, 2, -30), (8.0, 12, 0, -10), (8.0, 13, 1, -20))
    return IterationTrace(
        plan=plan("move(m)", 30, *operations),
        iteration_s=8.0,
        spans=(
            *(Span(number, Stream.COMPUTE, 0.0, start_s, end_s) for number, start_s, end_s in kernels),
            *(Span(number, Stream.MEMORY, 0.0, start_s, end_s) for number, start_s, end_s in copies),
        ),
        stalls=(Stall(1.0, 3.0, StallCause.OFFLOAD, 5, 3), Stall(5.0, 7.0, StallCause.ON_DEMAND, 10, 8)),
        memory=tuple(MemoryChange(*change, offset=None) for change in (*changes, *ends)),
        pool_bytes=60,
        host_bytes=10,
        host_issue_s=0.5,
    )


def keep_trace() -> IterationTrace:
    operations = (
        Allocate(0, 0, F),
        Allocate(1, 1, F),
        Allocate(2, 0, W),
        Compute(0, F, "gemm", touching(reads=(0,))),
        Compute(1, F, "only", touching(reads=(1,))),
        Compute(1, W, "only", touching(reads=(1,))),
        Compute(0, W, "fft", touching(reads=(0,), writes=(2,))),
        Release(2),
        Release(0),
        Release(1),
    )
    kernels = ((3, 0.0, 2.0), (4, 2.0, 3.0), (5, 3.0, 4.0), (6, 4.0, 6.0))
    changes = ((0.0, 0, 0, 10), (0.0, 1, 1, 20), (0.0, 2, 2, 990))
    ends = ((6.0, 7, 2, -990), (6.0, 8, 0, -10), (6.0, 9, 1, -20))
    return IterationTrace(
        plan=plan("keep(p)", 990, *operations),
        iteration_s=6.0,
        spans=tuple(Span(number, Stream.COMPUTE, 0.0, start_s, end_s) for number, start_s, end_s in kernels),
        stalls=(),
        memory=tuple(MemoryChange(*change, offset=None) for change in (*changes, *ends)),
        pool_bytes=1020,
        host_bytes=0,
        host_issue_s=0.0,
    )


def policy_result(trace: IterationTrace, refusal: DoesNotFit | None = None) -> PolicyResult:
    plan, metrics = trace.plan, measure(trace, 1)
    ratios = 6.0 / metrics.iteration_s, 4.0 / metrics.feature_iteration_s
    return PolicyResult(plan.policy, plan.algorithms, 0, trace, refusal, metrics, *ratios)


@pytest.fixture
def move() -> PolicyResult:
    return policy_result(move_trace())


@pytest.fixture
def keep() -> PolicyResult:
    trace = keep_trace()
    held = ((BufferKind.WEIGHTS, 20), (BufferKind.FEATURE_MAP, 10))
    return policy_result(trace, DoesNotFit(trace.plan, Pool.DEVICE, 2, 2, 0, W, 990, 970, 970, 1000, held))


@pytest.fixture
def dyn() -> PolicyResult:
    passes = (ProfilingPass("all(m)", fits=True, cost_s=8.0), ProfilingPass("base(p)", fits=False, cost_s=2.0))
    return policy_result(changed(move_trace(), "plan", policy="dyn", algorithms="all(m)", passes=passes))


@pytest.fixture
def ahead(move: PolicyResult) -> PolicyResult:
    """`move(m)`, whose fetch is a prefetch."""
    planned = move.trace.plan.operations
    operations = (replace(each, on_demand=False) if isinstance(each, Prefetch) else each for each in planned)
    return changed(move, "trace.plan", operations=tuple(operations))


@pytest.fixture
def result(move: PolicyResult, keep: PolicyResult, dyn: PolicyResult) -> ScenarioResult:
    figures = (
        Figure("gpu.memory", "1000 B", Origin.DATASHEET, "the box"),
        Figure("host.issue", "0 s", Origin.ASSUMED, "it is a toy"),
        Figure("link.h2d", "1 B/s", Origin.ASSUMED, "it is a toy"),
    )
    return ScenarioResult(
        name="question",
        workload=toy_workload(toy_chain(1)),
        server=replace(TOY_SERVER, figures=figures),
        memory_model=MemoryModel.IDEAL,
        pinned_memory=PinnedMemory.ARENA,
        sources=(("scenarios/question.yaml", "ab12"), ("hw_profiles/toy.yaml", "cd34")),
        oracle=keep.metrics,
        algorithm_profiling_s=12.0,
        results=(move, keep, dyn),
    )


class Late(Base, frozen=True, kw_only=True):
    """Base, but GPU 1 runs its first kernel twice."""

    name = "late"

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        plan = self.plan(setting)
        first = next(i for i, operation in enumerate(plan.operations) if isinstance(operation, Compute))
        twice = (*plan.operations[: first + 1], *plan.operations[first:])
        return (plan, replace(plan, operations=twice))


@pytest.fixture
def pair() -> ScenarioResult:
    """Three policies on the two GPUs of `tests.two_gpus`, gradients around a ring.

    base(p): 7 kernels of 1 s; exchanges of 2.2 s from 6 on and of 11 s behind it, until 19.2. vdnn_all(p): both GPUs
    offload and prefetch 10 B over the uplink at the same times, in 2 s instead of 1, and all is 1 s later. late(p): GPU
    1 arrives at the first exchange at 7.
    """
    simulator = Simulator(WORKLOAD, SERVER, COSTS, TOY_LIMITS, PinnedMemory.ARENA, gpus=2, gradients=Aggregation.RING)
    oracle = simulator.oracle()
    return ScenarioResult(
        name="pair",
        workload=WORKLOAD,
        server=SERVER,
        memory_model=MemoryModel.IDEAL,
        pinned_memory=PinnedMemory.ARENA,
        sources=(),
        oracle=oracle,
        algorithm_profiling_s=12.0,
        results=tuple(row for policy in (Base(), VdnnAll(), Late()) for row in simulator.run(policy, oracle)),
        gpus=2,
        gradients=Aggregation.RING,
    )


@pytest.fixture(autouse=True)
def no_labels_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    refuse_overlaps(monkeypatch)
