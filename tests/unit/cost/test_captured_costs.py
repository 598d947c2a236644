"""Costs of captured operations on a machine of 50 FLOP/s, 320 B/s and a launch of 1 s.

The chain of `tests/captured_steps.py`, 2 images of 1 x 2 x 2: a convolution of one weight, whose 8 numbers and their
results are 32 B each; batch normalization, which reads 32 B and 4 B of weights and writes 32 B and 8 B of moments.
"""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_steps import chain
from tests.toy import server_with
from vdnnsim.cost.captured import _choices
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.operation_kinds import single_elements
from vdnnsim.cost.table import ONLY, CostTable, KernelCost
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Allocate, Release
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import KIB, ElementType, Precision

SERVER = server_with({"launch_overhead_s": 1.0})
CONV, BN, RELU, POOL, FC, LOSS = range(6)
ADDMM = "aten.addmm.default"


def table(step: CapturedStep, server: Server = SERVER) -> CostTable:
    return ServerCosts(server).table(CapturedWorkload.of(step))


def changed(number: int, step: CapturedStep | None = None, /, **changes: object) -> CapturedStep:
    """Return a step, the chain unless given, of which one operation is another."""
    step = step or chain()
    operations = list(step.operations)
    operations[number] = msgspec.structs.replace(operations[number], **changes)
    return msgspec.structs.replace(step, operations=tuple(operations))


def number_of(name: str) -> int:
    return [each.name for each in chain().operations].index(name)


def kernel(seconds: float, workspace_bytes: int = 0, algorithm: str = ONLY) -> KernelCost:
    return KernelCost(algorithm, seconds, workspace_bytes, Origin.DATASHEET)


@pytest.mark.parametrize("element_type", ["float32", "float16"])
def test_what_has_no_shape_costs_its_bytes_and_its_launch(element_type: str) -> None:
    """32 + 4 read, 32 + 8 written: 76 B take 76 / 320 s. No float16 is stated: it counts as the workload's type."""
    (found,) = table(changed(1, element_type=element_type)).options(BN, Phase.FORWARD)
    assert found == KernelCost(ONLY, 1 + 76 / 320, 0, Origin.DATASHEET, dram_bytes=76)


def test_operands_that_lie_otherwise_are_copied_first() -> None:
    """32 B are read and written, 64 / 320 s and a launch, before 76 B. The step holds the copy while it runs."""
    (found,) = table(changed(1, copied_bytes=32, temporary_bytes=32)).options(BN, Phase.FORWARD)
    assert found == KernelCost(ONLY, 2 + (64 + 76) / 320, 0, Origin.DATASHEET, dram_bytes=140)


def test_what_moves_nothing_is_no_kernel() -> None:
    assert table(changed(1, bytes_moved=0)).fastest(BN, Phase.FORWARD).seconds == 0.0


def test_a_convolution_costs_what_the_layer_costs_that_it_is() -> None:
    """Both backwards run one after the other: a launch each."""
    step = chain()
    net = GraphBuilder("built", MapShape(1, 2, 2))
    below = net.batch_norm("below", 0, relu=False)
    conv = net.append("conv", Convolution(1, (1, 1), bias=False), (below,))
    built = ServerCosts(SERVER).table(Workload(net.build(conv.output), 2))
    work = step.operations[0].work
    assert isinstance(work, ConvolutionWork)
    found = table(changed(-2, work=msgspec.structs.replace(work, computes=("input", "weight", "bias"))))

    assert found.options(CONV, Phase.FORWARD) == built.options(conv.index, Phase.FORWARD)
    backward = [built.fastest(conv.index, phase).seconds for phase in (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)]
    assert found.fastest(CONV, Phase.BACKWARD).seconds == sum(backward) > 2


@pytest.mark.parametrize(
    ("work", "flop", "expected_s"),
    [
        # 2 images are 4 FLOPs, which take longer than 8 B of X, 8 B of Y and 8 B of weights and bias.
        (ProductWork(1, 2, 1, 1), 4, 1 + 4 / 50),
        # 6 rows are 3 steps of each of 2 images: 12 FLOPs take longer than 24 + 8 + 24 B.
        (ProductWork(1, 6, 1, 1), 12, 1 + 12 / 50),
        # A batch of products is no layer.
        (ProductWork(4, 1, 1, 1), 100, 3.0),
    ],
)
def test_a_product_costs_its_work(work: ProductWork, flop: int, expected_s: float) -> None:
    step = changed(number_of(ADDMM), work=work, flop={Arithmetic.PRODUCT: flop}, bytes_moved=32)
    assert table(step).fastest(FC, Phase.FORWARD).seconds == pytest.approx(expected_s)


