"""Seconds of kernels on a modern GPU, from the fractions of its peaks that kinds of kernels reach.

Every kernel takes launch_overhead_s and the longer of its arithmetic and of its traffic; products on tensor cores as
fast as the power limit of the board allows (`vdnnsim.cost.power_limit`):

    product      a tiled matrix product (`vdnnsim.cost.tiled_product`) on CUDA or tensor cores, which load rows of odd
                 lengths more slowly (`vdnnsim.cost.narrow_loads`); its operands and its result once through DRAM
    convolution  one such product for each group:
                   forward         K / g  x N P Q       over C / g R S
                   data gradient   C / g  x N H W       over K / g R S P Q / (H W)
                   weight gradient K / g  x C / g R S   over N P Q, split along its depth
                 On CUDA cores 3 x 3 filters with stride 1 may take Winograd's F(4 x 4) instead, not fused: transforms
                 through DRAM around 36 products (`vdnnsim.cost.convolution_time`). Tensor cores want channels last: a
                 convolution of maps that lie as N, C, H, W turns X, Y and W around, which reads and writes each once
                 more, unless it is a plain product of aligned rows (1 x 1, stride 1, P Q a multiple of 8). They load
                 16 bytes of channels at a time, to which channels are padded: of maps that lie as N, H, W, C, X or Y
                 is copied once more where its channels are no multiple of that.
    depthwise    no product: a multiply-add for each weight of the filter and element, on CUDA cores, or X and Y
                 through DRAM. Where maps lie as N, H, W, C the data gradient of a stride has a rate of its own, some
                 fifty times lower, by the channels of its group from 2 to 64; in 16 bits dW is added up of parts.
    grouped      one product for each 32 channels, or as depthwise (`vdnnsim.cost.convolution_shape`).
    volume       as a convolution, but that tensor cores pad channels to 32 and tiles have 64 rows or more.
    stream       bytes at the fraction of bandwidth of its kind (`OperatorKind`). Batch normalization
                 of N, C, H, W gives each channel to one block: C channels keep C / (SMs ceil(C / SMs)) of the
                 multiprocessors busy; so it is of N, H, W, C, too, turned around before and after, where channels do
                 not come in fours. In inference, whose moments are known, it is as pointwise as an addition. Of narrow
                 weights and of bfloat16 it is not cuDNN's but PyTorch's own. Where maps lie as N, C, H, W that waits
                 for its loads; a sum of rows waits for the parts of its blocks, and some kernels take one element at a
                 time, for whatever bandwidth (`vdnnsim.cost.thread_limits`).

A bias is a pass of its own over Y: forward reads and writes it, the weight gradient reads it.

Left out: caches (on an H100 with 50 MB of L2 a ReLU of 26 or 51 MB is half too slow), overlapping kernels, and cuDNN's
choices (in TF32 gradients of 1 x 1 convolutions that widen are a third too slow, that narrow up to half too fast).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from vdnnsim.cost.convolution_shape import (
    GROUPED_GRADIENTS,
    TILE_CHANNELS,
    ConvolutionShape,
    copied_bytes,
    multiple,
    multiplies_groups_last,
    operand_bytes,
    summed_parts_bytes,
)
from vdnnsim.cost.convolution_time import (
    FUSED_KERNELS,
    SEPARATE_KERNELS,
    fused_product,
    gemm_product,
    separate_product,
    tensor_product,
)
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters, OperatorKind
from vdnnsim.cost.fused_attention import AttentionKernel, attention_work
from vdnnsim.cost.narrow_loads import narrow_rates
from vdnnsim.cost.power_limit import clock_within_limit
from vdnnsim.cost.thread_limits import normalization_wait_s, single_elements_s
from vdnnsim.cost.tiled_product import ProductRates, TiledProduct, tiled_product_s
from vdnnsim.cost.workspace import WINOGRAD_NONFUSED, winograd_points, winograd_tiles
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Power
from vdnnsim.units import ElementType

_IDLE_TAIL_WAVES: Final = 0.5  # on average half of the last wave of tiles is idle
_FEWEST_STRIDED, _MOST_STRIDED = 2, 64  # channels of a group that count in a strided data gradient
_TRANSPOSE_KERNELS: Final = 2
_NORMALIZED_CHANNELS: Final = 4
_TURNED_PASSES: Final = 4 / 3
"""Traffic of transposing X and Y, over that of a normalization, which reads X twice and writes Y."""
_OF_PHASE: Final = {Phase.FORWARD: "forward_", Phase.BACKWARD_DATA: "data_", Phase.BACKWARD_WEIGHTS: "weights_"}


@dataclass(frozen=True)
class EfficientGpu:
    """A GPU and the fractions of its peaks that kernels reach.

    Attributes:
        flop_per_s, dram_bytes_per_s: peak rates, of which the parameters are fractions.
        multiprocessors: over which tiles are spread.
        power: what the board draws and its limit; None if not known.
    """

    parameters: EfficiencyParameters
    flop_per_s: Mapping[ElementType, float]
    dram_bytes_per_s: float
    multiprocessors: int
    power: Power | None = None

    def has_tensor_cores(self, element_type: ElementType) -> bool:
        """Whether products of an element type run on tensor cores."""
        return element_type is not ElementType.FLOAT32 and self.parameters.tensor_flop_fraction > 0

    def product_s(self, element_type: ElementType, product: TiledProduct, *, found_bytes: int = 0) -> float:
        """Return the seconds of a product of matrices that lie in memory, but for so many bytes in the L2."""
        sizes = product.rows * product.depth + product.columns * product.depth + product.rows * product.columns
        nbytes = product.count * sizes * element_type.nbytes - found_bytes
        turned = replace(product, rows=product.columns, columns=product.rows)
        seconds = min(self._multiply_s(element_type, each, nbytes) for each in (product, turned))
        return seconds + self.parameters.launch_overhead_s

    def work_s(
        self,
        element_type: ElementType,
        flop: int,
        nbytes: int,
        sizes: Sequence[int] = (),
        kernel: AttentionKernel = AttentionKernel.FIRST,
        *,
        is_gradient: bool = False,
    ) -> float:
        """Return the seconds of products; `sizes` are of attention, whose backward also streams its operands."""
        p, of_attention = self.parameters, bool(sizes and self.parameters.attention_score_width)
        work = attention_work(flop, sizes, p.attention_score_width, is_gradient=is_gradient) if of_attention else flop
        fraction = p.tensor_flop_fraction if self.has_tensor_cores(element_type) else p.cuda_flop_fraction
        fraction *= p.work_fraction(kernel, element_type, is_gradient=is_gradient, is_sized=bool(sizes))
        arithmetic_s = work / (self.flop_per_s[element_type] * fraction)
        adds_up = is_gradient and of_attention
        return self._within_limit(element_type, flop, nbytes, arithmetic_s, adds_up=adds_up) + p.launch_overhead_s

    def stream_s(
        self,
        kind: OperatorKind,
        nbytes: int,
        channels: int = 0,
        *,
        channels_last: bool = False,
        is_own: bool = False,
        least_s: float = 0.0,
    ) -> float:
        """Return the seconds of a kernel that moves bytes.

        Args:
            kind: of kernel.
            nbytes: read and written.
            channels: of a batch normalization that sums; 0 for others, and in inference.
            channels_last: whether maps are N, H, W, C.
            is_own: whether the normalization is PyTorch's own.
            least_s: seconds of its threads, however fast DRAM is (`vdnnsim.cost.thread_limits`).
        """
        p, busy, turned_s = self.parameters, 1.0, 0.0
        known = kind is OperatorKind.NORMALIZATION and not channels
        fraction = p.pointwise_dram_fraction if known else getattr(p, f"{kind.value}_dram_fraction")
        if channels and channels_last and (is_own or channels % _NORMALIZED_CHANNELS == 0):
            fraction = p.normalization_last_dram_fraction
        elif channels:
            busy = channels / (self.multiprocessors * math.ceil(channels / self.multiprocessors))
            turned_s = self._turned_s(_TURNED_PASSES * nbytes) if channels_last else 0.0
        return turned_s + max(nbytes / (self._dram(fraction) * busy), least_s) + p.launch_overhead_s

    def own_normalization_s(self, nbytes: int, sizes: tuple[int, ...], *, is_gradient: bool) -> float:
        """Return the seconds of PyTorch's own batch normalization; forward reads X twice and writes Y."""
        p, summed_bytes = self.parameters, nbytes if is_gradient else nbytes // 3
        seconds = normalization_wait_s(sizes, self.multiprocessors, is_gradient=is_gradient) + p.launch_overhead_s
        seconds += summed_bytes / self._dram(p.normalization_dram_fraction)
        if is_gradient:
            return seconds
        least_s = single_elements_s(math.prod(sizes), self.multiprocessors)
        return seconds + self.stream_s(OperatorKind.POINTWISE, nbytes - summed_bytes, least_s=least_s)

    def convolution_s(
        self,
        element_type: ElementType,
        shape: ConvolutionShape,
        phase: Phase,
        *,
        groups: int = 1,
        channels_last: bool = False,
    ) -> float:
        """Return the seconds of one phase of a convolution, its bias included; `shape` is that of one group."""
        seconds = self.bias_s(element_type, groups * shape.y_elements * shape.bias, phase)
        last = channels_last
        if groups > 1 and not self._multiplies_groups(element_type, shape, phase, groups, channels_last=last):
            return seconds + self._direct_s(element_type, shape, phase, groups, channels_last=last)
        nbytes = operand_bytes(element_type, shape, groups)
        if not self.has_tensor_cores(element_type):
            product = gemm_product(shape, groups, phase)
            direct_s = self._multiply_s(element_type, product, nbytes, phase) + self.parameters.launch_overhead_s
            if groups == 1 and shape.kernel == (3, 3) and shape.stride == shape.dilation == (1, 1):
                return seconds + min(direct_s, self._winograd_s(element_type, shape, phase, nbytes))
            return seconds + direct_s
        cudnn = self.parameters.cudnn
        copied = copied_bytes(element_type, shape, phase, groups, cudnn, channels_last=channels_last)
        seconds += self._turned_s(2 * copied, element_type)
        product = tensor_product(element_type, shape, groups, phase)
        return seconds + self._multiply_s(element_type, product, nbytes, phase) + self.parameters.launch_overhead_s

    def _dram(self, fraction: float) -> float:
        return self.dram_bytes_per_s * fraction

    def _turned_s(self, nbytes: float, element_type: ElementType = ElementType.FLOAT32) -> float:
        """Return the seconds of the transpositions before and after a kernel that needs another layout."""
        if not nbytes:
            return 0.0
        p, width = self.parameters, element_type.nbytes
        # Each element is read and written.
        elements = nbytes / (2 * width) if width < ElementType.FLOAT32.nbytes else 0.0
        seconds = max(nbytes / self._dram(p.copy_dram_fraction), single_elements_s(elements, self.multiprocessors))
        return seconds + _TRANSPOSE_KERNELS * p.launch_overhead_s

    @cached_property
    def _known_rates(self) -> dict[tuple[ElementType, str], ProductRates]:
        return {}

    def _rates(self, element_type: ElementType, of: str = "") -> ProductRates:
        """Return the rates of plain products, or those of `of` in the names of parameters."""
        if (element_type, of) not in self._known_rates:
            p, unit = self.parameters, "tensor" if self.has_tensor_cores(element_type) else "cuda"
            self._known_rates[element_type, of] = ProductRates(
                flop_per_s=self.flop_per_s[element_type] * getattr(p, f"{unit}_{of}flop_fraction"),
                multiprocessors=self.multiprocessors,
                tile_load_flop=getattr(p, f"{unit}_load_flop"),
                tile_start_depth=getattr(p, f"{unit}_start_depth"),
                idle_tail_waves=_IDLE_TAIL_WAVES,
                sum_bytes_per_s=self._dram(p.product_dram_fraction),
            )
        return self._known_rates[element_type, of]

    def _multiply_s(
        self, element_type: ElementType, product: TiledProduct, nbytes: float, phase: Phase | None = None
    ) -> float:
        is_kept_apart = element_type is ElementType.TF32 and phase is Phase.BACKWARD_WEIGHTS
        of = "tf32_weights_" if is_kept_apart else _OF_PHASE[phase] if phase else ""
        rates = self._rates(element_type, of)
        if product.row_elements and self.has_tensor_cores(element_type):
            rates = narrow_rates(rates, self.parameters, self.flop_per_s, element_type, product.row_elements)
        return self._within_limit(element_type, product.flop, nbytes, tiled_product_s(rates, product))

    def _within_limit(
        self, element_type: ElementType, flop: float, nbytes: float, arithmetic_s: float, *, adds_up: bool = False
    ) -> float:
        """Return the seconds of arithmetic and traffic, beside each other or added up, within the power limit."""
        traffic_s, rates = nbytes / self._dram(self.parameters.product_dram_fraction), self.flop_per_s
        if self.power is not None and self.has_tensor_cores(element_type):
            joules = flop * self.power.joules_per_flop * max(rates.values()) / rates[element_type]
            arithmetic_s /= clock_within_limit(self.power, joules, nbytes, arithmetic_s, traffic_s * adds_up)
        return arithmetic_s + traffic_s if adds_up else max(arithmetic_s, traffic_s)

    def _winograd_s(self, element_type: ElementType, shape: ConvolutionShape, phase: Phase, nbytes: float) -> float:
        p, points = self.parameters, winograd_points(WINOGRAD_NONFUSED)
        squares = shape.n * winograd_tiles(shape, phase, WINOGRAD_NONFUSED)
        transformed = points * (shape.c * shape.k + squares * (shape.c + shape.k)) * element_type.nbytes
        transforms_s = (nbytes + 2 * transformed) / self._dram(p.winograd_dram_fraction)
        product_s = tiled_product_s(self._rates(element_type), separate_product(shape, phase))
        separate_s = product_s + transforms_s + SEPARATE_KERNELS * p.launch_overhead_s
        if phase is Phase.BACKWARD_WEIGHTS:
            return separate_s
        fused = tiled_product_s(self._rates(element_type, "winograd_"), fused_product(shape, phase))
        fused_s = max(fused, nbytes / self._dram(p.product_dram_fraction))
        return min(separate_s, fused_s + FUSED_KERNELS * p.launch_overhead_s)

    def _multiplies_groups(
        self, element_type: ElementType, shape: ConvolutionShape, phase: Phase, groups: int, *, channels_last: bool
    ) -> bool:
        """Whether a convolution in groups is a product for each of them, none of which is of one channel."""
        if shape.c == 1 or not self.has_tensor_cores(element_type):
            return shape.c > 1
        # Bfloat16 came with Ampere.
        if ElementType.BFLOAT16 not in self.flop_per_s:
            return False
        return not channels_last or multiplies_groups_last(shape, phase, groups, self.parameters.cudnn)

    def _direct_s(
        self, element_type: ElementType, shape: ConvolutionShape, phase: Phase, groups: int, *, channels_last: bool
    ) -> float:
        p, channels = self.parameters, shape.c if shape.c == 1 else multiple(shape.c, TILE_CHANNELS)
        fraction, parts_bytes = p.depthwise_flop_fraction, 0
        if phase is Phase.BACKWARD_WEIGHTS:
            fraction = p.depthwise_weights_flop_fraction
            channels = shape.c if channels_last else channels
            if channels_last and shape.c == 1:
                parts_bytes = summed_parts_bytes(element_type, shape.n, groups * shape.k, shape.kernel)
        elif phase is Phase.BACKWARD_DATA and channels_last and shape.is_strided and p.cudnn < GROUPED_GRADIENTS:
            fraction = p.depthwise_strided_flop_fraction
            channels = min(max(shape.c, _FEWEST_STRIDED), _MOST_STRIDED)
        flop = groups * shape.flop * channels / shape.c
        arithmetic_s = flop / (self.flop_per_s[ElementType.FLOAT32] * fraction)
        nbytes = operand_bytes(element_type, shape, groups) + parts_bytes
        traffic_s = nbytes / self._dram(p.pointwise_dram_fraction)
        seconds = max(arithmetic_s, traffic_s) + p.launch_overhead_s
        return seconds + self.stream_s(OperatorKind.REDUCTION, parts_bytes) if parts_bytes else seconds

    def bias_s(self, element_type: ElementType, elements: int, phase: Phase) -> float:
        """Return the seconds of the bias of a convolution with so many elements of Y; 0 if it has none."""
        y_bytes = elements * element_type.nbytes
        if not y_bytes or phase is Phase.BACKWARD_DATA:
            return 0.0
        if phase is Phase.FORWARD:
            return self.stream_s(
                OperatorKind.POINTWISE, 2 * y_bytes, least_s=single_elements_s(elements, self.multiprocessors)
            )
        return self.stream_s(OperatorKind.REDUCTION, y_bytes)
