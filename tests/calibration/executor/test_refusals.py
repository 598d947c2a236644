"""Refusals of the executor, by name and before it touches the device."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from calibration.executor.compiled_plan import refuse_impossible
from calibration.executor.executor import Executor
from tests.calibration.executor.bench import REFUSED, UNLIMITED, Bench, every_second_explicit
from tests.toy import toy_costs, toy_setting
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.plans.operations import (
    Aggregation,
    AllReduce,
    Communicate,
    Compute,
    HostSynchronize,
    Operation,
    RecordEvent,
    Stream,
)
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.units import Precision


def refusal(bench: Bench, plan: TrainingPlan, workload: Workload | None = None) -> str:
    with pytest.raises(ExecutionRefused) as refused:
        Executor(bench.device, workload or bench.workload(tiny_linear), bench.library).execute(plan, UNLIMITED)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.fixture
def plan(bench: Bench) -> TrainingPlan:
    """Of base for tiny_linear, which can be executed."""
    return bench.plan(bench.workload(tiny_linear), Base())


def first_kernel(plan: TrainingPlan, **changes: Any) -> TrainingPlan:  # noqa: ANN401
    """Return a plan whose first kernel is changed."""
    at, kernel = next((at, each) for at, each in enumerate(plan.operations) if isinstance(each, Compute))
    return replace(plan, operations=(*plan.operations[:at], replace(kernel, **changes), *plan.operations[at + 1 :]))


def without_storage(plan: TrainingPlan, kind: BufferKind) -> TrainingPlan:
    buffers = (replace(each, storage=None) if each.kind is kind else each for each in plan.buffers)
    return replace(plan, buffers=tuple(buffers))


def with_unknown_operand(plan: TrainingPlan) -> TrainingPlan:
    """Let the first kernel also write a slot into which others are laid."""
    slot = next(i for i, buffer in enumerate(plan.buffers) if buffer.name == "gradient slot 1")
    kernel = next(each for each in plan.operations if isinstance(each, Compute))
    return first_kernel(plan, operands=(*kernel.operands, Operand(Role.OUTPUT_GRADIENT, slot, Access.WRITE)))


def without_input(plan: TrainingPlan) -> TrainingPlan:
    kernel = next(each for each in plan.operations if isinstance(each, Compute))
    return first_kernel(plan, operands=kernel.operands[1:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (partial(first_kernel, algorithm="winograd"), r"conv1_1 \(winograd\)\).* pytorch or explicit_gemm$"),
        (partial(first_kernel, part=1), "kernels over a part of the batch"),
        (partial(without_storage, kind=BufferKind.FEATURE_MAP), "map input belongs to no storage"),
        (partial(without_storage, kind=BufferKind.WEIGHTS), "weights of conv1_1 belongs to no storage"),
        # Those of base are laid into slots, which are their own: of them a kernel names the first.
        (partial(without_storage, kind=BufferKind.WEIGHT_GRADIENT), "weight gradient of conv1_1 belongs to no storage"),
        (with_unknown_operand, r"\(forward of conv1_1 \(pytorch\)\): gradient slot 1 belongs to no storage"),
        (without_input, "operand X: map input$"),
    ],
)
def test_a_changed_plan(
    bench: Bench, plan: TrainingPlan, change: Callable[[TrainingPlan], TrainingPlan], message: str
) -> None:
    assert re.search(message, refusal(bench, change(plan)))


@pytest.mark.parametrize("name", REFUSED)
def test_copies_page_by_page(bench: Bench, name: str) -> None:
    workload, policy = bench.workload(tiny_linear), known_policies()[name]()
    paged = bench.plan(workload, policy, limits=bench.tight_limits(workload, every_second_explicit))
    assert "(page-out of map input for conv1_2): this executor cannot" in refusal(bench, paged)
    assert "(allocate weights of conv1_2): this executor cannot" in refusal(bench, bench.plan(workload, policy))


def test_a_kernel_that_needs_more_workspace_than_the_plan_has(bench: Bench) -> None:
    """The plan counts on what PyTorch allocates itself; the columns of explicit GEMM need more than 10 B."""
    plan = bench.plan(bench.workload(tiny_linear), VdnnAll())
    small = [replace(each, nbytes=10) if each.kind is BufferKind.WORKSPACE else each for each in plan.buffers]
    message = refusal(bench, first_kernel(replace(plan, buffers=tuple(small)), algorithm="explicit_gemm"))
    assert "forward of conv1_1 (explicit_gemm)): it has 10 bytes of workspace" in message


@pytest.mark.parametrize(
    ("network", "changes", "message"),
    [
        (tiny_forked, {}, "another network, expected one of tiny_linear"),
        # 3 x 32 x 32 float32 of 5 images are 61,440 B, of 2 images 24,576 B.
        (tiny_linear, {"batch_size": 5}, "map input has 61440 bytes, expected 24576"),
        (tiny_linear, {"mode": Mode.INFERENCE}, "another mode"),
    ],
)
def test_a_plan_of_another_workload(
    bench: Bench, network: Callable[[], LayerGraph], changes: dict[str, Any], message: str
) -> None:
    assert message in refusal(bench, bench.plan(replace(bench.workload(network), **changes), Base()))


@pytest.mark.parametrize("precision", [Precision.TF32, Precision.AMP_BFLOAT16, Precision.AMP_FLOAT16])
def test_a_precision_that_is_not_that_of_all_maps(bench: Bench, precision: Precision) -> None:
    """There are no kernels that cast, and TF32 is a setting of the device."""
    workload = Workload.in_precision(tiny_linear(), 2, precision)
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    assert f"tiny_linear computes in {precision.value}: this executor cannot" in refusal(bench, plan, workload)


def test_statistics_of_an_earlier_training(bench: Bench) -> None:
    workload = replace(bench.workload(tiny_residual), mode=Mode.INFERENCE)
    assert "statistics of bn is given" in refusal(bench, bench.plan(workload, Base()), workload)


@pytest.mark.parametrize(
    "operation",
    [
        AllReduce(0, (0,), 0, Aggregation.RING),
        Communicate(0, Phase.FORWARD, "only", (), 0, None),
        RecordEvent(1000, Stream.COMMUNICATION),
        HostSynchronize((Stream.COMMUNICATION,)),
    ],
)
def test_communication_of_several_gpus(plan: TrainingPlan, operation: Operation) -> None:
    with pytest.raises(ExecutionRefused, match="several GPUs"):
        refuse_impossible(replace(plan, operations=(*plan.operations, operation)), releases_extents=True)


def test_a_plan_that_breaks_the_contract_is_not_begun(bench: Bench, plan: TrainingPlan) -> None:
    with pytest.raises(PlanError, match="is still allocated at the end"):
        Executor(bench.device, bench.workload(tiny_linear), bench.library).execute(
            replace(plan, operations=plan.operations[:-1]), UNLIMITED
        )
