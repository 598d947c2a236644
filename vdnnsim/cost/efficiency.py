"""The cost model of modern GPUs: kernel times by the fractions of the peaks that their kinds reach.

    cost_model:
      kind: efficiency
      launch_overhead_s: {value: 2e-06, origin: fitted, source: "..."}
      tensor_flop_fraction: {...}                 # and so on, `vdnnsim.cost.efficiency_parameters`

A layer is one kernel in each phase (`vdnnsim.cost.efficiency_time`), fully connected layers are products of matrices.
In float32, convolutions and fused attention are TF32's where the profile states a peak of it, unless its table of
kernels is without; products of matrices are CUDA cores', as in PyTorch by default.
The model has no workspaces; where a table of kernels states them, `StatedWorkspaces` combines its workspaces and
algorithms with these times.
"""

import math
from collections.abc import Hashable
from dataclasses import replace
from functools import cached_property
from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape, convolution_phases
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters, OperatorKind, operator_kind
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.cost.fused_attention import FUSED, AttentionKernel
from vdnnsim.cost.machine import peak_flop_per_s
from vdnnsim.cost.rate_origins import RatedModel
from vdnnsim.cost.table import RECURRENT, KernelCost, KernelWork, MachineCosts
from vdnnsim.cost.thread_limits import (
    group_normalization_wait_s,
    joined_sum_wait_s,
    normalization_wait_s,
    single_elements_s,
    threads_s,
)
from vdnnsim.cost.tiled_product import TILE_ROWS, TiledProduct
from vdnnsim.cost.workspace import FLOAT_BYTES
from vdnnsim.dnn.convolutional import Convolution, FullyConnected
from vdnnsim.dnn.elementwise import Cast
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.sequences import Linear
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType, Precision

_NATIVE_BATCH_NORM: Final = "native_batch_norm"
_GROUP_NORM: Final = "native_group_norm"
_OWN_NORMALIZATION: Final = (Precision.FLOAT16, Precision.BFLOAT16, Precision.AMP_BFLOAT16)
"""In which PyTorch takes its own batch normalization instead of cuDNN's: of narrow weights, and of bfloat16."""

_TRANSPOSED: Final = {Phase.FORWARD: Phase.BACKWARD_DATA, Phase.BACKWARD_DATA: Phase.FORWARD}
"""The phases of the convolution of which a transposed one is the data gradient."""


def efficient_gpu(server: Server) -> EfficientGpu:
    """Return the GPU of a server, with the parameters of its profile.

    Raises:
        ProfileError: the profile lacks a parameter, has one that this model does not know, or one out of range.
    """
    power = server.power
    if power is not None and power.limit_watts <= power.idle_watts:
        found = f"found {power.limit_watts:g} W, expected more than the {power.idle_watts:g} W of power.idle"
        raise ProfileError(f"{server.name}: power.limit: {found}")
    return EfficientGpu(
        parameters=EfficiencyParameters.from_mapping(server.name, server.cost_model),
        flop_per_s=server.gpu.flop_per_s,
        dram_bytes_per_s=server.gpu.dram_bytes_per_s,
        multiprocessors=server.gpu.multiprocessors,
        power=power,
    )


