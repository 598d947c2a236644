"""Fills the cost table of a workload on a server.

Where kernels of the element type were measured, they and what is predicted from them make up the table
(`vdnnsim.cost.measured`). Elsewhere it is the cost model: a CONV layer gets every algorithm that can compute the phase,
the bias pass in its time and DRAM traffic; any other kernel is one roofline. Layers of equal shape are computed once,
so a VGG with 416 CONV layers costs what its distinct layers do.
"""

from collections.abc import Hashable, Iterable
from dataclasses import replace

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_bytes, bias_s, convolution_bytes, convolution_s
from vdnnsim.cost.kernel_file import read_measured_kernels
from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.cost.machine import Machine, model_origin, peak_roofline
from vdnnsim.cost.measured import MeasuredKernelCosts
from vdnnsim.cost.roofline import roofline_s
from vdnnsim.cost.table import ONLY, CostTable, KernelCost
from vdnnsim.cost.workspace import algorithms, workspace_bytes
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.messages import file_name


def build_cost_table(workload: Workload, server: Server) -> CostTable:
    """Return seconds, workspace and DRAM traffic of every kernel that a workload may launch.

    Raises:
        ProfileError: the profile has no kernel of the element type and no model for it, or one of them is wrong.
    """
    source = cost_source(server.name, server, workload.element_type)
    origin = model_origin(server)
    known: dict[Hashable, tuple[KernelCost, ...]] = {}
    kernels: dict[tuple[int, Phase], tuple[KernelCost, ...]] = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            if isinstance(source, MeasuredKernelCosts):
                shape = KernelShape.of(workload, layer, phase)
                if shape not in known:
                    known[shape] = source.options(
                        shape, workload.flop(layer, phase), workload.bytes_moved(layer, phase)
                    )
                kernels[layer.index, phase] = known[shape]
                continue
            key = _same_cost(workload, layer, phase)
            if key not in known:
                known[key] = _options(source, origin, workload, layer, phase)
            kernels[layer.index, phase] = known[key]
    gap = ""
    if isinstance(source, Machine) and server.kernels is not None:
        rows = read_measured_kernels(server.kernels)
        gap = f"{server.kernels.table.name} {_gap(rows, workload.element_type)}; workspaces are those of formulas"
    return CostTable(kernels, _OtherBatches(workload, server), gap)


class _OtherBatches:
    """The cost tables of a workload with other batch sizes, each built once."""

    def __init__(self, workload: Workload, server: Server) -> None:
        self._workload = workload
        self._server = server
        self._known: dict[int, CostTable] = {}

    def __call__(self, images: int) -> CostTable:
        """Return the table for a batch of so many images."""
        if images not in self._known:
            self._known[images] = build_cost_table(replace(self._workload, batch_size=images), self._server)
        return self._known[images]


def cost_source(name: str, server: Server, element_type: ElementType) -> MeasuredKernelCosts | Machine:
    """Return what times the kernels of a server: those that were measured, else its cost model.

    Args:
        name: of the profile, for messages.
        server: the machine.
        element_type: of the kernels.

    Raises:
        ProfileError: it has neither for the element type, or one of them is wrong.
    """
    if server.kernels is not None:
        rows = read_measured_kernels(server.kernels)
        if element_type.value in _timed(rows):
            return MeasuredKernelCosts(rows, peak_roofline(server, element_type), element_type)
        if not server.cost_model:
            raise ProfileError(f"{file_name(server.kernels.table)}: {_gap(rows, element_type)}")
    elif not server.cost_model:
        raise ProfileError(f"{name}: has neither kernels nor a cost_model, so nothing can be timed on it")
    return Machine.of_server(server, element_type)


def _timed(rows: Iterable[KernelRow]) -> set[str]:
    return {row.shape.element_type.value for row in rows if row.seconds is not None}


def _gap(rows: Iterable[KernelRow], element_type: ElementType) -> str:
    return f"times no kernel in {element_type.value}, only in {', '.join(sorted(_timed(rows))) or 'none'}"


def _same_cost(workload: Workload, layer: Layer, phase: Phase) -> Hashable:
    if _is_convolution(layer, phase):
        return phase, layer.operator, layer.in_shapes
    return phase, layer.kind, workload.flop(layer, phase), workload.bytes_moved(layer, phase)


def _options(
    machine: Machine, origin: Origin, workload: Workload, layer: Layer, phase: Phase
) -> tuple[KernelCost, ...]:
    if not _is_convolution(layer, phase):
        flop, nbytes = workload.flop(layer, phase), workload.bytes_moved(layer, phase)
        seconds = roofline_s(machine, layer.kind, phase, flop, nbytes)
        return (KernelCost(ONLY, seconds, 0, origin, dram_bytes=nbytes),)
    shape = ConvolutionShape.of_layer(layer, workload.batch_size)
    options = [
        KernelCost(
            algorithm=algorithm,
            seconds=convolution_s(machine, shape, phase, algorithm) + bias_s(machine, shape, phase),
            workspace_bytes=workspace_bytes(shape, phase, algorithm, machine.element_bytes),
            origin=origin,
            dram_bytes=convolution_bytes(machine, shape, phase, algorithm) + bias_bytes(machine, shape, phase),
        )
        for algorithm in algorithms(shape, phase, winograd=machine.parameters.has_winograd)
    ]
    return tuple(sorted(options, key=lambda option: (option.seconds, option.workspace_bytes, option.algorithm)))


def _is_convolution(layer: Layer, phase: Phase) -> bool:
    return layer.kind is LayerKind.CONV and phase is not Phase.UPDATE