def test_a_phase_of_several_operations_is_their_sum() -> None:
    """The loss: _log_softmax and nll_loss_forward, of 4 FLOPs and 16 B an image, and of 32 and 4 B."""
    found = table(chain()).fastest(5, Phase.FORWARD)
    first, second = found.parts
    assert found.seconds == first.seconds + second.seconds
    assert (found.of(0), found.of(1)) == (first, second)
    halved = found.retimed(lambda seconds: seconds / 2)
    assert (halved.seconds, halved.of(1).seconds) == (found.seconds / 2, second.seconds / 2)


def test_each_workspace_that_makes_a_difference_is_an_option() -> None:
    """With 0 B 3 + 4 s, with 10 B 1 + 4, with 20 B 1 + 2: three options, the fastest first."""
    first = kernel(1.0, 10, "a"), kernel(3.0, 0, "b")
    second = kernel(2.0, 20, "c"), kernel(4.0, 0, "d")
    found = [KernelCost.joined(each) for each in _choices([first, second])]
    assert [(each.algorithm, each.seconds, each.workspace_bytes) for each in found] == [
        ("a + c", 3.0, 20),
        ("a + d", 5.0, 10),
        ("b + d", 7.0, 0),
    ]
    assert KernelCost.joined([first[0]]) is first[0]


def test_tf32_is_for_products_alone() -> None:
    """At 100 FLOP/s in TF32, 50 in float32: a product of 100 FLOPs takes 1 s, a loss of 8 FLOPs 8 / 50."""
    peaks = {**SERVER.gpu.flop_per_s, ElementType.TF32: 100.0}
    server = replace(SERVER, gpu=replace(SERVER.gpu, flop_per_s=peaks, dram_bytes_per_s=1e9))
    step = changed(number_of(ADDMM), work=ProductWork(4, 1, 1, 1), flop={Arithmetic.PRODUCT: 100})
    found = table(msgspec.structs.replace(step, precision=Precision.TF32), server)
    assert found.fastest(FC, Phase.FORWARD).seconds == 2.0
    assert found.fastest(LOSS, Phase.FORWARD).of(0).seconds == pytest.approx(1 + 8 / 50)


def reading(name: str, *shapes: tuple[int, ...]) -> CapturedStep:
    """Return the chain as if relu were an operator that reads a tensor and writes another, of these shapes."""
    step, count = chain(), len(chain().tensors)
    first, *_ = step.operations[2].operands
    tensors = tuple(msgspec.structs.replace(step.tensors[first.memory], shape=each) for each in shapes)
    operands = tuple(
        msgspec.structs.replace(first, memory=count + index, access=access)
        for index, access in enumerate((Access.READ, Access.WRITE))
    )
    return changed(2, msgspec.structs.replace(step, tensors=(*step.tensors, *tensors)), name=name, operands=operands)


def test_a_sum_of_rows_takes_what_pytorch_takes_for_partial_sums() -> None:
    """4,096 rows of 64 numbers: 16 vectors of 4 a row, blocks of 16 by 8 threads.

    512 values a thread are 256 or more; 12 blocks of 128 threads on each multiprocessor of an 8.9 are wanted, and each
    thread is to have 16 values at least: 12 parts of one multiprocessor. Of what a CPU captured nothing is known.
    """
    captured = reading("aten.sum.dim_IntList", (4096, 64), (1, 64))
    server = replace(SERVER, gpu=replace(SERVER.gpu, multiprocessors=1))
    found = [
        table(each, server).fastest(RELU, Phase.FORWARD).workspace_bytes
        for each in (captured, msgspec.structs.replace(captured, device="cpu"))
    ]
    assert found == [4 * 64 * 12 * 16 * 4, 0]


def test_a_safe_softmax_takes_a_byte_for_each_number_that_it_reads() -> None:
    """16 rows of 196 numbers: 3,136 B say which are masked."""
    captured = reading("aten._safe_softmax.default", (16, 196), (16, 196))
    assert table(captured).fastest(RELU, Phase.FORWARD).workspace_bytes == 3136


