"""Scenarios that are run: on one GPU, on the two toy GPUs of `tests.two_gpus`, on the P100s of a shipped profile."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.toy import TOY_LIMITS, toy_setting
from tests.two_gpus import COSTS, SERVER, WORKLOAD
from tests.unit.plans.hand_written import script
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import PlanError, PolicyError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Aggregation, Allocate, AllReduce, Compute, Release
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.swap import StaggeredSwap
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

SCENARIOS = Path(__file__).parents[3] / "scenarios"

DEEP = {"densenet121", "p3d_resnet199", "vgg316", "vgg416"}
"""Networks of hundreds of layers, which have nothing but more of what others have."""


def results(name: str, *labels: str) -> dict[str, PolicyResult]:
    scenario = read_scenario(SCENARIOS / f"{name}.yaml")
    policies = tuple(each for each in scenario.policies if each.label in labels)
    result = run_scenario(replace(scenario, policies=policies))
    return {each.policy: each for each in result.results}


def test_a_row_that_does_not_fit_is_replayed_without_a_capacity() -> None:
    """base(p) of VGG-16 (256) is the oracular baseline itself: ratio 1, with a refusal."""
    rows = results("vgg16_256", "base(p)")
    assert rows["base(p)"].refusal is not None
    assert rows["base(p)"].performance_ratio == 1
    assert rows["base(p)"].metrics.allocated_bytes > 12 * GIB


def test_passes_and_pinning_cost_time() -> None:
    """AlexNet fits as a whole, so two passes run: one iteration of vdnn_all(m), then one of base(p), which is taken."""
    rows = results("alexnet", "base(p)", "vdnn_all(m)", "vdnn_dyn")
    assert [each.cost_s for each in rows["vdnn_dyn"].trace.plan.passes] == [
        rows["vdnn_all(m)"].metrics.iteration_s,
        rows["base(p)"].metrics.iteration_s,
    ]
    # With 0.7 GiB AlexNet (128) under all(m) runs a part of its iteration.
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    small = replace(scenario.server, gpu=replace(scenario.server.gpu, memory_bytes=int(0.7 * GIB)))
    result = run_scenario(replace(scenario, server=small, policies=(VdnnDyn(),))).results[0]
    (only,) = result.trace.plan.passes
    assert not only.fits
    assert 0 < only.cost_s < result.metrics.iteration_s
    # The paper's text has cudaMallocHost at every offload: dearer than an arena pinned once.
    scenario = replace(read_scenario(SCENARIOS / "alexnet.yaml"), policies=(VdnnAll(),))
    arena = run_scenario(scenario).results[0].metrics
    per_offload = run_scenario(replace(scenario, pinned_memory=PinnedMemory.PER_OFFLOAD)).results[0].metrics
    assert per_offload.iteration_s > arena.iteration_s
    assert {cause for cause, _ in per_offload.stall_by_cause} >= {StallCause.PINNING}


@pytest.mark.parametrize("model", MemoryModel)
def test_memory_models_differ_in_gaps_alone(model: MemoryModel) -> None:
    """Bytes in use are the same under every model; the pool is at least as large.

    PyTorch's allocator counts remainders of blocks, at most 1 MiB each. TensorFlow's counts chunks that it does not
    split, less than twice the request. Mapped memory has pages of 2 MiB.
    """
    scenario = replace(read_scenario(SCENARIOS / "alexnet.yaml"), memory_model=model, policies=(VdnnAll(),))
    ideal = run_scenario(replace(scenario, memory_model=MemoryModel.IDEAL)).results[0].metrics

    result = run_scenario(scenario).results[0]
    metrics, buffers = result.metrics, len(result.trace.plan.buffers)

    slack_of = {
        MemoryModel.PYTORCH: 2**20 * buffers,
        MemoryModel.TENSORFLOW: ideal.allocated_bytes,
        MemoryModel.CUDA_VMM: 2**21 * buffers,
    }
    assert 0 <= metrics.allocated_bytes - ideal.allocated_bytes <= slack_of.get(model, 0)
    assert metrics.reserved_bytes >= ideal.reserved_bytes


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.thorough) if each in DEEP else each for each in sorted(NETWORKS)]
)
def test_every_network_runs_in_every_mode(name: str) -> None:
    """Training with and without an update, and inference; the update and backward each add time."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    graph = build_network(name)
    policies = (VdnnConv(), VdnnDyn())

    seconds = []
    training = Mode.TRAINING
    for mode, optimizer in ((Mode.INFERENCE, Optimizer.NONE), (training, Optimizer.NONE), (training, Optimizer.ADAM)):
        workload = Workload(graph, batch_size=2, mode=mode, optimizer=optimizer)
        result = run_scenario(replace(scenario, workload=workload, policies=policies))
        seconds.append(result.results[0].metrics.iteration_s)

    assert seconds == sorted(seconds)


