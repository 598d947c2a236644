"""What the operations of a captured step cost: convolutions and products as the layers that they are, all else by work.

A convolution, or a product of matrices, is a phase of a layer that we could build; it costs what the machine's model
says of that layer, with all its algorithms. Everything else is a kernel of which the FLOPs and the compulsory traffic
are known. Operations that move no bytes launch nothing.

Of several kernels that run one after the other, as a convolution's two backwards, each takes its fastest algorithm
within the same workspace: one option for each workspace that makes a difference.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from vdnnsim.cost.table import ONLY, CostTable, KernelCost, MachineCosts, fastest_of
from vdnnsim.dnn.captured_step import ConvolutionWork, ProductWork
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.convolutional import Convolution, FullyConnected
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.sequences import Linear
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Role, StepOperation
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.server import Origin

MachineOfType = Callable[[ElementType], tuple[MachineCosts, ElementType]]
"""What times kernels that compute in an element type, and as which."""

_Options = tuple[KernelCost, ...]
_FREE: Final[_Options] = (KernelCost(ONLY, 0.0, 0, Origin.DATASHEET),)
_CONVOLUTION_PHASES: Final = {"input": Phase.BACKWARD_DATA, "weight": Phase.BACKWARD_WEIGHTS}
_PLANE: Final = 2


def captured_table(workload: CapturedWorkload, machine: MachineOfType) -> CostTable:
    """Return the costs of a captured workload.

    Raises:
        ProfileError: the machine's figures do not cover an element type.
    """
    step, known = workload.step, dict[object, _Options]()
    works = (each.work for each in workload.captured.operations if isinstance(each.work, ConvolutionWork))
    channels_last = any(work.channels_last for work in works)

    def options(operation: StepOperation) -> _Options:
        captured = operation.captured
        assert captured is not None, "an operation of a network that we build has a layer"
        # Numbers that are none of a workload's move as float32 does.
        element_type = workload.computed_in(captured, ElementType.FLOAT32)
        role = _result(operation)
        # Inference sums over no channels.
        first = operation.operands[:1] if workload.is_training else ()
        sizes = step.tensors[first[0].memory].shape if first else ()
        key = element_type, role, captured.work, operation.bytes_moved, tuple(operation.flop.items()), captured.name
        if (*key, sizes) not in known:
            model, asked = machine(element_type)
            laid_out = model.laid_out(channels_last=channels_last)
            known[*key, sizes] = _options(laid_out, asked, operation, role, workload.part_size, sizes)
        return known[*key, sizes]

    phases = dict.fromkeys((each.layer, each.phase) for each in step.operations)
    return CostTable(
        {
            where: tuple(map(KernelCost.joined, _choices([options(each) for each in step.operations_of(*where)])))
            for where in phases
        }
    )


def _result(operation: StepOperation) -> Role:
    """Return what an operation makes: a gradient of weights, of an input, or something else."""
    written = {each.role for each in operation.operands if each.access.writes}
    return next((each for each in (Role.WEIGHT_GRADIENT, Role.INPUT_GRADIENT) if each in written), Role.OUTPUT)


def _options(
    machine: MachineCosts,
    element_type: ElementType,
    operation: StepOperation,
    role: Role,
    batch_size: int,
    sizes: tuple[int, ...],
) -> _Options:
    captured = operation.captured
    assert captured is not None, "an operation of a network that we build has a layer"
    if not operation.bytes_moved:
        return _FREE
    match captured.work:
        case ConvolutionWork() as work if _is_plane(work):
            return _convolution(machine, element_type, work)
        case ProductWork(batch=1) as work:
            return _product(machine, element_type, work, role, batch_size)
        case ProductWork() as work:
            name, sizes = "product", (work.batch, work.m, work.n, work.k)
        case _:
            name = "product" if captured.work else captured.name
            sizes = () if captured.work else sizes
    return (machine.kernel(name, element_type, operation.flop, operation.bytes_moved, sizes),)


def _is_plane(work: ConvolutionWork) -> bool:
    """Whether a convolution is one that our layers can be."""
    return not work.transposed and len(work.kernel) <= _PLANE and set(work.dilation) == {1}


def _convolution(machine: MachineCosts, element_type: ElementType, work: ConvolutionWork) -> _Options:
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
    phases = [_CONVOLUTION_PHASES[each] for each in work.computes if each in _CONVOLUTION_PHASES] or [Phase.FORWARD]
    x = MapShape(work.input_channels, height, width)
    kernels = [_of_layer(machine, element_type, operator, x, work.batch_size, phase) for phase in phases]
    return tuple(_as_one(each) for each in _choices(kernels))


def _product(
    machine: MachineCosts, element_type: ElementType, work: ProductWork, role: Role, batch_size: int
) -> _Options:
    """Return what a product costs, as the phase that it is of a layer whose rows are images, or steps of sequences."""
    match role:
        case Role.WEIGHT_GRADIENT:
            rows, inputs, outputs, phase = work.k, work.n, work.m, Phase.BACKWARD_WEIGHTS
        case Role.INPUT_GRADIENT:
            rows, inputs, outputs, phase = work.m, work.n, work.k, Phase.BACKWARD_DATA
        case _:
            rows, inputs, outputs, phase = work.m, work.k, work.n, Phase.FORWARD
    if rows <= batch_size or rows % batch_size:
        return _of_layer(machine, element_type, FullyConnected(outputs), MapShape(inputs), rows, phase)
    x = MapShape(inputs, steps=rows // batch_size)
    return _of_layer(machine, element_type, Linear(outputs), x, batch_size, phase)


def _of_layer(
    machine: MachineCosts, element_type: ElementType, operator: Operator, x: MapShape, batch_size: int, phase: Phase
) -> _Options:
    """Return what a phase of a layer costs that stands alone, but for one below it and a loss: it has a dX and a dY."""
    net = GraphBuilder(f"{operator} of {x}", x)
    below = net.batch_norm("below", 0, relu=False)
    layer = net.append("layer", operator, (below,))
    return machine.table(Workload(net.build(layer.output), batch_size, element_type)).options(layer.index, phase)


def _choices(kernels: Sequence[_Options]) -> list[tuple[KernelCost, ...]]:
    """Return for every workspace that makes a difference the fastest of each kernel within it, the fastest first."""
    limits = sorted({option.workspace_bytes for options in kernels for option in options})
    chosen = dict.fromkeys(tuple(fastest_of(options, limit) for options in kernels) for limit in limits)
    return sorted(chosen, key=lambda each: (sum(x.seconds for x in each), max(x.workspace_bytes for x in each)))


def _as_one(kernels: tuple[KernelCost, ...]) -> KernelCost:
    return replace(KernelCost.joined(kernels), parts=())


def _pair(sizes: tuple[int, ...], lacking: int) -> tuple[int, int]:
    height, width = (lacking, *sizes)[-2:]
    return height, width
