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
from vdnnsim.plans.operations import (
    Aggregation,
    Allocate,
    AllReduce,
    Compute,
    HostSynchronize,
    Operation,
    RecordEvent,
    Release,
    Stream,
)
from vdnnsim.plans.placement import MemoryLimits
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.units import Precision


def refused(bench: Bench, plan: TrainingPlan, *, mode: Mode = Mode.TRAINING) -> str:
    workload = replace(bench.workload(tiny_linear), mode=mode)
    with pytest.raises(ExecutionRefused) as refusal:
        Executor(bench.device, workload, bench.library).execute(plan, UNLIMITED)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("name", REFUSED)
def test_page_migration_in_too_little_memory_copies_page_by_page(bench: Bench, name: str) -> None:
    workload = bench.workload(tiny_linear)
    limits: MemoryLimits = bench.tight_limits(workload, every_second_explicit)

    message = refused(bench, bench.plan(workload, known_policies()[name](), limits=limits))

    assert message.startswith("page_migration(p): operation")
    assert "(page-out of map input for conv1_2)" in message
    assert message.endswith("this executor cannot do copies page by page at page faults")


def test_page_migration_in_enough_memory_takes_weights_when_they_are_touched(bench: Bench) -> None:
    """Nothing is paged, but the weights of the second convolution are allocated after the first one has run."""
    message = refused(bench, bench.plan(bench.workload(tiny_linear), known_policies()["page_migration"]()))

    assert "(allocate weights of conv1_2)" in message
    assert message.endswith("a given buffer that is allocated after the iteration has begun")


def with_algorithm(plan: TrainingPlan, algorithm: str) -> TrainingPlan:
    """Rename the algorithm of the first kernel."""
    position = next(i for i, each in enumerate(plan.operations) if isinstance(each, Compute))
    kernel = plan.operations[position]
    assert isinstance(kernel, Compute)
    renamed = replace(kernel, algorithm=algorithm)
    return replace(plan, operations=(*plan.operations[:position], renamed, *plan.operations[position + 1 :]))


def test_an_algorithm_that_the_library_does_not_have(bench: Bench) -> None:
    message = refused(bench, with_algorithm(bench.plan(bench.workload(tiny_linear), Base()), "winograd"))

    assert "(forward of conv1_1 (winograd))" in message
    assert message.endswith("the device has no such algorithm for this layer, expected pytorch or explicit_gemm")


def test_a_kernel_that_is_handed_more_workspace_than_the_plan_has(bench: Bench) -> None:
    """The plan counts on what the framework takes for itself; the columns of explicit GEMM need more than 10 B."""
    plan = bench.plan(bench.workload(tiny_linear), VdnnAll())
    small = tuple(
        replace(buffer, nbytes=10) if buffer.kind is BufferKind.WORKSPACE else buffer for buffer in plan.buffers
    )

    message = refused(bench, with_algorithm(replace(plan, buffers=small), "explicit_gemm"))

    assert "forward of conv1_1 (explicit_gemm)): it has 10 bytes of workspace, expected " in message


def test_a_plan_of_another_network(bench: Bench) -> None:
    message = refused(bench, bench.plan(bench.workload(tiny_forked), Base()))

    assert message == "base(p): found a plan of another network, expected one of tiny_linear"


def test_a_plan_of_another_batch_size(bench: Bench) -> None:
    """3 x 32 x 32 float32 of 5 images are 61,440 B, of 2 images 24,576 B."""
    message = refused(bench, bench.plan(replace(bench.workload(tiny_linear), batch_size=5), Base()))

    assert message == (
        "base(p): map input has 61440 bytes, expected 24576: the plan is one of another batch size or element type"
    )


def test_a_plan_of_another_mode(bench: Bench) -> None:
    message = refused(bench, bench.plan(replace(bench.workload(tiny_linear), mode=Mode.INFERENCE), Base()))

    assert message == "base(p): found a plan of another mode or optimizer"


def nameless(kind: BufferKind) -> Callable[[TrainingPlan], TrainingPlan]:
    def strip(plan: TrainingPlan) -> TrainingPlan:
        buffers = [replace(buffer, storage=None) if buffer.kind is kind else buffer for buffer in plan.buffers]
        return replace(plan, buffers=tuple(buffers))

    return strip


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (BufferKind.FEATURE_MAP, "map input"),
        (BufferKind.WEIGHTS, "weights of conv1_1"),
        # Those of base are laid into slots, which are their own: of them a kernel names the first.
        (BufferKind.WEIGHT_GRADIENT, "weight gradient of conv1_1"),
    ],
)
def test_a_buffer_that_belongs_to_nothing(bench: Bench, kind: BufferKind, name: str) -> None:
    message = refused(bench, nameless(kind)(bench.plan(bench.workload(tiny_linear), Base())))

    assert message == f"base(p): {name} does not say what it belongs to"


