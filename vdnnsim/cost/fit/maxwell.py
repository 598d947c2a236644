"""Rows of times under cuDNN to which the model `maxwell` is fitted, `hw_profiles/NAME.fit.csv`, and how it is fitted.

One row is one published time. Its `subject` is a network of `vdnnsim.dnn.networks`, whose kernels of one phase are then
summed, or the name of a single convolution whose shape follows. Columns beside those of `FitRow`:

    algorithms      from which the library chose: one algorithm by name; `implicit` (implicit GEMM, no workspace);
                    `implicit_any` (implicit GEMM in both forms); `fastest`; `fastest_without_tiling` (cuDNN before 4);
                    `fastest_with_winograd` (cuDNN from 5)
    n               batch size; calls: how often the kernel ran in the measured time
    element_type    what activations and weights are stored as
    bias            yes if the measured layer has one
    first_gradient  yes if the first convolution computed its data gradient too

Cross-validation leaves out a network with all its library versions, a layer L1 to L5, or a fifth of DeepBench's shapes
with all their phases and batch sizes. Structure was chosen by that error and by physics, never by the held-out rows:
parameters were merged whose separate values change it by less than a hundredth of itself. It is 9.9 %; the 20
parameters of an earlier form had 11.9 %. On the Titan Xp it is 17.6 %, on the P100 16.0 %; of 3 x 3 filters alone 14 %.

DeepBench's weight gradients name no algorithm. `DeepBench weights 3x3` holds those of 3 x 3 filters with stride 1 that
reach less than 5 TFLOP/s: one of the faster ones exceeds the peak of the GPU, so cuDNN 5 had a Winograd form, which
cuDNN 4 has not, and no weight gradient of another filter reaches 5. Of two measurements of one shape only the slower is
taken. `DeepBench FFT` holds the two forward rows that name that algorithm.

Rows of cuDNN 6 on Pascal (`DeepBench 3x3`, `1x1` and `others`) were measured with the fastest algorithm that cudnnFind
found, and are predicted by the fastest that the model has. The sheets of all cards of 2017 name the same forward
algorithms row for row, so the names are not taken. No network computes data gradients of three channels or fewer, which
are those of first layers; the model, whose tiles are 32 rows and more, has them half too slow, and they are held out.
Rows of cuDNN R3 are of another version: in the same repository whole networks run 14 to 18 % slower on it, more than
the errors of the fit.

Known limitations: the rows of cuDNN R2 stand for implicit GEMM without a workspace (R2's own data gradient and weight
gradient used none; its forward may have used a small one). Below 5 TFLOP/s single rows may still be Winograd.
"""

import csv
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_s, convolution_s
from vdnnsim.cost.fit.least_squares import START, FitRow, FittedModel, Kernel
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.maxwell import kernel_s
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.workspace import FFT_TILING, IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, algorithms
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

_SHAPE_FOLDS: Final = 5


@dataclass(frozen=True, slots=True)
class ConvolutionKernel:
    """One convolution, computed by the fastest of some algorithms."""

    shape: ConvolutionShape
    phase: Phase
    algorithms: tuple[str, ...]
    bias: bool
    element_bytes: int

    def seconds(self, machine: Machine) -> float:
        machine = replace(machine, element_bytes=self.element_bytes)
        fastest_s = min(convolution_s(machine, self.shape, self.phase, algorithm) for algorithm in self.algorithms)
        return fastest_s + (bias_s(machine, self.shape, self.phase) if self.bias else 0.0)


@dataclass(frozen=True, slots=True)
class RooflineKernel:
    """One phase of a layer that is no convolution: its arithmetic, its FLOPs and its DRAM traffic."""

    arithmetic: Arithmetic
    flop: int
    nbytes: int

    def seconds(self, machine: Machine) -> float:
        return kernel_s(machine, {self.arithmetic: self.flop}, self.nbytes)


