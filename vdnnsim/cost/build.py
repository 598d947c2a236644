"""Fills the cost table of a workload on a server.

A CONV layer gets every algorithm that can compute the phase, the bias pass in its time and DRAM traffic; any other
kernel is one roofline. Layers of equal shape are computed once, so a VGG with 416 CONV layers costs what its distinct
layers do.
"""

from collections.abc import Hashable

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_bytes, bias_s, convolution_bytes, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.roofline import roofline_s
from vdnnsim.cost.table import ONLY, CostTable, KernelCost
from vdnnsim.cost.workspace import algorithms, workspace_bytes
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin, Server


def build_cost_table(workload: Workload, server: Server) -> CostTable:
    """Return seconds, workspace and DRAM traffic of every kernel that a workload may launch.

    Raises:
        ProfileError: the profile lacks the rate of the element type, or a parameter of the cost model.
    """
    machine = Machine.of_server(server, workload.element_type)
    known: dict[Hashable, tuple[KernelCost, ...]] = {}
    kernels: dict[tuple[int, Phase], tuple[KernelCost, ...]] = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            key = _same_cost(workload, layer, phase)
            if key not in known:
                known[key] = _options(machine, workload, layer, phase)
            kernels[layer.index, phase] = known[key]
    return CostTable(kernels)


def _same_cost(workload: Workload, layer: Layer, phase: Phase) -> Hashable:
    if _is_convolution(layer, phase):
        return phase, layer.operator, layer.in_shapes
    return phase, layer.kind, workload.flop(layer, phase), workload.bytes_moved(layer, phase)


def _options(machine: Machine, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
    if not _is_convolution(layer, phase):
        flop, nbytes = workload.flop(layer, phase), workload.bytes_moved(layer, phase)
        seconds = roofline_s(machine, layer.kind, phase, flop, nbytes)
        return (KernelCost(ONLY, seconds, 0, Origin.FITTED, dram_bytes=nbytes),)
    shape = ConvolutionShape.of_layer(layer, workload.batch_size)
    options = [
        KernelCost(
            algorithm=algorithm,
            seconds=convolution_s(machine, shape, phase, algorithm) + bias_s(machine, shape, phase),
            workspace_bytes=workspace_bytes(shape, phase, algorithm, machine.element_bytes),
            origin=Origin.FITTED,
            dram_bytes=convolution_bytes(machine, shape, phase, algorithm) + bias_bytes(machine, shape, phase),
        )
        for algorithm in algorithms(shape, phase)
    ]
    return tuple(sorted(options, key=lambda option: (option.seconds, option.workspace_bytes, option.algorithm)))


def _is_convolution(layer: Layer, phase: Phase) -> bool:
    return layer.kind is LayerKind.CONV and phase is not Phase.UPDATE
