"""What the executor cannot do it refuses by name, before it touches the device."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from calibration.executor.compiled_plan import refuse_impossible
from calibration.executor.executor import Executor
from tests.calibration.executor.bench import REFUSED, UNLIMITED, Bench, every_second_explicit
from tests.toy import toy_costs, toy_setting
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.errors import ExecutionRefused, PlanError
from vdnnsim.plans.operations import Aggregation, AllReduce, Compute, HostSynchronize, Operation, RecordEvent, Stream
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


def with_first_kernel(plan: TrainingPlan, change: Callable[[Compute], Compute]) -> TrainingPlan:
    at, kernel = next((at, each) for at, each in enumerate(plan.operations) if isinstance(each, Compute))
    return replace(plan, operations=(*plan.operations[:at], change(kernel), *plan.operations[at + 1 :]))


def with_algorithm(plan: TrainingPlan, algorithm: str) -> TrainingPlan:
    return with_first_kernel(plan, lambda kernel: replace(kernel, algorithm=algorithm))


@pytest.mark.parametrize("name", REFUSED)
def test_copies_page_by_page(bench: Bench, name: str) -> None:
    """Page migration pages out in too little memory; in enough, it first allocates weights amid the iteration."""
    workload, policy = bench.workload(tiny_linear), known_policies()[name]()
    paged = bench.plan(workload, policy, limits=bench.tight_limits(workload, every_second_explicit))
    assert "(page-out of map input for conv1_2): this executor cannot do copies page by page" in refusal(bench, paged)
    assert "(allocate weights of conv1_2): this executor cannot do a given" in refusal(
        bench, bench.plan(workload, policy)
    )


def test_an_algorithm_that_the_library_does_not_have(bench: Bench, plan: TrainingPlan) -> None:
    message = refusal(bench, with_algorithm(plan, "winograd"))
    assert "(forward of conv1_1 (winograd))" in message
    assert message.endswith("expected pytorch or explicit_gemm")


def test_a_kernel_that_needs_more_workspace_than_the_plan_has(bench: Bench) -> None:
    """The plan counts on what PyTorch allocates itself; the columns of explicit GEMM need more than 10 B."""
    plan = bench.plan(bench.workload(tiny_linear), VdnnAll())
    small = [replace(each, nbytes=10) if each.kind is BufferKind.WORKSPACE else each for each in plan.buffers]
    message = refusal(bench, with_algorithm(replace(plan, buffers=tuple(small)), "explicit_gemm"))
    assert "forward of conv1_1 (explicit_gemm)): it has 10 bytes of workspace" in message


def test_a_plan_of_another_workload(bench: Bench) -> None:
    """3 x 32 x 32 float32 of 5 images are 61,440 B, of 2 images 24,576 B."""
    linear = bench.workload(tiny_linear)
    others = {
        "a plan of another network, expected one of tiny_linear": bench.workload(tiny_forked),
        "map input has 61440 bytes, expected 24576": replace(linear, batch_size=5),
        "a plan of another mode": replace(linear, mode=Mode.INFERENCE),
    }
    for message, workload in others.items():
        assert message in refusal(bench, bench.plan(workload, Base()))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (BufferKind.FEATURE_MAP, "map input"),
        (BufferKind.WEIGHTS, "weights of conv1_1"),
        # Those of base are laid into slots, which are their own: of them a kernel names the first.
        (BufferKind.WEIGHT_GRADIENT, "weight gradient of conv1_1"),
    ],
)
def test_a_buffer_that_belongs_to_nothing(bench: Bench, plan: TrainingPlan, kind: BufferKind, name: str) -> None:
    buffers = [replace(each, storage=None) if each.kind is kind else each for each in plan.buffers]
    assert f"{name} does not say what it belongs to" in refusal(bench, replace(plan, buffers=tuple(buffers)))


def test_missing_and_unknown_operands_are_named(bench: Bench, plan: TrainingPlan) -> None:
    """The first kernel names no X, or also writes a slot into which others are laid."""
    slot = next(i for i, buffer in enumerate(plan.buffers) if buffer.name == "gradient slot 1")
    unknown = Operand(Role.OUTPUT_GRADIENT, slot, Access.WRITE)
    wider = with_first_kernel(plan, lambda kernel: replace(kernel, operands=(*kernel.operands, unknown)))
    blind = with_first_kernel(plan, lambda kernel: replace(kernel, operands=kernel.operands[1:]))
    assert "(forward of conv1_1 (pytorch)): gradient slot 1 does not say" in refusal(bench, wider)
    assert refusal(bench, blind).endswith("operand X: map input")


@pytest.mark.parametrize("precision", [Precision.TF32, Precision.AMP_BFLOAT16, Precision.AMP_FLOAT16])
def test_a_precision_that_is_not_that_of_all_maps(bench: Bench, precision: Precision) -> None:
    """There are no kernels that cast, and TF32 is a setting of the device."""
    workload = Workload.in_precision(tiny_linear(), 2, precision)
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))
    assert f"tiny_linear computes in {precision.value}: this executor cannot" in refusal(bench, plan, workload)


def test_statistics_that_an_earlier_training_would_have_left(bench: Bench) -> None:
    workload = replace(bench.workload(tiny_residual), mode=Mode.INFERENCE)
    assert "statistics of bn is given" in refusal(bench, bench.plan(workload, Base()), workload)


@pytest.mark.parametrize(
    "operation",
    [
        AllReduce(0, (0,), 0, Aggregation.RING),
        RecordEvent(1000, Stream.COMMUNICATION),
        HostSynchronize((Stream.COMMUNICATION,)),
    ],
)
def test_communication_of_several_gpus(plan: TrainingPlan, operation: Operation) -> None:
    with pytest.raises(ExecutionRefused, match="cannot do what several GPUs exchange"):
        refuse_impossible(replace(plan, operations=(*plan.operations, operation)), releases_extents=True)


def test_a_kernel_over_a_part_of_the_batch(bench: Bench, plan: TrainingPlan) -> None:
    parts = [replace(each, part=1) if isinstance(each, Compute) else each for each in plan.operations]
    assert "kernels over a part of the batch" in refusal(bench, replace(plan, operations=tuple(parts)))


def test_a_plan_that_breaks_the_contract_is_not_begun(bench: Bench, plan: TrainingPlan) -> None:
    """It lacks its last release."""
    with pytest.raises(PlanError, match="is still allocated at the end"):
        Executor(bench.device, bench.workload(tiny_linear), bench.library).execute(
            replace(plan, operations=plan.operations[:-1]), UNLIMITED
        )
