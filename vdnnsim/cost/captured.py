"""Costs of the operations of a captured step: convolutions and products as layers, all else by its work.

A convolution or a matrix product costs what the machine's model says of the same phase of a built layer, with all
algorithms. Everything else is a kernel with known FLOPs and compulsory traffic. Operations that move no bytes launch
nothing. The fastest convolution on tensor cores has the workspace that PyTorch would take
(`vdnnsim.cost.pytorch_workspace`), whatever a table states for others; so have sums of rows. Copies of operands that
lie otherwise than a kernel needs are made before it. `_safe_softmax`, of
attention that is not fused, takes a byte for each number, a mask (aten/src/ATen/native/transformers/attention.cpp).

Of several kernels in a row, as the two backwards of a convolution, each takes its fastest algorithm within the same
workspace: one option for each workspace that makes a difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final

from vdnnsim.cost.fused_attention import attention_taken
from vdnnsim.cost.pytorch_workspace import ALONE, SharedSum, chosen_workspaces, sum_of_rows
from vdnnsim.cost.table import ONLY, CostTable, KernelCost, KernelWork, MachineCosts, fastest_of
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import Convolution, FullyConnected
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic, Operator
from vdnnsim.dnn.sequences import Linear
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import ELEMENT_BYTES, Role, StepOperation
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType

MachineOfType = Callable[[ElementType], tuple[MachineCosts, ElementType]]
"""Returns the costs of kernels in an element type, and the type that they are asked for."""

_Options = tuple[KernelCost, ...]
_FREE: Final[_Options] = (KernelCost(ONLY, 0.0, 0, Origin.DATASHEET),)
_CONVOLUTION_PHASES: Final = {"input": Phase.BACKWARD_DATA, "weight": Phase.BACKWARD_WEIGHTS}
_PLANE, _MAP = 2, 4
_SUM: Final = "aten.sum.dim_IntList"
_COPIES: Final = ("aten._to_copy.default", "aten.copy_.default")
_CLONE: Final = "aten.clone.default"
_GROUP_NORM: Final = "aten.native_group_norm"
_BROADCASTING: Final = frozenset({"add", "sub", "mul", "div", "where", "masked_fill"})
_FUSED_ADAM: Final = "aten._fused_adam"
_CAT: Final = "aten.cat.default"
_ROW_BYTES: Final = 512
"""Of what lies together, fewer than which are concatenated element by element; assumed, for on an H200 rows of 8 to
128 B were measured, and the kernel takes 16 B at a time where it may (aten/src/ATen/native/cuda/Shape.cu)."""
_RESAMPLING: Final = ("aten.upsample_", "aten.avg_pool2d_backward", "aten.max_pool2d_with_indices_backward")
_FLOATS: Final = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}
_SAFE_SOFTMAX: Final = "aten._safe_softmax.default"
_TENSOR_CORES: Final = {
    ElementType.FLOAT16: (7, 0),
    ElementType.BFLOAT16: (8, 0),
    ElementType.TF32: (8, 0),
    ElementType.FLOAT32: (8, 0),
}
"""The first compute capability whose tensor cores take an element type."""


def captured_table(workload: CapturedWorkload, machine: MachineOfType, multiprocessors: int) -> CostTable:
    """Return the costs of a captured workload on a GPU with so many multiprocessors.

    Raises:
        ProfileError: the machine's figures do not cover an element type.
    """
    step, known = workload.step, dict[object, _Options]()
    works = (each.work for each in workload.captured.operations if isinstance(each.work, ConvolutionWork))
    channels_last = any(work.channels_last for work in works)

    def options(operation: StepOperation) -> _Options:
        # Types that no workload has are costed as float32.
        element_type = workload.computed_in(operation, ElementType.FLOAT32)
        role = _result(operation)
        # Inference sums over no channels; the heads of attention have the same width there.
        first = operation.operands[:1] if workload.is_training or Arithmetic.PRODUCT in operation.flop else ()
        sizes = step.tensors[first[0].memory].shape if first else ()
        shared = _shared_sum(workload, operation, multiprocessors)
        flop = tuple(operation.flop.items())
        single = single_elements(workload, operation, channels_last=channels_last)
        work = operation.work, operation.bytes_moved, operation.copied_bytes
        key = element_type, role, work, flop, operation.name, sizes, shared, single
        if key not in known:
            model, asked = machine(element_type)
            costs = model.laid_out(channels_last=channels_last)
            found = _options(costs, asked, operation, role, workload, sizes, multiprocessors, (shared.steps, single))
            found = (replace(found[0], workspace_bytes=shared.nbytes),) if shared.nbytes else found
            known[key] = _with_copies(found, costs, asked, operation, workload)
        return known[key]

    phases = dict.fromkeys((each.layer, each.phase) for each in step.operations)
    return CostTable(
        {
            where: tuple(map(KernelCost.joined, _choices([options(each) for each in step.operations_of(*where)])))
            for where in phases
        }
    )


def _shared_sum(workload: CapturedWorkload, operation: StepOperation, multiprocessors: int) -> SharedSum:
    """Return how blocks share a sum of rows, or the workspace of a safe softmax; nothing for other operations."""
    capability = workload.captured.compute_capability
    if operation.name not in (_SUM, _SAFE_SOFTMAX) or capability is None:
        return ALONE
    tensors = workload.step.tensors
    x, y = (
        next(tensors[each.memory].shape for each in operation.operands if each.access.writes is writes)
        for writes in (False, True)
    )
    if operation.name == _SAFE_SOFTMAX:
        return SharedSum(prod(x), 0)
    return sum_of_rows(x, y, multiprocessors, capability)


def single_elements(workload: CapturedWorkload, operation: StepOperation, *, channels_last: bool = False) -> int:
    """Return how many elements a kernel takes one at a time (`vdnnsim.cost.thread_limits`); 0 if it loads words.

    A clone is taken to turn its tensor around, as `contiguous()` does, or there would be none. Tensors are concatenated
    in words where rows are long.
    """
    name, tensors = operation.name, [workload.step.tensors[each.memory] for each in operation.operands]
    if name.startswith(_GROUP_NORM):
        return prod(tensors[0].shape)
    if name.startswith(_FUSED_ADAM):
        pairs = zip(operation.operands, tensors, strict=True)
        return sum(prod(each.shape) for operand, each in pairs if operand.role is Role.WEIGHTS)
    if name.startswith(_RESAMPLING):
        return max(prod(each.shape) for each in tensors)
    if name == _CAT:
        x, y = tensors[0].shape, tensors[-1].shape
        is_map = channels_last and len(x) == _MAP and x[2:] == y[2:]
        lie_together = x[1] if is_map else x[-1] if x[:-1] == y[:-1] else prod(x)
        return prod(y) if lie_together * ELEMENT_BYTES[tensors[0].element_type] < _ROW_BYTES else 0
    is_arithmetic = name.removeprefix("aten.").partition(".")[0].rstrip("_") in _BROADCASTING
    if not (is_arithmetic or name in (*_COPIES, _CLONE)):
        return 0
    tensors = [each for each in tensors if prod(each.shape) > 1]
    widths = [_FLOATS.get(each.element_type, 0) for each in tensors]
    if name in _COPIES:
        is_single = len(widths) > 1 and 0 < widths[0] < widths[-1]
    else:
        is_single = name == _CLONE or len({each.shape for each in tensors}) > 1 or len({*widths} - {0}) > 1
    return max((prod(each.shape) for each in tensors), default=0) if is_single else 0


def _result(operation: StepOperation) -> Role:
    """Return the role of the result of an operation: a weight gradient, an input gradient, or another output."""
    written = {each.role for each in operation.operands if each.access.writes}
    return next((each for each in (Role.WEIGHT_GRADIENT, Role.INPUT_GRADIENT) if each in written), Role.OUTPUT)


def _options(
    machine: MachineCosts,
    element_type: ElementType,
    operation: StepOperation,
    role: Role,
    workload: CapturedWorkload,
    sizes: tuple[int, ...],
    multiprocessors: int,
    limits: tuple[int, int],
) -> _Options:
    if not operation.bytes_moved:
        return _FREE
    match operation.work:
        case ConvolutionWork() as work:
            if is_plane(work):
                options = _convolution(machine, element_type, work)
            else:
                options = (
                    machine.kernel(KernelWork("convolution", element_type, operation.flop, operation.bytes_moved)),
                )
            if _on_tensor_cores(workload, element_type):
                capability = workload.captured.compute_capability
                chosen = chosen_workspaces(work, element_type, capability, multiprocessors)
                several = chosen if len(chosen) > 1 else ()
                return (replace(options[0], workspace_bytes=max(chosen), workspaces=several), *options[1:])
            return options
        case ProductWork(batch=1) as work:
            alone, layer, phase = product_layer(work, role, workload.part_size, element_type)
            return machine.table(alone).options(layer.index, phase)
        case ProductWork() as work:
            name, sizes = "product", (work.batch, work.m, work.n, work.k)
        case _:
            name = attention_taken(operation.name, element_type, workload.captured.compute_capability)
    return (machine.kernel(KernelWork(name, element_type, operation.flop, operation.bytes_moved, sizes, *limits)),)


def _with_copies(
    options: _Options,
    machine: MachineCosts,
    element_type: ElementType,
    operation: StepOperation,
    workload: CapturedWorkload,
) -> _Options:
    """Return options behind the copies of operands, whose elements are taken one at a time as those of a clone."""
    nbytes = operation.copied_bytes
    if not nbytes:
        return options
    width = ELEMENT_BYTES[workload.step.tensors[operation.operands[0].memory].element_type]
    copy = machine.kernel(KernelWork(_CLONE, element_type, {}, 2 * nbytes, elements=nbytes // width))
    return tuple(
        replace(KernelCost.joined((copy, each)), algorithm=each.algorithm, parts=(), workspaces=each.workspaces)
        for each in options
    )


def _on_tensor_cores(workload: CapturedWorkload, element_type: ElementType) -> bool:
    """Whether convolutions run on tensor cores; from Ampere on float32 does as TF32, which PyTorch allows there."""
    capability = workload.captured.compute_capability
    return capability is not None and capability >= _TENSOR_CORES[element_type]


def is_plane(work: ConvolutionWork) -> bool:
    """Whether a convolution is one that built layers can be: not transposed or dilated, of two dimensions at most."""
    return not work.transposed and len(work.kernel) <= _PLANE and set(work.dilation) == {1}


def convolution_phases(work: ConvolutionWork) -> tuple[Phase, ...]:
    """Return the phases of a layer that a convolution computes, in the order in which they run."""
    return tuple(_CONVOLUTION_PHASES[each] for each in work.computes if each in _CONVOLUTION_PHASES) or (Phase.FORWARD,)


def convolution_layer(work: ConvolutionWork, element_type: ElementType) -> tuple[Workload, Layer]:
    """Return the layer of a convolution, in a workload of its own."""
    # In one dimension rows are one pixel high.
    height, width = (1, *work.input_size)[-2:]
    operator = Convolution(
        work.output_channels,
        _pair(work.kernel, 1),
        _pair(work.stride, 1),
        _pair(work.padding, 0),
        bias=work.bias,
        groups=work.groups,
    )
    return _alone(element_type, operator, MapShape(work.input_channels, height, width), work.batch_size)


def product_layer(
    work: ProductWork, role: Role, batch_size: int, element_type: ElementType
) -> tuple[Workload, Layer, Phase]:
    """Return the layer of a product, whose rows are images or steps of sequences, and its phase."""
    match role:
        case Role.WEIGHT_GRADIENT:
            rows, inputs, outputs, phase = work.k, work.n, work.m, Phase.BACKWARD_WEIGHTS
        case Role.INPUT_GRADIENT:
            rows, inputs, outputs, phase = work.m, work.n, work.k, Phase.BACKWARD_DATA
        case _:
            rows, inputs, outputs, phase = work.m, work.k, work.n, Phase.FORWARD
    if rows <= batch_size or rows % batch_size:
        return *_alone(element_type, FullyConnected(outputs), MapShape(inputs), rows), phase
    return *_alone(element_type, Linear(outputs), MapShape(inputs, steps=rows // batch_size), batch_size), phase


def _convolution(machine: MachineCosts, element_type: ElementType, work: ConvolutionWork) -> _Options:
    workload, layer = convolution_layer(work, element_type)
    kernels = [machine.table(workload).options(layer.index, phase) for phase in convolution_phases(work)]
    return tuple(replace(KernelCost.joined(each), parts=()) for each in _choices(kernels))


def _alone(element_type: ElementType, operator: Operator, x: MapShape, batch_size: int) -> tuple[Workload, Layer]:
    """Return a layer between a normalization and a loss, so that it has a dX and a dY."""
    net = GraphBuilder(f"{operator} of {x}", x)
    below = net.batch_norm("below", 0, relu=False)
    layer = net.append("layer", operator, (below,))
    workload = Workload(net.build(layer.output), batch_size, element_type)
    return workload, workload.graph.layers[layer.index]


def _choices(kernels: Sequence[_Options]) -> list[tuple[KernelCost, ...]]:
    """Return for every workspace that makes a difference the fastest of each kernel within it, the fastest first."""
    limits = sorted({option.workspace_bytes for options in kernels for option in options})
    chosen = dict.fromkeys(tuple(fastest_of(options, limit) for options in kernels) for limit in limits)
    return sorted(chosen, key=lambda each: (sum(x.seconds for x in each), max(x.workspace_bytes for x in each)))


def _pair(sizes: tuple[int, ...], lacking: int) -> tuple[int, int]:
    height, width = (lacking, *sizes)[-2:]
    return height, width
