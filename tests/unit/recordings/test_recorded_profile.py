"""The work of recorded operations and the table of their kernels; traces are those of `tests.recorded_traces`."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recorded_traces import new_trace, old_trace, write
from vdnnsim.cost.kernel_table import KernelRow, KernelShape, kernel_table_text, read_kernel_table, torch_operator
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.table import KernelWork
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Role
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Origin
from vdnnsim.recordings.kineto import Activity, Event
from vdnnsim.recordings.operation_work import OperationWork, work_of
from vdnnsim.recordings.recorded_profile import phase_seconds, rows_of
from vdnnsim.recordings.recorded_step import RecordedStep, read_step
from vdnnsim.recordings.trace_operations import Operation, short_name
from vdnnsim.recordings.trace_steps import Call, Launch
from vdnnsim.units import ElementType

MICRO = 1e-6
PEAKS = Roofline(1e-12, 1e-11, 0.0)


def backward_of(*computes: str) -> ConvolutionWork:
    """Return the backward of a convolution of 2 images of 3x8x8 by 4 filters of 3x3."""
    return ConvolutionWork(2, 3, 4, (8, 8), (3, 3), (1, 1), (1, 1), (1, 1), 1, bias=True, computes=computes)


def operation(
    name: str,
    dims: tuple[tuple[int, ...], ...],
    phase: Phase = Phase.FORWARD,
    kernels: tuple[tuple[str, float], ...] = (("kernel", 1.0),),
    **event: object,
) -> Operation:
    """Return an operation on floats with kernels of so many microseconds, as if it had been recorded."""
    types = ("float",) * len(dims)
    call = Call(Event(Activity.OPERATOR, f"aten::{name}", "1", 0.0, 1.0, **{"dims": dims, "types": types, **event}), ())  # type: ignore[arg-type]
    launched = tuple(Launch(Event(Activity.KERNEL, kernel, "7", 0.0, us * MICRO), call, 0.0) for kernel, us in kernels)
    return Operation(short_name(call), phase, call, launched)


def rows(recorded: RecordedStep) -> dict[tuple[str, Phase], KernelRow]:
    table = rows_of(recorded.operations, recorded.works, recorded.batch_size)
    return {(row.shape.operator, row.shape.phase): row for row in table}


@pytest.mark.parametrize(("trace", "bias"), [(new_trace(), " bias"), (old_trace(), "")], ids=["new", "old"])
def test_a_step_makes_a_table(trace: object, bias: str, tmp_path: Path) -> None:
    """The convolution in three phases (100, 60, 40 us) and `add`, 108 elements read twice and written once: 5 us.

    The old format does not say whether backward computes the gradient of a bias, and its convolution has one by its
    third argument. FLOPs of each phase: 2 x 2 images x 64 pixels x 4 x 27 = 27648.
    """
    found = rows(read_step(write(trace, tmp_path / "trace.json")))
    text = "conv 4 3x3 stride 1x1 padding 1x1"
    assert {key: round((row.seconds or 0) / MICRO, 6) for key, row in found.items()} == {
        (f"{text} bias", Phase.FORWARD): 100,
        (f"{text}{bias}", Phase.BACKWARD_DATA): 60,
        (f"{text}{bias}", Phase.BACKWARD_WEIGHTS): 40,
        ("torch:add", Phase.FORWARD): 5,
    }
    forward, add = found[f"{text} bias", Phase.FORWARD], found["torch:add", Phase.FORWARD]
    assert (forward.flop, forward.shape.inputs, forward.shape.batch_size) == (27648, (MapShape(3, 8, 8),), 2)
    assert (add.nbytes, add.flop, add.shape.inputs) == (3 * 108 * 4, 108, (MapShape(108), MapShape(108)))


def test_a_table_of_a_trace_is_read_back(tmp_path: Path) -> None:
    recorded = read_step(write(new_trace(), tmp_path / "trace.json"))
    made = rows_of(recorded.operations, recorded.works, 2)
    path = tmp_path / "t.kernels.csv"
    path.write_text(kernel_table_text(made))
    assert set(read_kernel_table(path)) == set(made)
    path.write_text(kernel_table_text(made).replace("torch:add", "torch:"))
    with pytest.raises(ProfileError, match="'torch:' is not an operator"):
        read_kernel_table(path)


@pytest.mark.parametrize(
    ("kernels", "seconds"),
    [
        ((("nchwToNhwc", 5), ("dgrad", 10), ("wgrad", 20), ("reduce", 1)), (15, 21)),
        ((("sgemm", 8), ("wgrad", 20)), (8, 20)),
        ((("dgrad", 10), ("sgemm", 7)), (10, 7)),
        ((("sgemm", 6), ("gemm", 4)), (5, 5)),
    ],
)
def test_kernels_of_a_backward_are_divided_by_their_names(
    kernels: tuple[tuple[str, float], ...], seconds: tuple[float, float]
) -> None:
    """A transposition counts with the kernel after it, the rest with the last; unnamed ones are divided equally.

    The first layer, whose input needs no gradient, has one phase alone.
    """
    backward = operation("convolution_backward", (), Phase.BACKWARD, kernels)
    found = phase_seconds(backward, backward_of("input", "weight"))
    data, weights = found.get(Phase.BACKWARD_DATA, 0), found.get(Phase.BACKWARD_WEIGHTS, 0)
    assert (data / MICRO, weights / MICRO) == pytest.approx(seconds)
    assert phase_seconds(backward, backward_of("weight")) == {Phase.BACKWARD_WEIGHTS: pytest.approx(backward.seconds)}


def test_shapes_of_convolutions() -> None:
    """7x7 from 224 to 112: padding (7 - 1) / 2 = 3, and (224 + 6 - 7) // 2 + 1 = 112; 1x1 from 56 to 28: stride 2."""
    for x, w, y, stride, padding in (
        ((2, 3, 224, 224), (64, 3, 7, 7), (2, 64, 112, 112), 2, 3),
        ((2, 8, 56, 56), (16, 8, 1, 1), (2, 16, 28, 28), 2, 0),
    ):
        found = work_of(replace(operation("cudnn_convolution", (x, w)), output=y), None)
        assert isinstance(found.work, ConvolutionWork)
        assert (found.work.stride, found.work.padding, found.output) == ((stride,) * 2, (padding,) * 2, y)
    # Each of 6 groups has one channel; a transposed 2x2 at stride 2 makes 4x4 of 2x2, of 8 channels 3 x 1. Each of
    # its 2 x 2 pixels is multiplied with 8 x 3 x 2 x 2 weights: 2 x 4 x 96 FLOPs.
    depthwise = work_of(operation("convolution", ((1, 6, 5, 5), (6, 1, 3, 3))), None)
    assert isinstance(depthwise.work, ConvolutionWork)
    assert depthwise.work.groups == 6
    values = ("", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1")
    back = work_of(operation("convolution", ((1, 8, 2, 2), (8, 3, 2, 2)), values=values), None)
    assert isinstance(back.work, ConvolutionWork)
    assert (back.work.output_channels, back.output) == (3, (1, 3, 4, 4))
    assert back.flop == {Arithmetic.PRODUCT: 768}


@pytest.mark.parametrize(
    ("dims", "values"),
    [
        (((1, 8, 2, 2), (8, 3, 2, 2)), ()),
        (((1, 4, 2, 2), (3, 2, 1, 1)), ()),
        (((1, 3, 2, 2), (4, 3, 9, 9)), ("", "", "", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1")),
        (((1, 3, 2, 2), (4, 3, 1, 1)), ("", "", "", "[0, 0]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1")),
        (((1, 3, 2, 2**60), (4, 3, 1, 1)), ()),
        (((1, 3, 2), (4, 3, 1, 1)), ()),
        ((), ()),
    ],
)
def test_impossible_convolutions_have_no_shape(dims: tuple[tuple[int, ...], ...], values: tuple[str, ...]) -> None:
    assert work_of(operation("convolution", dims, values=values), None).work is None


def test_products_of_matrices_and_of_attention() -> None:
    """A linear layer of 6 rows from 4 to 5 features: forward, dX = dY W, dW = X^T dY by what is summed, and a batch."""
    forward = operation("addmm", ((5,), (6, 4), (4, 5), (), ()))
    assert work_of(forward, None).work == ProductWork(1, 6, 5, 4)
    above = operation("mm", ((6, 5), (5, 4)), Phase.BACKWARD)
    assert work_of(above, forward).role is Role.INPUT_GRADIENT
    weights = work_of(operation("mm", ((4, 6), (6, 5)), Phase.BACKWARD), forward)
    assert (weights.role, weights.flop) == (Role.WEIGHT_GRADIENT, {Arithmetic.PRODUCT: 2 * 4 * 5 * 6})
    assert work_of(above, operation("relu", ((6, 4),))).role is Role.OUTPUT
    batched = work_of(operation("bmm", ((3, 6, 4), (3, 4, 5))), None)
    assert (batched.work, batched.output) == (ProductWork(3, 6, 5, 4), (3, 6, 5))
    assert work_of(operation("mm", ((6, 5), (4, 5))), None).work is None
    # Queries 1 x 2 x 3 x 4, 7 keys: 2 x 2 x 24 x 7 FLOPs forward, 2 x 5 x 24 x 7 behind the gradient in backward.
    query, key = (1, 2, 3, 4), (1, 2, 7, 4)
    forward = operation("_scaled_dot_product_flash_attention", (query, key, key))
    assert work_of(forward, None).flop == {Arithmetic.PRODUCT: 2 * 2 * 24 * 7}
    name = "_scaled_dot_product_flash_attention_backward"
    backward = operation(name, (query, query, key, key), Phase.BACKWARD)
    assert work_of(backward, forward).flop == {Arithmetic.PRODUCT: 2 * 5 * 24 * 7}
    assert Arithmetic.PRODUCT not in work_of(operation("_flash_attention_forward", ((5, 4),)), None).flop


def test_bytes_of_elementwise_operators() -> None:
    """Of 10 floats, 40 B: in place read and written; moments read X twice; a fill writes; a sum returns one float.

    Pooled to 2 x 1, as the node of its backward was given; a copy does not read what it overwrites.
    """

    def bytes_of(name: str, *dims: tuple[int, ...], output: tuple[int, ...] | None = None) -> int:
        return work_of(replace(operation(name, dims), output=output), None).bytes_moved

    assert bytes_of("relu_", (2, 5)) == 80
    assert bytes_of("cudnn_batch_norm", (2, 5)) == 120
    assert bytes_of("zero_", (2, 5)) == 40
    assert bytes_of("sum", (2, 5)) == 44
    assert bytes_of("max_pool2d", (2, 5), output=(2, 1)) == 48
    assert bytes_of("copy_", (2, 5), (2, 5)) == 80
    assert bytes_of("add", (), ()) == 4


def test_rows_of_products_of_a_list_and_of_no_time() -> None:
    """Three steps of two samples are a layer `linear`, six rows without such a batch `fc`; nine tensors are one vector.

    A time of 0 is half a microsecond: old formats record whole ones.
    """
    product = operation("mm", ((6, 4), (4, 5)), kernels=(("gemm", 0),))
    work = work_of(product, None)
    [of_steps], [of_rows] = rows_of([product], [work], 2), rows_of([product], [work], 6)
    assert (of_steps.shape.kind, of_steps.shape.inputs, of_steps.seconds) == ("linear", (MapShape(4, steps=3),), 0.5e-6)
    assert (of_rows.shape.kind, of_rows.shape.batch_size) == ("fc", 6)
    many = operation("_foreach_add_", ((3,),) * 9)
    [row] = rows_of([many], [work_of(many, None)], 2)
    assert (row.shape.operator, row.shape.inputs) == ("torch:_foreach_add", (MapShape(27),))
    odd = replace(operation("x", ((3,),)), name="Torch-Compiled Region: 0/0")
    assert rows_of([odd], [work_of(odd, None)], 2) == ()


def test_operators_of_pytorch_have_one_name() -> None:
    names = ("aten.add_.Tensor", "aten::add", "add", "aten.add.default")
    assert {torch_operator(name) for name in names} == {"torch:add"}
    assert torch_operator("_") == "torch:_"
    # Work without sizes is some bytes.
    assert work_of(operation("relu", ()), None) == OperationWork("float32", {Arithmetic.ELEMENTWISE: 1}, 4)


def test_recorded_operators_are_timed_by_their_own_rows() -> None:
    """`add` of 1000 B takes 2 and 4 us, in the mean 3. For 2000 B the roofline of all rows is scaled to its own.

    `sub` was not recorded and shows the roofline; `add` is that times the first of its rows, 2 us, over its time there.
    """

    def row(operator: str, nbytes: int, seconds: float, elements: int) -> KernelRow:
        shape = KernelShape(operator, Phase.FORWARD, 1, ElementType.FLOAT32, (MapShape(elements),), "")
        return KernelRow(shape, "recorded", "", seconds, 0.0, 1, 0, 10, nbytes, Origin.MEASURED)

    table = [row("torch:add", 1000, 2e-6, 1), row("torch:add", 1000, 4e-6, 2), row("torch:mul", 4000, 20e-6, 3)]
    costs = MeasuredCosts(table, PEAKS, ElementType.FLOAT32)
    work = {Arithmetic.ELEMENTWISE: 10}

    def cost(operator: str, nbytes: int) -> tuple[float, Origin]:
        found = costs.kernel(KernelWork(f"aten.{operator}.Tensor", ElementType.FLOAT32, work, nbytes))
        return found.seconds, found.origin

    seconds, origin = cost("add_", 1000)
    assert seconds == pytest.approx(3e-6)
    assert origin is Origin.MEASURED
    (near, _), (far, _), (seconds, origin) = cost("sub", 1000), cost("sub", 2000), cost("add", 2000)
    assert seconds == pytest.approx(far * 2e-6 / near)
    assert origin is Origin.FITTED