class EfficiencyCosts(MachineCosts):
    """The costs of kernels by the efficiencies of one server.

    Args:
        channels_last: whether maps are N, H, W, C; by default as in its table of kernels.

    Raises:
        ProfileError: as of `efficient_gpu`.
    """

    gap = "the model of efficiencies knows no workspaces, so none count"

    def __init__(self, server: Server, *, channels_last: bool | None = None) -> None:
        super().__init__()
        self._server = server
        self._gpu = RatedModel(server, lambda values: efficient_gpu(replace(server, cost_model=values)))
        table = server.kernels
        self._channels_last = bool(table and table.channels_last) if channels_last is None else channels_last

    def laid_out(self, *, channels_last: bool) -> MachineCosts:
        return self if channels_last is self._channels_last else self._other

    @cached_property
    def _other(self) -> "EfficiencyCosts":
        return EfficiencyCosts(self._server, channels_last=not self._channels_last)

    def kernel(self, work: KernelWork) -> KernelCost:
        """Return what a kernel costs: a product by its sizes, what streams by its kind."""
        name, nbytes = work.name, work.nbytes
        if work.convolution is not None:
            return self._convolution(work.convolution, work.element_type, nbytes)
        if Arithmetic.PRODUCT not in work.flop:
            is_own, is_gradient = _NATIVE_BATCH_NORM in name, "_backward" in name
            if _GROUP_NORM in name:
                elements = work.elements
                return self._gpu.cost(lambda gpu: _group_norm_s(gpu, nbytes, elements, is_gradient=is_gradient), nbytes)
            return self._stream(operator_kind(name), work, is_own=is_own, is_gradient=is_gradient)
        if name in ("product", RECURRENT):
            count, rows, columns, depth = work.sizes
            element_type, found = work.element_type, work.found_bytes(self._server.gpu.l2_bytes)
            if name == RECURRENT:
                element_type, row_elements = self._server.convolution_type(element_type), 0
            else:
                # Rows of one operand are as long as the products are deep; those of attention, of both or of a head.
                row_elements = depth
            element_type = self._with_peak(element_type)
            product = TiledProduct(rows, columns, depth, count=count, row_elements=row_elements)
            return self._gpu.cost(lambda gpu: gpu.product_s(element_type, product, found_bytes=found), nbytes - found)
        unit = self._with_peak(self._server.convolution_type(work.element_type))
        flop, attention = work.flop[Arithmetic.PRODUCT], work.sizes if FUSED in name else ()
        backward, kernel = "_backward" in name, AttentionKernel.of(name)
        return self._gpu.cost(
            lambda gpu: gpu.work_s(unit, flop, nbytes, attention, kernel, is_gradient=backward), nbytes
        )

    def _convolution(self, work: ConvolutionWork, element_type: ElementType, nbytes: int) -> KernelCost:
        """Return what a convolution costs that no layer can be; its gradients are a kernel each."""
        shape, unit = ConvolutionShape.of_work(work), self._with_peak(self._server.convolution_type(element_type))
        phases, groups, last = convolution_phases(work), work.groups, self._channels_last
        added = work.transposed * work.bias * work.batch_size * work.output_channels * math.prod(work.output_size)

        def seconds(gpu: EfficientGpu, phase: Phase) -> float:
            kernel = _TRANSPOSED.get(phase, phase) if work.transposed else phase
            product_s = gpu.convolution_s(unit, shape, kernel, groups=groups, channels_last=last)
            return product_s + gpu.bias_s(unit, added, phase)

        return self._gpu.cost(lambda gpu: sum(seconds(gpu, phase) for phase in phases), nbytes)

    def _alike(self, workload: Workload, layer: Layer, phase: Phase) -> Hashable:
        return layer.operator, layer.in_shapes, phase, workload.step.operation(layer.index, phase).bytes_moved

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        operator, images = layer.operator, workload.part_size
        nbytes = workload.step.operation(layer.index, phase).bytes_moved
        if phase is Phase.UPDATE:
            return (self._stream(OperatorKind.UPDATE, KernelWork("update", workload.element_type, {}, nbytes)),)
        element_type = workload.arithmetic_type(layer, phase)
        match operator:
            case Convolution():
                shape = ConvolutionShape.of_layer(layer, images)
                one = replace(shape, n=shape.n // operator.groups)
                unit = self._with_peak(self._server.convolution_type(element_type))
                groups, last = operator.groups, self._channels_last
                found = self._gpu.cost(
                    lambda gpu: gpu.convolution_s(unit, one, phase, groups=groups, channels_last=last), nbytes
                )
                return (found,)
            case FullyConnected() | Linear():
                y, unit = layer.out_shape, self._with_peak(element_type)
                product = _linear(images * (y.elements // y.channels), layer.work.filter_elements, y.channels, phase)
                return (self._gpu.cost(lambda gpu: gpu.product_s(unit, product), nbytes),)
            case _ if operator.arithmetic is Arithmetic.PRODUCT:
                return super()._options(workload, layer, phase)
            case _:
                x, kind = layer.in_shapes[0], operator_kind(operator.name, phase)
                sizes = (images, x.channels, x.elements // x.channels) if workload.is_training else ()
                widens = isinstance(operator, Cast) and (operator.to is ElementType.FLOAT32) is not phase.is_backward
                elements = images * x.elements if widens else 0
                work = KernelWork(operator.name, element_type, {}, nbytes, sizes, elements=elements)
                is_own = workload.precision in _OWN_NORMALIZATION
                return (self._stream(kind, work, is_own=is_own, is_gradient=phase.is_backward),)

    def _with_peak(self, element_type: ElementType) -> ElementType:
        """Return an element type, for products of which there must be a peak."""
        peak_flop_per_s(self._server, element_type)
        return element_type

    def _stream(
        self, kind: OperatorKind, work: KernelWork, *, is_own: bool = False, is_gradient: bool = False
    ) -> KernelCost:
        nbytes, sizes, last = work.nbytes, work.sizes, self._channels_last
        channels = sizes[1] if kind is OperatorKind.NORMALIZATION and len(sizes) > 1 else 0
        if is_own and channels and not last:
            return self._gpu.cost(lambda gpu: gpu.own_normalization_s(nbytes, sizes, is_gradient=is_gradient), nbytes)
        count = self._server.gpu.multiprocessors
        least_s = threads_s(work, count, channels_last=last)
        if 0 < self._server.gpu.l2_bytes < work.sectors.window_bytes:
            nbytes = work.sectors.nbytes
        if channels and not last:
            least_s = max(least_s, normalization_wait_s(sizes, count, is_gradient=is_gradient))
        joined_s = joined_sum_wait_s(work.summed_parts)
        layout = {"channels_last": last, "is_own": is_own}
        return self._gpu.cost(
            lambda gpu: gpu.stream_s(kind, nbytes, channels, least_s=least_s, **layout) + joined_s, nbytes
        )


def _group_norm_s(gpu: EfficientGpu, nbytes: int, elements: int, *, is_gradient: bool) -> float:
    """Return the seconds of a group normalization: sums over X, or X and dY, and what reads these again.

    The first kernel reads one of three passes, of backward two of five
    (aten/src/ATen/native/cuda/group_norm_kernel.cu).
    """
    p, summed_bytes = gpu.parameters, 2 * nbytes // 5 if is_gradient else nbytes // 3
    seconds = group_normalization_wait_s(elements, gpu.multiprocessors) + p.launch_overhead_s
    seconds += summed_bytes / (gpu.dram_bytes_per_s * p.normalization_dram_fraction)
    least_s = single_elements_s(elements, gpu.multiprocessors)
    return seconds + gpu.stream_s(OperatorKind.POINTWISE, nbytes - summed_bytes, least_s=least_s)


def _linear(rows: int, inputs: int, outputs: int, phase: Phase) -> TiledProduct:
    match phase:
        case Phase.BACKWARD_DATA:
            return TiledProduct(inputs, rows, outputs, row_elements=math.gcd(inputs, outputs))
        case Phase.BACKWARD_WEIGHTS:
            # A library splits the depth of a product of one tile among multiprocessors.
            is_one_tile = max(outputs, inputs) <= TILE_ROWS[-1]
            summed_bytes = FLOAT_BYTES * outputs * inputs if is_one_tile else 0
            loaded = math.gcd(inputs, outputs)
            return TiledProduct(
                *(outputs, inputs, rows), splits_depth=is_one_tile, summed_bytes=summed_bytes, row_elements=loaded
            )
        case _:
            return TiledProduct(outputs, rows, inputs, row_elements=inputs)