@pytest.mark.parametrize(
    ("name", "x", "y", "elements"),
    [
        ("aten.add.Tensor", ((4, 8), "float16"), ((4, 8), "float16"), 0),
        ("aten.add.Tensor", ((8,), "float16"), ((4, 8), "float16"), 32),
        ("aten.mul.Tensor", ((4, 8), "float16"), ((4, 8), "float32"), 32),
        ("aten.mul.Tensor", ((), "float32"), ((4, 8), "float16"), 0),
        ("aten.where.self", ((4, 8), "bool"), ((4, 8), "float16"), 0),
        ("aten.gelu.default", ((8,), "float16"), ((4, 8), "float16"), 0),
        ("aten.clone.default", ((4, 8), "float16"), ((4, 8), "float16"), 32),
        ("aten._to_copy.default", ((4, 8), "float16"), ((4, 8), "float32"), 32),
        ("aten._to_copy.default", ((4, 8), "float32"), ((4, 8), "float16"), 0),
        ("aten.copy_.default", ((4, 8), "float32"), ((4, 8), "float32"), 0),
        ("aten.native_group_norm.default", ((4, 8), "float32"), ((4, 8), "float32"), 32),
        ("aten.cat.default", ((4, 4), "float16"), ((4, 8), "float16"), 32),
        ("aten.cat.default", ((4, 256), "float16"), ((4, 512), "float16"), 0),
        ("aten.cat.default", ((2, 256), "float16"), ((4, 256), "float16"), 0),
        ("aten.upsample_nearest2d.default", ((1, 2, 2, 2), "float32"), ((1, 2, 4, 4), "float32"), 32),
        ("aten.avg_pool2d_backward.default", ((1, 2, 2, 2), "float16"), ((1, 2, 4, 4), "float16"), 32),
    ],
)
def test_what_loads_no_words(
    name: str, x: tuple[tuple[int, ...], str], y: tuple[tuple[int, ...], str], elements: int
) -> None:
    """What broadcasts, reads several types, turns a tensor around or widens its type takes elements one at a time.

    So does what joins rows of fewer than 512 B, but not what stacks them, and what takes the elements of windows.
    """
    step = reading(name, x[0], y[0])
    of_types = [
        msgspec.structs.replace(each, element_type=kind)
        for each, (_, kind) in zip(step.tensors[-2:], (x, y), strict=True)
    ]
    workload = CapturedWorkload.of(msgspec.structs.replace(step, tensors=(*step.tensors[:-2], *of_types)))
    assert single_elements(workload, workload.step.operations[2]) == elements


def test_adam_in_one_kernel_takes_its_parameters_one_at_a_time() -> None:
    """32 of them, with as many numbers of a state, which are part of the same work."""
    step = reading("aten._fused_adamw_.default", (4, 8), (4, 8))
    roles = zip(step.operations[2].operands, (Role.WEIGHTS, Role.STATE), strict=True)
    operands = tuple(msgspec.structs.replace(each, role=role) for each, role in roles)
    workload = CapturedWorkload.of(changed(2, step, operands=operands))
    assert single_elements(workload, workload.step.operations[2]) == 32


def test_channels_are_joined_element_by_element_where_they_lie_last() -> None:
    """Two channels of 16 x 16 of each of two images to three: 1536 elements; where channels lie apart, in words."""
    workload = CapturedWorkload.of(reading("aten.cat.default", (2, 2, 16, 16), (2, 3, 16, 16)))
    found = [single_elements(workload, workload.step.operations[2], channels_last=last) for last in (True, False)]
    assert found == [1536, 0]


def test_a_convolution_that_no_layer_is_has_the_workspace_that_pytorch_takes() -> None:
    """In three dimensions: one image of 64 channels of 2 x 4 x 4 is an X of 8 KiB, a filter of one pixel 16 KiB.

    The older of two machines has no tensor cores, and nobody knows what it takes.
    """
    conv = changed(0, work=ConvolutionWork(1, 64, 64, (2, 4, 4), (1, 1, 1), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1))
    found = [
        table(msgspec.structs.replace(conv, device=device)).fastest(CONV, Phase.FORWARD).workspace_bytes
        for device in ("cuda 8.9", "cuda 7.5")
    ]
    assert found == [4 * 64 * 2 * 4 * 4 + 4 * 64 * 64, 0]


def both_gradients(device: str) -> CapturedStep:
    """Return the chain as if its convolution were of two images of 64 channels of 8 x 8 under windows of 3 x 3."""
    work = ConvolutionWork(2, 64, 64, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1, computes=("input", "weight"))
    return msgspec.structs.replace(changed(-2, work=work), device=device)


def test_a_backward_takes_the_workspaces_of_its_gradients_in_turn() -> None:
    """Maps of 32 KiB, W of 144 KiB; of dW five tiles for two units are not split. The plan gives back the first."""
    workload = CapturedWorkload.of(both_gradients("cuda 8.0"))
    server = replace(SERVER, gpu=replace(SERVER.gpu, multiprocessors=2))
    found = ServerCosts(server).table(workload).fastest(CONV, Phase.BACKWARD)
    data, weights = (2 * 32 + 144) * KIB, 2 * 32 * KIB
    assert (found.workspaces, found.workspace_bytes) == ((data, weights), data)

    simulator = Simulator.of(workload, server, MemoryModel.PYTORCH, PinnedMemory.ARENA)
    plan = PyTorch().plan(simulator.setting())
    check_plan(plan)
    sizes = {each.name: each.nbytes for each in plan.buffers if "workspace of conv" in each.name}
    assert sizes == {"earlier workspace of conv": data, "workspace of conv": weights}
    first, second = (plan.buffer_names.index(name) for name in sizes)
    at = next(at for at, each in enumerate(plan.operations) if each == Release(first))
    taken = [type(each).__name__ for each in plan.operations[at - 1 : at + 4]]
    assert taken == ["Allocate", "Release", "Allocate", "Compute", "Release"]
    assert isinstance(following := plan.operations[at + 1], Allocate)
    assert following.buffer == second
