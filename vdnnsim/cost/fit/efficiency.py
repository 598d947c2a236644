"""Rows of times that the model `efficiency` is fitted to, `hw_profiles/NAME.fit.csv`, and how it is fitted.

One row is one kernel, and most are measured alone; those of one `network` together are one measured step, whose time
stands in its first row.

    role          fit; held_out: never seen by the fit
    group         source and kind of operator, which share one weight in the fit and one line of the summary
    network       of a step: its network and batch; empty for a kernel that was measured alone
    calls         how often the kernel ran
    kernel        `product 12x512x512x64`              how many, rows, columns, depth
                  `conv 32x64x56x56 64x64x3x3 1 1 1 bias`   X, W, stride, padding, groups
                  `batch_norm 77070336 64`             the operator's name, bytes it moves, channels or 0
                  `attention 1099511627776 77070336 32x12x1024x64`   FLOPs, bytes, samples, heads, tokens, width;
                  `flash_attention` and `efficient_attention` by these kernels, where PyTorch tries another first
    phase         of a convolution `backward` is both gradients
    element_type  in which it computes
    layout        nchw or nhwc
    time_us       measured
    origin        repository, commit, file and entry

Rows by source:

    NeuSight   of each operator and card those with the lowest CRC-32 of their text, 60 products, 100 convolutions, 20
               normalizations of rows; above 0.2 ms (0.1 ms where rows are normalized), for 20 to 30 us of each are
               its measuring; convolutions whose channels are multiples of 4, as those of networks
    Vidur      80 products by CRC-32 of eleven numbers of tokens, additions from 2048 tokens on; its normalization and
               activation are kernels of vLLM, not of PyTorch
    triosim    every operator of the step but the optimizer; Kineto: every operator, of 2021-01 to fit, of 2021-06 to
               check; the same layers share a row with their median
    DeepBench  all convolutions with square strides and padding, 8 channels and 30 us or more
    own        single operators of our own H100, with a cold L2: those from 30 us on, for events add 3 to 4 us to each;
               by the CRC-32 of their text one in three held out
    timm       training in both layouts and inference channels last of ResNet-18, SelecSLS-60, MnasNet, GERNet-L,
               ConvNeXt-T, Mixer-B/16 and Xception-41; training of two networks with groups, RegNetX-800MF and 6.4GF;
               streams of one kind in one row with their mean bytes, with the copies of operands that layer
               normalizations and convolutions make; inference of ConvNeXt-T with `--fast-norm`, for
               rows of networks with group normalization take less time than DRAM would for float32

A twentieth of ln(parameter / start) is added to the residuals, so that parameters that rows hardly determine stay near
their start, on which the cards with traces, V100 and H100, agree. Cross-validation leaves out each
source, where a card has several, and a fifth of the shapes, or each network.
"""

import csv
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_parameters import operator_kind
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.cost.fit.least_squares import START, FitRow, FittedModel
from vdnnsim.cost.fused_attention import AttentionKernel
from vdnnsim.cost.tiled_product import TiledProduct
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

_BOTH: Final = (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
_FOLDS: Final = 5


@dataclass(frozen=True)
class EfficiencyKernel:
    """One kernel, as a cell `kernel` states it."""

    text: str
    phase: Phase
    element_type: ElementType
    channels_last: bool

    def seconds(self, gpu: EfficientGpu) -> float:
        name, *words = self.text.split()
        if name == "conv":
            phases = _BOTH if self.phase is Phase.BACKWARD else (self.phase,)
            return sum(self._convolution_s(gpu, phase) for phase in phases)
        if name == "product":
            count, rows, columns, depth = map(int, words[0].split("x"))
            return gpu.product_s(self.element_type, TiledProduct(rows, columns, depth, count=count))
        if name.endswith("attention"):
            sizes, kernel = tuple(map(int, words[2].split("x"))), AttentionKernel.of(name)
            backward = self.phase.is_backward
            return gpu.work_s(self.element_type, int(words[0]), int(words[1]), sizes, kernel, is_gradient=backward)
        first, second = map(int, words)
        return gpu.stream_s(operator_kind(name, self.phase), first, second, channels_last=self.channels_last)

    def _convolution_s(self, gpu: EfficientGpu, phase: Phase) -> float:
        shape, groups = self._convolution
        return gpu.convolution_s(self.element_type, shape, phase, groups=groups, channels_last=self.channels_last)

    @cached_property
    def _convolution(self) -> tuple[ConvolutionShape, int]:
        _, x, w, *words = self.text.split()
        n, c, height, width = map(int, x.split("x"))
        k, _, rows, columns = map(int, w.split("x"))
        stride, padding, groups = map(int, words[:3])
        shape = ConvolutionShape(
            *(n, c // groups, k // groups, (height, width), (rows, columns)),
            *((stride, stride), (padding, padding)),
            bias=words[3:] == ["bias"],
        )
        return shape, groups


def gpu_of(server: Server, parameters: Mapping[str, float]) -> EfficientGpu:
    return efficient_gpu(replace(server, cost_model={**server.cost_model, **parameters}))


def read_efficiency_rows(path: Path) -> tuple[FitRow, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(enumerate(csv.DictReader(file)))
    steps = groupby(lines, key=lambda line: (line[1]["network"], line[1]["layout"]) if line[1]["network"] else line[0])
    return tuple(_row([cells for _, cells in step]) for _, step in steps)


EFFICIENCY: Final = FittedModel(
    read_efficiency_rows, gpu_of, START.efficiency, {}, factor=30.0, ftol=1e-4, prior=0.05, by_source=True
)


def _row(lines: Sequence[Mapping[str, str]]) -> FitRow:
    first, network = lines[0], lines[0]["network"]
    kernels = tuple((_kernel(cells), int(cells["calls"])) for cells in lines)
    return FitRow(
        role=first["role"],
        group=first["group"],
        subject=network or first["kernel"],
        phase=kernels[0][0].phase,
        element_type=kernels[0][0].element_type,
        observed_s=float(first["time_us"]) / 1e6,
        kernels=kernels,
        origin=first["origin"],
        fold=network.partition(" ")[0] or zlib.crc32(first["kernel"].encode()) % _FOLDS,
    )


def _kernel(cells: Mapping[str, str]) -> EfficiencyKernel:
    phase, element_type = Phase(cells["phase"]), ElementType(cells["element_type"])
    return EfficiencyKernel(cells["kernel"], phase, element_type, cells["layout"] == "nhwc")
