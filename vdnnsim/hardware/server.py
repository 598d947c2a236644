"""Machines: a GPU, its link to the host, the host, and optionally a topology; every figure in SI units."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Final

from vdnnsim.hardware.copies import MeasuredCopies
from vdnnsim.hardware.stated_figure import (
    BYTE_ENERGY,
    CAPABILITY,
    FLOP_ENERGY,
    FRACTION,
    GRANULE,
    MEMORY,
    PARAMETER,
    PEAK,
    RATE,
    TIME,
    UNITS,
    WATTS,
    Stated,
)
from vdnnsim.hardware.topology import Topology
from vdnnsim.units import ElementType

PRETENDED: Final = "pretended"
"""The name in `provenance` that marks a GPU of `vdnnsim pretend`."""


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
        source: where the number was found, or why it was assumed.
    """

    path: str
    text: str
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; element types without a rate in `flop_per_s` cannot be simulated."""

    name: str
    memory_bytes: Annotated[int, Stated("memory", MEMORY, "memory of the device")]
    flop_per_s: Annotated[Mapping[ElementType, float], Stated("peak", PEAK, "peak arithmetic by element type")]
    dram_bytes_per_s: Annotated[float, Stated("dram_bandwidth", RATE, "peak bandwidth of its memory")]
    multiprocessors: Annotated[int, Stated("multiprocessors", UNITS, "number of multiprocessors")]
    granule_bytes: Annotated[int, Stated("granule", GRANULE, "allocations are rounded up to it")]
    context_bytes: Annotated[int, Stated("context", MEMORY, "CUDA's context, with loaded kernels")] = 0
    eager_context_bytes: Annotated[int, Stated("context_eager", MEMORY, "with all kernels loaded", decides=False)] = 0
    handle_bytes: Annotated[int, Stated("handle", MEMORY, "each further handle of cuDNN")] = 0
    l2_bytes: Annotated[int, Stated("l2", MEMORY, "second-level cache")] = 0
    compute_capability: Annotated[
        float | None, Stated("compute_capability", CAPABILITY, "for which models are captured", decides=False)
    ] = None

    def framework_bytes(self, handles: int) -> int:
        """Process memory beside tensors, with so many handles beyond the first."""
        return self.context_bytes + handles * self.handle_bytes


@dataclass(frozen=True, slots=True)
class Link:
    """The link between GPU and host (`vdnnsim.cost.transfer`).

    The peak is the capacity of the wires in one direction, which no copy reaches; measured machines have none. Beside
    other work a copy keeps a fraction of its rate alone, None if not measured. Figures with `decides=False` do not yet
    affect the times of copies.

    Attributes:
        copies: measured copies; None if there are only figures.
    """

    name: str
    h2d_bytes_per_s: Annotated[float, Stated("h2d", RATE, "copies of pinned memory to the GPU")]
    d2h_bytes_per_s: Annotated[float, Stated("d2h", RATE, "copies of pinned memory to the host")]
    latency_s: Annotated[float, Stated("latency", TIME, "time before the first byte of a copy")]
    peak_bytes_per_s: Annotated[float | None, Stated("peak", RATE, "of the wires, one way", decides=False)] = None
    pageable_h2d_bytes_per_s: Annotated[
        float | None, Stated("pageable_h2d", RATE, "copies from memory that is not pinned", decides=False)
    ] = None
    pageable_d2h_bytes_per_s: Annotated[
        float | None, Stated("pageable_d2h", RATE, "copies to memory that is not pinned", decides=False)
    ] = None
    both_directions_fraction: Annotated[
        float | None, Stated("both_directions", FRACTION, "kept while the other direction is busy", decides=False)
    ] = None
    beside_compute_fraction: Annotated[
        float | None, Stated("beside_compute", FRACTION, "kept beside a kernel that computes", decides=False)
    ] = None
    beside_memory_bound_fraction: Annotated[
        float | None, Stated("beside_memory_bound", FRACTION, "kept beside a kernel bound by memory", decides=False)
    ] = None
    copies: MeasuredCopies | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """The host: pinning n bytes takes pin_latency_s + n / pin_bytes_per_s.

    A framework that runs a network operator by operator spends time before each kernel, in Python, its dispatcher and
    autograd. It depends on the host, not on the card.

    Attributes:
        dispatch_forward_s: of an operator of forward or update.
        dispatch_backward_s: of the backward of one operator of forward, all kernels together.
        dispatch_library_s: in addition, of a call of a library that chooses its kernel, as cuDNN.
        issue_copy_s, issue_event_s: where they differ from `issue_s`, which then is that of a kernel.
    """

    memory_bytes: Annotated[int, Stated("memory", MEMORY, "of the host")]
    issue_s: Annotated[float, Stated("issue", TIME, "to put one operation on a stream")]
    pin_latency_s: Annotated[float, Stated("pin_latency", TIME, "to pin memory, however little")]
    pin_bytes_per_s: Annotated[float, Stated("pin_bandwidth", RATE, "at which more is pinned")]
    pinnable_bytes: Annotated[int, Stated("pinnable", MEMORY, "of it that may be pinned")] = 0
    process_bytes: Annotated[int, Stated("process", MEMORY, "of a process beside what it pins")] = 0
    dispatch_forward_s: Annotated[float, Stated("dispatch_forward", TIME, "of a framework before an operator")] = 0.0
    dispatch_backward_s: Annotated[float, Stated("dispatch_backward", TIME, "of autograd before its backward")] = 0.0
    dispatch_library_s: Annotated[float, Stated("dispatch_library", TIME, "of a call of cuDNN, beside these")] = 0.0
    issue_copy_s: Annotated[float | None, Stated("issue_copy", TIME, "to put a copy on a stream")] = None
    issue_event_s: Annotated[float | None, Stated("issue_event", TIME, "to record an event, or wait for one")] = None
    allocation_s: Annotated[float | None, Stated("allocation", TIME, "to allocate and release memory of a GPU")] = None

    @property
    def issuing(self) -> tuple[float | None, ...]:
        """All figures on which issue times depend, in seconds."""
        calls = self.issue_s, self.issue_copy_s, self.issue_event_s, self.allocation_s
        return *calls, self.dispatch_forward_s, self.dispatch_backward_s, self.dispatch_library_s


@dataclass(frozen=True, slots=True)
class Power:
    """Power of the GPU: idle power, energy for each unit of work, and a limit (`vdnnsim.cost.power_limit`)."""

    idle_watts: Annotated[float, Stated("idle", WATTS, "power at full clocks without a kernel")]
    joules_per_flop: Annotated[float, Stated("flop", FLOP_ENERGY, "of arithmetic at its highest peak")]
    joules_per_dram_byte: Annotated[float, Stated("dram", BYTE_ENERGY, "energy of a byte through its memory")]
    joules_per_link_byte: Annotated[
        float | None, Stated("link", BYTE_ENERGY, "at its end of the link", decides=False)
    ] = None
    limit_watts: Annotated[float, Stated("limit", WATTS, "power limit of the board")] = math.inf


DEFAULT_COST_MODEL: Final = "maxwell"
"""The kind of a profile that names none."""


@dataclass(frozen=True, slots=True)
class MeasuredKernels:
    """The kernel table of a calibrated machine, and its settings.

    Attributes:
        table: the CSV file (`vdnnsim.cost.kernel_table`), beside the profile.
        sha256: of its bytes when the profile was read.
        tf32: whether float32 products were computed in TF32.
        channels_last: whether maps were N, H, W, C.
        timed_on: the profile of another GPU on which they were timed; empty for this one.
    """

    table: Path
    sha256: str
    tf32: bool
    channels_last: bool
    timed_on: str = ""


@dataclass(frozen=True, slots=True)
class Server:
    """One machine.

    Attributes:
        cost_model: parameters that `vdnnsim.cost` interprets; empty if kernels were measured instead.
        kernels: None if no kernel was measured.
        topology: None for a machine with one GPU on a link of its own.
        hosts: servers of the kind that are a cluster, joined by their network cards; None for as many as ranks need.
        provenance: hardware and software of the measurement, as (name, text).
        extends: the machine that it extends; None where its profile stands alone.
    """

    name: str
    gpu: Gpu
    link: Link
    host: Host
    cost_model: Annotated[Mapping[str, float], Stated("cost_model", PARAMETER, "parameter of the cost model")]
    figures: tuple[Figure, ...]
    power: Power | None = None
    kernels: MeasuredKernels | None = None
    provenance: tuple[tuple[str, str], ...] = ()
    topology: Topology | None = None
    cost_model_kind: str = DEFAULT_COST_MODEL
    hosts: int | None = None
    extends: "Server | None" = field(default=None, repr=False, compare=False)

    @property
    def gpu_count(self) -> int:
        """GPUs of one server."""
        return 1 if self.topology is None else len(self.topology.gpus)

    @property
    def is_pretended(self) -> bool:
        return PRETENDED in dict(self.provenance)

    def computes_in(self, element_type: ElementType) -> bool:
        """Whether it has a peak of an element type, or kernels whose products were measured in TF32."""
        in_tf32 = element_type is ElementType.TF32 and self.kernels is not None and self.kernels.tf32
        return in_tf32 or element_type in self.gpu.flop_per_s

    def convolution_type(self, element_type: ElementType) -> ElementType:
        """Return the type in which convolutions are computed: of float32 TF32, unless kernels were measured without it.

        So PyTorch does by default (`torch.backends.cudnn.allow_tf32`), where products of matrices stay in float32
        (`torch.backends.cuda.matmul.allow_tf32`). Without a table TF32 counts where there is a peak of it.
        """
        in_tf32 = self.kernels.tf32 if self.kernels else ElementType.TF32 in self.gpu.flop_per_s
        return ElementType.TF32 if in_tf32 and element_type is ElementType.FLOAT32 else element_type
