"""A machine as the simulator sees it: one GPU, its link to the host, the host; every figure in SI units."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from vdnnsim.element_type import ElementType
from vdnnsim.hardware.topology import Topology


class Origin(Enum):
    """Where a number comes from."""

    DATASHEET = "datasheet"
    MEASURED = "measured"
    FITTED = "fitted"
    PAPER = "paper"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a profile as its file states it.

    Attributes:
        path: key path in the profile, as `gpu.memory`.
        text: the value with its unit, as `12 GiB`.
        source: where the number was found, or the reason why it was assumed.
    """

    path: str
    text: str
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU.

    Attributes:
        flop_per_s: peak arithmetic rate by element type; a type that is missing cannot be simulated.
        multiprocessors: streaming multiprocessors, over which the tiles of a kernel are spread.
        granule_bytes: unit to which the memory pool rounds every allocation.
        context_bytes: what the CUDA context and its libraries take before any tensor; 0 where the profile does not say.
        handle_bytes: what each further handle of a library takes, as of cuDNN for a stream; likewise.
    """

    name: str
    memory_bytes: int
    flop_per_s: Mapping[ElementType, float]
    dram_bytes_per_s: float
    multiprocessors: int
    granule_bytes: int
    context_bytes: int = 0
    handle_bytes: int = 0

    def framework_bytes(self, handles: int) -> int:
        """Bytes beside all tensors that nvidia-smi shows for a process with so many handles beyond the first."""
        return self.context_bytes + handles * self.handle_bytes


@dataclass(frozen=True, slots=True)
class Link:
    """The link between GPU and host: a copy takes latency_s plus its bytes over the rate of its direction.

    Attributes:
        peak_bytes_per_s: what the wires can carry in one direction, which no copy reaches; None where the profile does
            not state it. No copy is timed by it, so a machine that was only measured does without.
        pageable_h2d_bytes_per_s, pageable_d2h_bytes_per_s: rates of copies from and to memory that is not pinned.
        both_directions_fraction: of its rate alone, what a copy keeps while the other direction is busy.
        beside_compute_fraction, beside_memory_bound_fraction: likewise beside a kernel that computes, and beside one
            that is bound by device memory. As with the peak, no copy is timed by these five yet; None if not measured.
    """

    name: str
    h2d_bytes_per_s: float
    d2h_bytes_per_s: float
    latency_s: float
    peak_bytes_per_s: float | None = None
    pageable_h2d_bytes_per_s: float | None = None
    pageable_d2h_bytes_per_s: float | None = None
    both_directions_fraction: float | None = None
    beside_compute_fraction: float | None = None
    beside_memory_bound_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The host.

    Attributes:
        memory_bytes: memory that may be pinned.
        issue_s: time to put one operation (kernel, copy, event) on a stream.
        pin_latency_s, pin_bytes_per_s: pinning n bytes takes pin_latency_s + n / pin_bytes_per_s.
    """

    memory_bytes: int
    issue_s: float
    pin_latency_s: float
    pin_bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Power:
    """What the GPU draws: idle power, and energy for each unit of work.

    Attributes:
        idle_watts: drawn at the clocks of a running program while no kernel runs.
        joules_per_link_byte: at the GPU's end of the link.
        limit_watts: what the board holds itself to; infinite where the profile states none.
    """

    idle_watts: float
    joules_per_flop: float
    joules_per_dram_byte: float
    joules_per_link_byte: float
    limit_watts: float = math.inf


DEFAULT_COST_MODEL: Final = "maxwell"
"""The kind of a profile that names none."""


@dataclass(frozen=True, slots=True)
class MeasuredKernels:
    """The kernel table of a calibrated machine, and the settings under which it was measured.

    Attributes:
        table: the CSV file (`vdnnsim.cost.kernel_table`), beside the profile.
        sha256: of its bytes when the profile was read.
        tf32: whether float32 products were computed in TF32.
        channels_last: whether maps lay as N, H, W, C.
    """

    table: Path
    sha256: str
    tf32: bool
    channels_last: bool


@dataclass(frozen=True, slots=True)
class Server:
    """One machine.

    Attributes:
        cost_model: the parameters that `vdnnsim.cost` interprets; empty where kernels were measured instead.
        cost_model_kind: of which model they are.
        figures: all of the profile as stated.
        power: None where the profile says nothing of power; whatever needs it then refuses.
        kernels: None where no kernel was measured, and the cost model times them all.
        topology: None for a machine with one GPU on a link of its own.
        provenance: what a measured profile says of its machine and software, as (name, text).
    """

    name: str
    gpu: Gpu
    link: Link
    host: Host
    cost_model: Mapping[str, float]
    figures: tuple[Figure, ...]
    power: Power | None = None
    kernels: MeasuredKernels | None = None
    provenance: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    cost_model_kind: str = DEFAULT_COST_MODEL
