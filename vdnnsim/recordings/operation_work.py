"""The work of a recorded operation, by its sizes: FLOPs, bytes, and the shape of a convolution or a matrix product.

FLOPs and bytes are counted as for captured steps (`calibration.capture`), for kernel tables of traces time those as
well. The output of an operator has the sizes that the node of its backward was given, or else those of its largest
argument.

Formats before PyTorch 2.1 lack stride and padding of convolutions: the padding is then that which keeps the size at
stride 1, and the stride that which leads to the output.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import Role
from vdnnsim.recordings.trace_operations import CONVOLUTION, CONVOLUTION_BACKWARD, Operation

_TYPES: Final = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "c10::half": ("float16", 2),
    "half": ("float16", 2),
    "c10::bfloat16": ("bfloat16", 2),
    "bfloat16": ("bfloat16", 2),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "int": ("int32", 4),
    "short int": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
}
"""Name and bytes of an element, by its type in C++."""
_UNKNOWN: Final = ("float32", 4)
_READ_TWICE: Final = {"batch_norm": 1, "batch_norm_backward": 2}
_PER_ELEMENT: Final = (
    (re.compile(r"batch_norm$|layer_norm$|group_norm$"), 5),
    (re.compile(r"batch_norm_backward$"), 7),
    (re.compile(r"(layer|group)_norm_backward$"), 10),
    (re.compile(r"softmax$"), 5),
    (re.compile(r"softmax_backward_data$"), 4),
    (re.compile(r"_fused_adamw?_?$"), 12),
    (re.compile(r"fill_?$|zero_?$|copy_?$|cat$|^index|embedding$"), 0),
)
"""FLOPs for each element of the largest argument; one for all others."""
_FILLS: Final = frozenset({"fill_", "zero_", "_foreach_zero_"})
_REDUCES: Final = frozenset(
    {"sum", "mean", "amax", "amin", "any", "all", "argmax", "nll_loss_forward", "linalg_vector_norm"}
)
_ATTENTION: Final = re.compile(r"_(scaled_dot_product|flash|efficient).*attention")
_BACKWARD_PRODUCTS: Final = 5
_MATRIX, _BATCHED = 2, 3
_LARGEST_STRIDE: Final = 64
_LARGEST_SIZE: Final = 2**31


@dataclass(frozen=True, slots=True)
class OperationWork:
    """FLOPs, bytes and shape of an operation.

    Attributes:
        element_type: of its largest argument, in PyTorch's words.
        role: of the result of a product: an output, a gradient of its input, or of its weights.
    """

    element_type: str
    flop: dict[Arithmetic, int] = field(default_factory=dict)
    bytes_moved: int = 0
    output: tuple[int, ...] = ()
    work: ConvolutionWork | ProductWork | None = None
    role: Role = Role.OUTPUT


def work_of(operation: Operation, forward: Operation | None) -> OperationWork:
    """Return the work of an operation, which may be the backward of another; without sizes it is bytes alone."""
    dims = operation.dims
    element_type, size = _type(operation, max(range(len(dims)), key=lambda each: math.prod(dims[each]), default=0))
    convolution = _convolution(operation, forward)
    if convolution is not None:
        return _of_convolution(operation, convolution, element_type, size)
    product = _product(operation)
    if product is not None:
        outer = (product.m, product.n) if product.batch == 1 else (product.batch, product.m, product.n)
        elements = product.batch * (product.m * product.k + product.k * product.n + product.m * product.n)
        role = _role(operation, forward, product)
        return OperationWork(element_type, {Arithmetic.PRODUCT: product.flop}, elements * size, outer, product, role)
    if _ATTENTION.search(operation.name):
        return _of_attention(operation, element_type, size)
    return _of_stream(operation, element_type)


def _of_convolution(operation: Operation, work: ConvolutionWork, element_type: str, size: int) -> OperationWork:
    x = (work.batch_size, work.input_channels, *work.input_size)
    y = (work.batch_size, work.output_channels, *work.output_size)
    total = (math.prod(x) + math.prod(y) + work.weights) * size * max(1, len(work.gradients))
    returned = y if operation.name == CONVOLUTION else x
    return OperationWork(element_type, {Arithmetic.PRODUCT: work.flop}, total, returned, work)


def _of_attention(operation: Operation, element_type: str, size: int) -> OperationWork:
    """Return the work of a fused attention: two products of queries, keys and values, five in backward."""
    maps = [each for each in operation.dims if len(each) > _BATCHED]
    products = _BACKWARD_PRODUCTS if operation.phase is Phase.BACKWARD else 2
    if len(maps) <= _MATRIX:
        return _of_stream(operation, element_type)
    # In backward the gradient is first.
    query, key = maps[products == _BACKWARD_PRODUCTS :][:2]
    flop = 2 * products * math.prod(query) * key[-2]
    elements = sum(map(math.prod, maps)) + math.prod(query)
    return OperationWork(element_type, {Arithmetic.PRODUCT: flop}, elements * size, query)


def _of_stream(operation: Operation, element_type: str) -> OperationWork:
    """Return the work of an operator that reads and writes each element a fixed number of times."""
    sizes = [math.prod(each) * _type(operation, at)[1] if each else 0 for at, each in enumerate(operation.dims)]
    largest = max(operation.dims, key=math.prod, default=()) if any(operation.dims) else ()
    elements = math.prod(largest)
    rates = (count for pattern, count in _PER_ELEMENT if pattern.search(operation.name.rstrip("_")))
    flop = elements * next(rates, 1)
    if operation.name in _FILLS:
        total, output = sizes[0] if sizes else 0, largest
    else:
        name = operation.name.removeprefix("cudnn_").removeprefix("native_").removeprefix("miopen_")
        again = sum(sizes[: _READ_TWICE.get(name, 0)])
        unrecorded = () if operation.name in _REDUCES else largest
        output = unrecorded if operation.output is None else operation.output
        written = sizes[0] if operation.name.endswith("_") and sizes else math.prod(output) * _type(operation, 0)[1]
        reads_first = not (operation.name == "copy_" and len([each for each in sizes if each]) > 1)
        total = sum(sizes[0 if reads_first else 1 :]) + again + written
    # An operator on scalars moves a few bytes, which its sizes lack.
    return OperationWork(element_type, {Arithmetic.ELEMENTWISE: flop} if flop else {}, max(total, 4), output)


def _convolution(operation: Operation, forward: Operation | None) -> ConvolutionWork | None:
    """Return the shape of a convolution of any phase; None for other operators, and for unknown sizes."""
    computes: tuple[str, ...] = ()
    if operation.name == CONVOLUTION:
        y, x, w = operation.output, *(*operation.dims, (), ())[:2]
        first = 3
    elif operation.name == CONVOLUTION_BACKWARD:
        a, b, w = (*operation.dims, (), (), ())[:3]
        # Before PyTorch 1.12 the input came first; it has as many channels as the weights have inputs.
        y, x = (b, a) if "cudnn" in operation.call.event.name else (a, b)
        first, computes = 4, _computes(operation)
    else:
        return None
    if len(x) != len(w) or len(x) < _BATCHED or not all((*x, *w)):
        return None
    values = operation.call.event.values
    stride, padding, dilation = (_numbers(values, first + at) for at in range(3))
    kernel, space = w[2:], x[2:]
    transposed = values[first + 3 : first + 4] == ("True",)
    groups = (_numbers(values, first + 5) or (1,))[0] if values else max(1, x[1] // w[1])
    if not values and forward is not None and forward.output is not None:
        y = forward.output
    if not stride:
        after = y[2:] if y is not None and len(y) == len(x) else space
        padding, dilation = tuple((each - 1) // 2 for each in kernel), (1,) * len(kernel)
        stride = tuple(map(_stride, space, kernel, padding, after))
    dimensions = len(kernel)
    work = ConvolutionWork(
        batch_size=x[0],
        input_channels=x[1],
        output_channels=w[1] * groups if transposed else w[0],
        input_size=space,
        kernel=kernel,
        stride=(stride * dimensions)[:dimensions],
        padding=((padding or (0,)) * dimensions)[:dimensions],
        dilation=((dilation or (1,)) * dimensions)[:dimensions],
        groups=groups,
        transposed=transposed,
        bias="bias" in computes if computes else len((*operation.dims, (), ())[2]) == 1,
        computes=computes,
    )
    return work if _is_possible(work, w) else None


def _is_possible(work: ConvolutionWork, weights: Sequence[int]) -> bool:
    """Whether a convolution of these sizes exists; traces may hold anything."""
    sizes = (work.batch_size, work.input_channels, work.output_channels, *work.input_size, *work.kernel)
    steps = (*work.stride, *work.dilation, work.groups)
    if max(*sizes, *steps, *work.padding) >= _LARGEST_SIZE or min(steps) < 1:
        return False
    of_weights = work.output_channels if work.transposed else work.input_channels
    divides = work.input_channels % work.groups == 0 == work.output_channels % work.groups
    return divides and of_weights == weights[1] * work.groups and min(work.output_size) >= 1


def _computes(operation: Operation) -> tuple[str, ...]:
    """Return of what a backward computes gradients, by its mask or by the operators that it called."""
    values = operation.call.event.values
    mask = re.findall(r"True|False", values[10]) if len(values) > 10 else []
    if mask:
        names = zip(("input", "weight", "bias"), mask, strict=False)
        return tuple(name for name, is_set in names if is_set == "True")
    called = {each.operator.event.name for each in operation.launches if each.operator is not None}
    ends = {name for name in ("input", "weight") if any(each.endswith(f"_backward_{name}") for each in called)}
    return tuple(each for each in ("input", "weight") if each in ends) or ("input", "weight")


def _stride(before: int, kernel: int, padding: int, after: int) -> int:
    """Return the least stride that leads from one size to another."""
    strides = range(1, min(before, _LARGEST_STRIDE) + 1)
    return next((each for each in strides if (before + 2 * padding - kernel) // each + 1 == after), 1)


def _product(operation: Operation) -> ProductWork | None:
    matrices = [each for each in operation.dims if len(each) >= _MATRIX]
    match operation.name:
        case "mm" | "addmm" | "_addmm_activation" | "_scaled_mm" if len(matrices) >= _MATRIX:
            a, b = matrices[-2:] if operation.name == "addmm" else matrices[:2]
            batch = 1
        case "bmm" | "baddbmm" if len(matrices) >= _MATRIX and all(len(each) == _BATCHED for each in matrices):
            a, b = matrices[-2:]
            batch = a[0]
        case _:
            return None
    if a[-1] != b[-2] or not 0 < min(*a, *b) <= max(*a, *b) < _LARGEST_SIZE:
        return None
    return ProductWork(batch, a[-2], b[-1], a[-1])


def _role(operation: Operation, forward: Operation | None, product: ProductWork) -> Role:
    """Return the role of a product's result: in backward, a sum over the rows of forward is a weight gradient."""
    of = _product(forward) if operation.phase is Phase.BACKWARD and forward is not None else None
    if of is None:
        return Role.OUTPUT
    return Role.WEIGHT_GRADIENT if product.k == of.m and product.m != of.m else Role.INPUT_GRADIENT


def _type(operation: Operation, at: int) -> tuple[str, int]:
    """Return the element type of an argument and the bytes of an element."""
    types = operation.call.event.types
    return _TYPES.get(types[at].lower(), _UNKNOWN) if at < len(types) else _UNKNOWN


def _numbers(values: Sequence[str], at: int) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", values[at]))) if at < len(values) else ()
