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

from vdnnsim.cost.convolution_shape import LOAD_BYTES, convolution_phases, multiple
from vdnnsim.cost.fused_attention import attention_taken
from vdnnsim.cost.operation_kinds import CLONE, SAFE_SOFTMAX, SHARING, OperationKind, kinds_of
from vdnnsim.cost.pytorch_workspace import ALONE, SharedSum, chosen_workspaces, sum_of_rows
from vdnnsim.cost.recurrent import recurrent_cost
from vdnnsim.cost.table import ONLY, CostTable, KernelCost, KernelWork, MachineCosts, fastest_of
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import Convolution, FullyConnected
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import NO_SECTORS, ConvolutionWork, ProductWork, RecurrentWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Operator
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
_PLANE: Final = 2
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
    found = kinds_of(workload)
    known = dict[object, _Options]()

    def options(kind: OperationKind) -> _Options:
        operation, element_type = kind.operation, kind.element_type
        shared = _shared_sum(workload, operation, multiprocessors)
        key = kind.key, shared
        if key not in known:
            model, asked = machine(element_type)
            costs, limits = model.laid_out(channels_last=found.channels_last), (shared.steps, kind.single)
            made = _options(costs, asked, operation, kind.role, workload, kind.sizes, multiprocessors, limits)
            made = (replace(made[0], workspace_bytes=shared.nbytes),) if shared.nbytes else made
            known[key] = _with_copies(made, costs, asked, operation, workload)
        return known[key]

    costs = tuple(map(options, found.kinds))
    joined = {
        numbers: tuple(map(KernelCost.joined, _choices([costs[each] for each in numbers])))
        for numbers in dict.fromkeys(found.of_phases.values())
    }
    return CostTable({where: joined[numbers] for where, numbers in found.of_phases.items()})


def _shared_sum(workload: CapturedWorkload, operation: StepOperation, multiprocessors: int) -> SharedSum:
    """Return how blocks share a sum of rows, or the workspace of a safe softmax; nothing for other operations."""
    capability = workload.captured.compute_capability
    if operation.name not in SHARING or capability is None:
        return ALONE
    tensors = workload.step.tensors
    x, y = (
        next(tensors[each.memory].shape for each in operation.operands if each.access.writes is writes)
        for writes in (False, True)
    )
    if operation.name == SAFE_SOFTMAX:
        return SharedSum(prod(x), 0)
    return sum_of_rows(x, y, multiprocessors, capability)


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
                flop, nbytes = operation.flop, operation.bytes_moved
                options = (machine.kernel(KernelWork("convolution", element_type, flop, nbytes, convolution=work)),)
            if _on_tensor_cores(workload, element_type):
                capability = workload.captured.compute_capability
                chosen = chosen_workspaces(work, element_type, capability, multiprocessors)
                several = chosen if len(chosen) > 1 else ()
                return (replace(options[0], workspace_bytes=max(chosen), workspaces=several), *options[1:])
            return options
        case ProductWork(batch=1) as work:
            work = _padded(work, element_type) if workload.captured.compiled else work
            alone, layer, phase = product_layer(work, role, workload.part_size, element_type)
            return machine.table(alone).options(layer.index, phase)
        case RecurrentWork() as work if not machine.has_measured(operation.name):
            return (recurrent_cost(machine, element_type, work),)
        case ProductWork() as work:
            name, sizes = "product", (work.batch, work.m, work.n, work.k)
        case _:
            name = attention_taken(operation.name, element_type, workload.captured.compute_capability)
    limited = (*limits, NO_SECTORS if operation.copied_bytes else operation.sectors)
    return (machine.kernel(KernelWork(name, element_type, operation.flop, operation.bytes_moved, sizes, *limited)),)


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
    sectors = operation.sectors
    copy = machine.kernel(KernelWork(CLONE, element_type, {}, 2 * nbytes, elements=nbytes // width, sectors=sectors))
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


def _padded(work: ProductWork, element_type: ElementType) -> ProductWork:
    """Return a product as Inductor pads it, so that rows begin at multiples of 16 B; copies to pad are left out."""
    m, n, k = (multiple(each, LOAD_BYTES // element_type.nbytes) for each in (work.m, work.n, work.k))
    return ProductWork(work.batch, m, n, k)


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
