"""The cost model for cuDNN on Maxwell and Pascal, with parameters fitted per machine.

A convolution gets every algorithm that can compute the phase, the bias pass in its time and DRAM traffic. Any other
kernel, of a transposed convolution, too, is one roofline:

    max(FLOPs / (arithmetic peak x fraction), bytes / (DRAM bandwidth x fraction)) + overhead

with the FLOPs and the compulsory traffic of the step. Matrix products reach a fraction of the peak; all else, and every
weight update, streams through memory. Layers of equal shape are computed once.

Source: Williams, Waterman and Patterson, Roofline, Communications of the ACM 52(4), 2009.
Known limitation: the traffic is that of perfect caches.
"""

from collections.abc import Hashable, Mapping

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_bytes, bias_s, convolution_bytes, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.rate_origins import RatedModel
from vdnnsim.cost.table import KernelCost, KernelWork, MachineCosts
from vdnnsim.cost.workspace import algorithms, workspace_bytes
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType


class MaxwellCosts(MachineCosts):
    """The costs of kernels by this model on one server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._machines: dict[ElementType, RatedModel[Machine]] = {}

    def kernel(self, work: KernelWork) -> KernelCost:
        rated, nbytes = self._machine(work.element_type), work.nbytes - work.found_bytes(self._server.gpu.l2_bytes)
        return rated.cost(lambda machine: kernel_s(machine, work.flop, nbytes), nbytes)

    def _machine(self, element_type: ElementType) -> RatedModel[Machine]:
        server = self._server
        if element_type not in self._machines:
            self._machines[element_type] = RatedModel(
                server,
                lambda values: Machine.of_server(
                    server, element_type, CostParameters.from_mapping(server.name, values)
                ),
            )
        return self._machines[element_type]

    def _alike(self, workload: Workload, layer: Layer, phase: Phase) -> Hashable:
        element_type = workload.arithmetic_type(layer, phase)
        if _is_convolution(layer, phase):
            return element_type, phase, layer.operator, layer.in_shapes
        operation = workload.step.operation(layer.index, phase)
        return element_type, tuple(operation.flop.items()), operation.bytes_moved

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        if not _is_convolution(layer, phase):
            return super()._options(workload, layer, phase)
        rated = self._machine(workload.arithmetic_type(layer, phase))
        shape, machine = ConvolutionShape.of_layer(layer, workload.part_size), rated.model

        def cost(algorithm: str) -> KernelCost:
            return rated.cost(
                lambda each: convolution_s(each, shape, phase, algorithm) + bias_s(each, shape, phase),
                convolution_bytes(machine, shape, phase, algorithm) + bias_bytes(machine, shape, phase),
                algorithm,
                workspace_bytes(shape, phase, algorithm, machine.element_bytes),
            )

        options = map(cost, algorithms(shape, phase, winograd=machine.parameters.has_winograd))
        return tuple(sorted(options, key=lambda option: (option.seconds, option.workspace_bytes, option.algorithm)))


def kernel_s(machine: Machine, flop: Mapping[Arithmetic, int], nbytes: int) -> float:
    """Return the seconds of a kernel that is no convolution, by the FLOPs that it computes and its DRAM traffic."""
    p = machine.parameters
    fractions = {Arithmetic.PRODUCT: p.product_flop_fraction, Arithmetic.ELEMENTWISE: 1.0}
    arithmetic_s = sum(count / (machine.flop_per_s * fractions[kind]) for kind, count in flop.items())
    return max(arithmetic_s, nbytes / (machine.dram_bytes_per_s * p.stream_dram_fraction)) + p.kernel_overhead_s


def _is_convolution(layer: Layer, phase: Phase) -> bool:
    return isinstance(layer.operator, Convolution) and phase is not Phase.UPDATE
