"""Kernel tables: what a machine's kernels were measured to cost, one row per shape and algorithm.

A table is a CSV file beside the profile of its machine. Layers of equal shape share their rows, in whichever network
they stand.
"""

from dataclasses import dataclass

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.server import Origin


@dataclass(frozen=True, slots=True)
class KernelShape:
    """All that decides what a kernel costs on a given machine, but for its algorithm.

    Attributes:
        operator: the layer's operator with its parameters, `conv 64 3x3 stride 1x1 padding 1x1 bias`; of an update, the
            optimizer.
        inputs: shapes of the X of one image.
        gradients: of a backward that computes dX, a letter for each input: `w` its gradient is written, `a` added to
            what stands there, `-` not computed; empty in other phases.
    """

    operator: str
    phase: Phase
    batch_size: int
    element_type: ElementType
    inputs: tuple[MapShape, ...]
    gradients: str

    @classmethod
    def of(cls, workload: Workload, layer: Layer, phase: Phase) -> "KernelShape":
        """Return the shape of a phase of a layer."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One algorithm for one shape, as measured.

    Attributes:
        family: what kind of algorithm it is; empty where unknown.
        seconds: the median; None where the measurement failed, and `note` says why.
        spread: (third quartile - first quartile) / median of the runs.
        count: number of timed runs; 0 for what was not timed.
        workspace_bytes: device memory needed while it runs, beyond its operands.
        flop, nbytes: FLOPs by the direct method and compulsory DRAM traffic, as the workload counts them.
        note: empty, or what a reader should know: `out of memory`.
    """

    shape: KernelShape
    algorithm: str
    family: str
    seconds: float | None
    spread: float
    count: int
    workspace_bytes: int
    flop: int
    nbytes: int
    origin: Origin
    note: str = ""
