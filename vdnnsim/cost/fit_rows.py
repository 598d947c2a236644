"""The measured rows that a profile's cost model is fitted to, or checked against: `hw_profiles/<name>.fit.csv`.

One row is one published time. Its `subject` is a network of `vdnnsim.dnn.networks`, whose kernels of one phase are then
summed, or the name of a single convolution whose shape follows. Columns:

    role            fit; held_out: never seen by the fit; other_version: another library, printed and never fitted
    group           rows that share one weight in the fit and one line of the summary
    algorithms      what the library chose from: one algorithm by name; `implicit` (implicit GEMM, no workspace);
                    `implicit_any` (implicit GEMM in both forms); `fastest`; `fastest_without_tiling` (cuDNN before 4);
                    `fastest_with_winograd` (cuDNN from 5)
    n               batch size; calls: how often the kernel ran in the measured time
    element_type    what maps and weights are stored as
    bias            yes if the measured layer has one
    first_gradient  yes if the first convolution computed its data gradient too
    origin          repository, commit, file and entry
"""

import csv
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.convolution_time import bias_s, convolution_s
from vdnnsim.cost.machine import Machine
from vdnnsim.cost.maxwell import kernel_s
from vdnnsim.cost.workspace import FFT_TILING, IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, algorithms
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType


@dataclass(frozen=True, slots=True)
class ConvolutionKernel:
    """One convolution, computed by the fastest of some algorithms."""

    shape: ConvolutionShape
    phase: Phase
    algorithms: tuple[str, ...]
    bias: bool

    def seconds(self, machine: Machine) -> float:
        """Return its predicted time."""
        fastest_s = min(convolution_s(machine, self.shape, self.phase, algorithm) for algorithm in self.algorithms)
        return fastest_s + (bias_s(machine, self.shape, self.phase) if self.bias else 0.0)


@dataclass(frozen=True, slots=True)
class RooflineKernel:
    """One phase of a layer that is no convolution: its arithmetic, its FLOPs and its DRAM traffic."""

    arithmetic: Arithmetic
    flop: int
    nbytes: int

    def seconds(self, machine: Machine) -> float:
        """Return its predicted time."""
        return kernel_s(machine, {self.arithmetic: self.flop}, self.nbytes)


Kernel = ConvolutionKernel | RooflineKernel


@dataclass(frozen=True, slots=True)
class FitRow:
    """One measured time and the kernels that ran in it, with how often each did."""

    role: str
    group: str
    subject: str
    algorithms: str
    phase: Phase
    element_type: ElementType
    observed_s: float
    kernels: tuple[tuple[Kernel, int], ...]
    origin: str

    def predicted_s(self, machine: Machine) -> float:
        """Return what the model says of the same kernels."""
        machine = replace(machine, element_bytes=self.element_type.nbytes)
        return sum(count * kernel.seconds(machine) for kernel, count in self.kernels)

    def relative_error(self, machine: Machine) -> float:
        """Return (predicted - observed) / observed."""
        return self.predicted_s(machine) / self.observed_s - 1


def read_fit_rows(path: Path) -> tuple[FitRow, ...]:
    """Read all rows of a file, in its order."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(_row(cells) for cells in csv.DictReader(file))


def _row(cells: dict[str, str]) -> FitRow:
    phase = Phase(cells["phase"])
    kernels = Counter(_convolution(cells, phase) if cells["c"] else _network(cells, phase))
    return FitRow(
        role=cells["role"],
        group=cells["group"],
        subject=cells["subject"],
        algorithms=cells["algorithms"],
        phase=phase,
        element_type=ElementType(cells["element_type"]),
        observed_s=float(cells["time_ms"]) / 1e3,
        kernels=tuple((kernel, count * int(cells["calls"])) for kernel, count in kernels.items()),
        origin=cells["origin"],
    )


def _convolution(cells: dict[str, str], phase: Phase) -> Iterator[Kernel]:
    n, c, k, h, w, r, s, stride_h, stride_w, pad_h, pad_w = (
        int(cells[name]) for name in ("n", "c", "k", "h", "w", "r", "s", "stride_h", "stride_w", "pad_h", "pad_w")
    )
    shape = ConvolutionShape(n, c, k, (h, w), (r, s), (stride_h, stride_w), (pad_h, pad_w))
    yield ConvolutionKernel(shape, phase, _choices(cells["algorithms"], shape, phase), cells["bias"] == "yes")


def _network(cells: dict[str, str], phase: Phase) -> Iterator[Kernel]:
    """Yield the kernels of a phase; the measured networks end before the loss."""
    workload = Workload(build_network(cells["subject"]), int(cells["n"]), ElementType(cells["element_type"]))
    for layer in workload.graph.layers:
        is_first_gradient = layer.index == 0 and phase is Phase.BACKWARD_DATA and cells["first_gradient"] == "yes"
        if layer.kind is LayerKind.LOSS or not (phase in workload.phases(layer) or is_first_gradient):
            continue
        if isinstance(layer.operator, Convolution):
            shape = ConvolutionShape.of_layer(layer, workload.part_size)
            choices = _choices(cells["algorithms"], shape, phase)
            yield ConvolutionKernel(shape, phase, choices, bias=cells["bias"] == "yes")
        else:
            operation = workload.step.operation(layer.index, phase)
            ((arithmetic, flop),) = operation.flop.items()
            yield RooflineKernel(arithmetic, flop, operation.bytes_moved)


def _choices(stated: str, shape: ConvolutionShape, phase: Phase) -> tuple[str, ...]:
    offered = algorithms(shape, phase)
    choices = {
        "implicit": (IMPLICIT_GEMM,),
        "implicit_any": (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM),
        "fastest": offered,
        "fastest_with_winograd": algorithms(shape, phase, winograd=True),
        "fastest_without_tiling": tuple(name for name in offered if name != FFT_TILING),
    }
    return choices.get(stated, (stated,))