def machine_of(server: Server, parameters: Mapping[str, float]) -> Machine:
    stated = CostParameters.from_mapping(server.name, server.cost_model)
    return Machine.of_server(server, ElementType.FLOAT32, replace(stated, **parameters))


def read_fit_rows(path: Path) -> tuple[FitRow, ...]:
    shapes: dict[Hashable, int] = {}
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_row(cells, shapes) for cells in csv.DictReader(file))


MAXWELL: Final = FittedModel(read_fit_rows, machine_of, START.maxwell, START.group_weights, factor=1e3, ftol=1e-8)


def _row(cells: dict[str, str], shapes: dict[Hashable, int]) -> FitRow:
    phase = Phase(cells["phase"])
    kernels = Counter(_convolution(cells, phase) if cells["c"] else _network(cells, phase))
    return FitRow(
        role=cells["role"],
        group=cells["group"],
        subject=cells["subject"],
        phase=phase,
        element_type=ElementType(cells["element_type"]),
        observed_s=float(cells["time_ms"]) / 1e3,
        kernels=tuple((kernel, count * int(cells["calls"])) for kernel, count in kernels.items()),
        origin=cells["origin"],
        algorithms=cells["algorithms"],
        fold=_fold(cells, next(iter(kernels)), shapes),
    )


def _fold(cells: dict[str, str], first: Kernel, shapes: dict[Hashable, int]) -> Hashable:
    """Return what is measured, or one of the classes of DeepBench's fitted shapes, whatever their batch size."""
    if cells["role"] != "fit" or not cells["group"].startswith("DeepBench"):
        return cells["subject"]
    assert isinstance(first, ConvolutionKernel)
    return shapes.setdefault(replace(first.shape, n=1, bias=True), len(shapes)) % _SHAPE_FOLDS


def _convolution(cells: dict[str, str], phase: Phase) -> Iterator[Kernel]:
    n, c, k, h, w, r, s, stride_h, stride_w, pad_h, pad_w = (
        int(cells[name]) for name in ("n", "c", "k", "h", "w", "r", "s", "stride_h", "stride_w", "pad_h", "pad_w")
    )
    shape = ConvolutionShape(n, c, k, (h, w), (r, s), (stride_h, stride_w), (pad_h, pad_w))
    yield _convolution_kernel(cells, shape, phase)


def _network(cells: dict[str, str], phase: Phase) -> Iterator[Kernel]:
    """Yield the kernels of a phase; the measured networks end before the loss."""
    workload = Workload(build_network(cells["subject"]), int(cells["n"]), ElementType(cells["element_type"]))
    for layer in workload.graph.layers:
        is_first_gradient = layer.index == 0 and phase is Phase.BACKWARD_DATA and cells["first_gradient"] == "yes"
        if layer.kind is LayerKind.LOSS or not (phase in workload.phases(layer) or is_first_gradient):
            continue
        if isinstance(layer.operator, Convolution):
            yield _convolution_kernel(cells, ConvolutionShape.of_layer(layer, workload.part_size), phase)
        else:
            operation = workload.step.operation(layer.index, phase)
            ((arithmetic, flop),) = operation.flop.items()
            yield RooflineKernel(arithmetic, flop, operation.bytes_moved)


def _convolution_kernel(cells: dict[str, str], shape: ConvolutionShape, phase: Phase) -> ConvolutionKernel:
    offered, stated = algorithms(shape, phase), cells["algorithms"]
    choices = {
        "implicit": (IMPLICIT_GEMM,),
        "implicit_any": (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM),
        "fastest": offered,
        "fastest_with_winograd": algorithms(shape, phase, winograd=True),
        "fastest_without_tiling": tuple(name for name in offered if name != FFT_TILING),
    }.get(stated, (stated,))
    return ConvolutionKernel(shape, phase, choices, cells["bias"] == "yes", ElementType(cells["element_type"]).nbytes)