def test_a_kernel_over_memory_into_which_others_are_laid(bench: Bench) -> None:
    """The first kernel also writes the slot of a gradient, of which nobody knows what it is."""
    plan = bench.plan(bench.workload(tiny_linear), Base())
    slot = next(i for i, buffer in enumerate(plan.buffers) if buffer.name == "gradient slot 1")
    position = next(i for i, each in enumerate(plan.operations) if isinstance(each, Compute))
    kernel = plan.operations[position]
    assert isinstance(kernel, Compute)
    wider = replace(kernel, operands=(*kernel.operands, Operand(Role.OUTPUT_GRADIENT, slot, Access.WRITE)))
    operations = (*plan.operations[:position], wider, *plan.operations[position + 1 :])

    message = refused(bench, replace(plan, operations=operations))

    assert message.endswith("(forward of conv1_1 (pytorch)): gradient slot 1 does not say what it belongs to")


def test_a_kernel_that_does_not_name_an_operand(bench: Bench) -> None:
    plan = bench.plan(bench.workload(tiny_linear), Base())
    position = next(i for i, each in enumerate(plan.operations) if isinstance(each, Compute))
    kernel = plan.operations[position]
    assert isinstance(kernel, Compute)
    blind = replace(kernel, operands=kernel.operands[1:])
    operations = (*plan.operations[:position], blind, *plan.operations[position + 1 :])

    message = refused(bench, replace(plan, operations=operations))

    assert message.endswith("it does not name its operand X: map input")


@pytest.mark.parametrize("precision", [Precision.TF32, Precision.AMP_BFLOAT16, Precision.AMP_FLOAT16])
def test_a_precision_that_is_not_that_of_all_maps(bench: Bench, precision: Precision) -> None:
    """There are no kernels that cast, and TF32 is what a device is told to use."""
    workload = Workload.in_precision(tiny_linear(), 2, precision)
    plan = PyTorch().plan(toy_setting(workload, toy_costs(workload, {})))

    with pytest.raises(ExecutionRefused) as refusal:
        Executor(bench.device, workload, bench.library).execute(plan, UNLIMITED)

    cannot = "this executor cannot do other precisions than float32, bfloat16 and float16"
    assert str(refusal.value) == f"pytorch(p): tiny_linear computes in {precision.value}: {cannot}"


def test_what_is_given_and_nobody_knows(bench: Bench) -> None:
    """In inference batch normalization reads what a training left, and there was none."""
    workload = replace(bench.workload(tiny_residual), mode=Mode.INFERENCE)
    plan = bench.plan(workload, Base())

    with pytest.raises(ExecutionRefused, match=r"statistics of bn is given, and there is nothing to fill it with$"):
        Executor(bench.device, workload, bench.library).execute(plan, UNLIMITED)


@pytest.mark.parametrize(
    "operation",
    [
        AllReduce(0, (0,), 0, Aggregation.RING),
        RecordEvent(1000, Stream.COMMUNICATION),
        HostSynchronize((Stream.COMMUNICATION,)),
    ],
)
def test_what_several_gpus_exchange(bench: Bench, operation: Operation) -> None:
    plan = bench.plan(bench.workload(tiny_linear), Base())

    with pytest.raises(ExecutionRefused, match="cannot do what several GPUs exchange"):
        refuse_impossible(replace(plan, operations=(*plan.operations, operation)), releases_extents=True)


def test_a_kernel_over_a_part_of_the_batch(bench: Bench) -> None:
    plan = bench.plan(bench.workload(tiny_linear), Base())
    parts = tuple(replace(each, part=1) if isinstance(each, Compute) else each for each in plan.operations)

    message = refused(bench, replace(plan, operations=parts))
    assert message.endswith("(pytorch, part 1 of the batch)): this executor cannot do kernels over a part of the batch")


def test_a_plan_that_breaks_the_contract_is_not_begun(bench: Bench) -> None:
    workload = bench.workload(tiny_linear)
    plan = bench.plan(workload, Base())
    assert isinstance(plan.operations[0], Allocate)
    assert isinstance(plan.operations[-1], Release)

    with pytest.raises(PlanError, match="is still allocated at the end"):
        Executor(bench.device, workload, bench.library).execute(
            replace(plan, operations=plan.operations[:-1]), UNLIMITED
        )
