"""Measured times that the model of modern GPUs is fitted to, or checked against: `hw_profiles/<name>.fit.csv`.

One row is one kernel, and most are measured alone; those of one `network` together are one measured step, whose time
stands in its first row.

    role          fit; held_out: never seen by the fit
    group         source and kind of operator, which share one weight in the fit and one line of the summary
    network       of a step: its network and batch; empty for a kernel that was measured alone
    calls         how often the kernel ran
    kernel        `product 12x512x512x64`              how many, rows, columns, depth
                  `conv 32x64x56x56 64x64x3x3 1 1 1 bias`   X, W, stride, padding, groups
                  `batch_norm 77070336 64`             the operator's name, bytes it moves, channels or 0
                  `attention 1099511627776 77070336`   products of unknown sizes: FLOPs and bytes
    phase         of a convolution `backward` is both gradients
    element_type  in which it computes
    layout        nchw or nhwc
    time_us       measured
    origin        repository, commit, file and entry

Which rows of the sources stand there:

    NeuSight   of each operator and card those with the lowest CRC-32 of their text, 60 products, 100 convolutions, 20
               normalizations of rows; above 0.2 ms (0.1 ms where rows are normalized), for 20 to 30 us of each are
               its measuring; convolutions whose channels are multiples of 4, as those of networks
    Vidur      80 products by CRC-32 of eleven numbers of tokens, additions from 2048 tokens on; its normalization and
               activation are kernels of vLLM, not of PyTorch
    triosim    every operator of the step but the optimizer; Kineto: every operator, of 2021-01 to fit, of 2021-06 to
               check; the same layers share a row with their median
    DeepBench  all convolutions with square strides and padding, 8 channels and 30 us or more
    timm       training in both layouts and inference channels last of ResNet-18, SelecSLS-60, MnasNet, GERNet-L,
               ConvNeXt-T, Mixer-B/16 and Xception-41; training of two networks with groups, RegNetX-800MF and 6.4GF;
               streams of one kind in one row with their mean bytes
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.cost.operator_kinds import operator_kind
from vdnnsim.cost.tiled_product import TiledProduct
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

_BOTH = (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)


@dataclass(frozen=True)
class FitKernel:
    """One kernel, and how often it ran."""

    text: str
    phase: Phase
    element_type: ElementType
    channels_last: bool
    calls: int

    def seconds(self, gpu: EfficientGpu) -> float:
        """Return what the model says of all calls."""
        name, *words = self.text.split()
        if name == "conv":
            phases = _BOTH if self.phase is Phase.BACKWARD else (self.phase,)
            return self.calls * sum(self._convolution_s(gpu, phase) for phase in phases)
        if name == "product":
            count, rows, columns, depth = map(int, words[0].split("x"))
            return self.calls * gpu.product_s(self.element_type, TiledProduct(rows, columns, depth, count=count))
        first, second = map(int, words)
        if name == "attention":
            return self.calls * gpu.work_s(self.element_type, first, second)
        kind = operator_kind(name, self.phase)
        return self.calls * gpu.stream_s(kind, first, second, channels_last=self.channels_last)

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


@dataclass(frozen=True)
class EfficiencyRow:
    """One measured time, and the kernels that ran in it."""

    role: str
    group: str
    network: str
    kernels: tuple[FitKernel, ...]
    observed_s: float
    origin: str

    @property
    def source(self) -> str:
        """Who measured it."""
        return self.group.partition(" ")[0]

    @property
    def subject(self) -> str:
        """What was measured, for people."""
        return self.network or self.kernels[0].text

    @property
    def phase(self) -> Phase:
        """Of its first kernel."""
        return self.kernels[0].phase

    @property
    def element_type(self) -> ElementType:
        """Of its first kernel."""
        return self.kernels[0].element_type

    def predicted_s(self, gpu: EfficientGpu) -> float:
        """Return what the model says of it."""
        return sum(kernel.seconds(gpu) for kernel in self.kernels)

    def relative_error(self, gpu: EfficientGpu) -> float:
        """Return (predicted - observed) / observed."""
        return self.predicted_s(gpu) / self.observed_s - 1


def read_efficiency_rows(path: Path) -> tuple[EfficiencyRow, ...]:
    """Read all rows of a file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(enumerate(csv.DictReader(file)))
    steps = groupby(lines, key=lambda line: (line[1]["network"], line[1]["layout"]) if line[1]["network"] else line[0])
    return tuple(_row([cells for _, cells in step]) for _, step in steps)


def _row(kernels: list[dict[str, str]]) -> EfficiencyRow:
    first = kernels[0]
    return EfficiencyRow(
        role=first["role"],
        group=first["group"],
        network=first["network"],
        kernels=tuple(map(_kernel, kernels)),
        observed_s=float(first["time_us"]) / 1e6,
        origin=first["origin"],
    )


def _kernel(cells: Mapping[str, str]) -> FitKernel:
    return FitKernel(
        text=cells["kernel"],
        phase=Phase(cells["phase"]),
        element_type=ElementType(cells["element_type"]),
        channels_last=cells["layout"] == "nhwc",
        calls=int(cells["calls"]),
    )