ALONE = Base().plan(toy_setting(WORKLOAD, COSTS))


class Given(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "given"
    summary: ClassVar[str] = "plans of a test"

    made: tuple[object, ...] = ()

    def plan(self, setting: Setting) -> TrainingPlan:
        return self.plans(setting)[0]

    def plans(self, _setting: Setting) -> tuple[TrainingPlan, ...]:
        return tuple(each for each in self.made if isinstance(each, TrainingPlan))


def simulator(limits: MemoryLimits = TOY_LIMITS, gradients: Aggregation | None = Aggregation.RING) -> Simulator:
    return Simulator(WORKLOAD, SERVER, COSTS, limits, PinnedMemory.ARENA, gpus=2, gradients=gradients)


def overflowing(plan: TrainingPlan, before: type) -> TrainingPlan:
    """Return a plan that allocates 5000 B before its last operation of a kind, and frees them at once."""
    buffer = len(plan.buffers)
    ops = list(plan.operations)
    place = max(i for i, each in enumerate(ops) if isinstance(each, before))
    first = next(each for each in ops if isinstance(each, Compute))
    ops[place:place] = [Allocate(buffer, first.layer, first.phase), Release(buffer)]
    huge = Buffer("huge", BufferKind.WORKSPACE, 5000, Stage.FEATURES)
    return replace(plan, buffers=(*plan.buffers, huge), operations=tuple(ops))


def test_every_gpu_has_a_row() -> None:
    """By `test_simulate_server` the exchanges around a ring end at 19.2 on both GPUs."""
    oracle = simulator().oracle()
    rows = simulator().run(Base(), oracle)
    assert [(row.gpu, row.fits, row.performance_ratio) for row in rows] == [(0, True, 1.0), (1, True, 1.0)]
    assert rows[0].metrics.iteration_s == pytest.approx(19.2)
    assert rows[0].server_trace is rows[1].server_trace
    assert rows[1].server_trace is not None
    assert rows[1].server_trace.gpus[1] is rows[1].trace


def test_without_gradients_to_add_up_nothing_is_exchanged() -> None:
    """Seven kernels of 1 s."""
    (row, _) = simulator(gradients=None).run(Base(), simulator().oracle())
    assert row.metrics.iteration_s == 7.0
    assert not any(isinstance(each, AllReduce) for each in row.trace.plan.operations)


def test_a_policy_knows_its_gpus_and_their_groups() -> None:
    setting = simulator().setting()
    assert (setting.gpus, setting.groups) == (2, ((0, 1),))
    assert replace(simulator(), gpus=1, gradients=None).setting().groups == ((0,),)


def test_one_gpu_without_room_keeps_all_from_training() -> None:
    """GPU 1 asks for 5000 B of 1000. GPU 0 fits and has the same refusal; both are replayed in unlimited memory."""
    policy = Given(made=(ALONE, overflowing(ALONE, Compute)))
    rows = simulator().run(policy, simulator().oracle())
    assert [(row.fits, row.is_short) for row in rows] == [(False, False), (False, True)]
    assert rows[0].refusal is rows[1].refusal
    assert rows[1].metrics.allocated_bytes > 5000
    assert rows[0].metrics.iteration_s == pytest.approx(19.2)


def test_a_failed_trial_costs_the_part_before_memory_ran_out() -> None:
    """GPU 1 has no memory for its last kernel, the weight gradient of conv1, and has exchanged that of fc by 8.2.

    GPU 0 exchanges that as well, and would wait for that of conv1 for ever.
    """
    alone = simulator().run_trial(ALONE)
    assert isinstance(alone.outcome, IterationTrace)
    assert alone.cost_s == pytest.approx(19.2), "on every GPU"
    trials = simulator().run_server_trial((ALONE, overflowing(ALONE, Compute)))
    assert [trial.fits for trial in trials] == [False, False]
    assert [trial.cost_s for trial in trials] == pytest.approx([8.2, 8.2])
    assert isinstance(trials[0].outcome, DoesNotFit)
    assert trials[0].outcome is trials[1].outcome


@pytest.mark.parametrize("count", [1, 3])
def test_a_policy_that_plans_for_another_number_of_gpus_is_refused(count: int) -> None:
    with pytest.raises(PolicyError, match=f"plans: found {count} plans, expected 2, one for each GPU$"):
        simulator().run(Given(made=(ALONE,) * count), simulator().oracle())


@pytest.mark.parametrize("gradients", [Aggregation.RING, Aggregation.DDP])
def test_plans_that_exchange_in_different_orders_are_refused(gradients: Aggregation) -> None:
    """On GPU 1 the last kernel, which writes dW of conv1, comes before that of fc; the policy is not one of ours."""
    ops = list(ALONE.operations)
    kernels = [i for i, each in enumerate(ops) if isinstance(each, Compute)]
    ops.insert(kernels[-2], ops.pop(kernels[-1]))
    other = replace(ALONE, operations=tuple(ops))
    asked = simulator(gradients=gradients)
    with pytest.raises(PolicyError, match="GPU 1 writes its weight gradients in another order than GPU 0"):
        asked.run(Given(made=(ALONE, other)), asked.oracle())


def in_order(*gradients: str) -> TrainingPlan:
    """Return a plan whose kernels, all of conv1, write gradients in an order."""
    statements = [f"{verb} {each} @0W" for verb in ("take", "write", "free") for each in gradients]
    return script("; ".join(statements), WORKLOAD)


def test_buckets_with_other_contents_are_refused() -> None:
    """Both GPUs have one bucket, which conv1 completes."""
    asked = simulator(gradients=Aggregation.DDP)
    assert len(asked.ready((in_order("dW0", "dW1"), in_order("dW0", "dW1")), "given")) == 2
    with pytest.raises(PlanError, match=r"^given: GPU 1 writes its weight gradients in another order than GPU 0"):
        asked.ready((in_order("dW0", "dW1"), in_order("dW1", "dW0")), "given")


def test_buckets_reduce_the_limits_of_a_policy() -> None:
    """A second copy of 60 B and 12 B of gradients; there is nothing less than no memory."""
    assert simulator().setting().limits is TOY_LIMITS
    assert simulator(gradients=Aggregation.DDP).setting().limits == replace(TOY_LIMITS, device_bytes=1000 - 72)
    scarce = simulator(replace(TOY_LIMITS, device_bytes=71), Aggregation.DDP)
    assert scarce.setting().limits.device_bytes == 0


def test_buckets_need_memory() -> None:
    """Without them base takes 72 B of W and as much of dW, maps of 10, 10, 2 and 2 B, and two gradients of 10 B."""
    for device_bytes, fits in ((188 + 72, True), (188 + 71, False)):
        asked = simulator(replace(TOY_LIMITS, device_bytes=device_bytes), Aggregation.DDP)
        assert asked.run_trial(ALONE).fits is fits


def test_host_memory_is_shared_out() -> None:
    scenario = read_scenario(SCENARIOS / "swap2018_2gpus.yaml")
    both = Simulator.of(scenario.workload, scenario.server, scenario.memory_model, scenario.pinned_memory, gpus=2)
    assert both.limits.host_bytes == scenario.server.host.memory_bytes // 2
    assert both.limits.device_bytes == scenario.server.gpu.memory_bytes


@pytest.mark.parametrize("gradients", Aggregation)
def test_every_policy_runs_on_several_gpus(gradients: Aggregation) -> None:
    """Two GPUs with 0.6 GiB each: vdnn_dyn runs trials of both, and pages move; equal plans take equally long."""
    scenario = read_scenario(SCENARIOS / "swap2018_2gpus.yaml")
    small = replace(scenario.server, gpu=replace(scenario.server.gpu, memory_bytes=600 * 2**20))
    policies: Sequence[Policy] = (Base(), VdnnAll(), VdnnDyn(), PageMigration(), StaggeredSwap())
    result = run_scenario(
        replace(
            scenario,
            workload=replace(scenario.workload, graph=build_network("alexnet"), batch_size=64),
            server=small,
            policies=tuple(policies),
            gradients=gradients,
        )
    )

    assert [(row.policy, row.gpu) for row in result.results] == [(p.label, gpu) for p in policies for gpu in range(2)]
    assert [[row.gpu for row in rows] for rows in result.by_policy] == [[0, 1]] * len(policies)
    dyn, paging = result.by_policy[2], result.by_policy[3]
    assert dyn[0].trace.plan.passes
    assert paging[0].metrics.prefetched_bytes > 0
    assert paging[0].metrics.iteration_s == pytest.approx(paging[1].metrics.iteration_s, rel=1e-3)
    for rows, slowest in zip(result.by_policy, result.slowest, strict=True):
        assert slowest.metrics.iteration_s == max(row.metrics.iteration_s for row in rows)
