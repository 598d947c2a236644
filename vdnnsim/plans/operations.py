"""The operations that the host may issue to a GPU.

They are issued in the order of the plan and run in order on their stream, as in CUDA. A memory model
(`vdnnsim.memory`) decides in issue order whether and where an Allocate fits. Memory is of one stream, mostly that of
compute, whose operations may use it at once; an operation on another stream must come after its Allocate, and its
Release after all of them. In traces it changes when the compute stream reaches its Allocate or Release.
"""

from dataclasses import dataclass, field
from enum import Enum

from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Operand


class Stream(Enum):
    """The two CUDA streams of vDNN (III-B), for kernels and for copies, and those for exchanges between GPUs.

    NCCL runs the collectives of a process group one after the other, on whatever streams they were issued. Stages of a
    pipeline send and receive at the same time. FSDP copies parameters from the host and gradients to it on streams of
    its own; on the latter the host's update follows here.
    """

    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"
    SEND = "send"
    RECEIVE = "receive"
    FROM_HOST = "from host"
    TO_HOST = "to host"

    # As that of `Phase`.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel: a phase of a layer, or one operation of it, by a named algorithm.

    Attributes:
        operands: its buffers by role, its workspace last.
        repeat: 0 for the first run in an iteration, n for the n-th recomputation, which repeats random numbers.
        barrier_s: time lost by a barrier before it, without which kernels would overlap.
        part: of the batch, from 1; 0 is the whole. Parts after the first accumulate weight gradients.
        operation: its number in the phase.
        reads, writes: ids of the buffers.
    """

    layer: int
    phase: Phase
    algorithm: str
    operands: tuple[Operand, ...]
    repeat: int = 0
    barrier_s: float = 0.0
    part: int = 0
    operation: int = 0
    reads: tuple[int, ...] = field(init=False, compare=False, repr=False)
    writes: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _split(self)


@dataclass(frozen=True, slots=True)
class Communicate:
    """A collective of a captured step, or a kernel on the communication stream, as a copy into its buffers.

    Attributes:
        layer, phase, algorithm, operands, operation, reads, writes: as of a Compute.
        collective: with other ranks, which are not part of the plan; None for a kernel.
        stream: of communication, sends, receives or copies, or that of compute, which waits until it is done.
    """

    layer: int
    phase: Phase
    algorithm: str
    operands: tuple[Operand, ...]
    operation: int
    collective: Collective | None
    stream: Stream = Stream.COMMUNICATION
    reads: tuple[int, ...] = field(init=False, compare=False, repr=False)
    writes: tuple[int, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        _split(self)


def _split(operation: Compute | Communicate) -> None:
    operands = operation.operands
    object.__setattr__(operation, "reads", tuple(each.memory for each in operands if each.access.reads))
    object.__setattr__(operation, "writes", tuple(each.memory for each in operands if each.access.writes))


@dataclass(frozen=True, slots=True)
class Allocate:
    """Allocates a buffer for a stream, on behalf of a phase of a layer."""

    buffer: int
    layer: int
    phase: Phase
    stream: Stream = Stream.COMPUTE


@dataclass(frozen=True, slots=True)
class Alias:
    """Places a buffer inside an allocated one; its Release frees nothing."""

    buffer: int
    storage: int


@dataclass(frozen=True, slots=True)
class Release:
    """Frees a buffer; the stream is that of its Allocate."""

    buffer: int
    stream: Stream = Stream.COMPUTE


@dataclass(frozen=True, slots=True)
class ReleaseExtent:
    """Frees the memory of some bytes of a buffer; it keeps its addresses and its other bytes.

    A granule is freed once no byte of it is held (`vdnnsim.memory.models`).
    """

    buffer: int
    extent: range


@dataclass(frozen=True, slots=True)
class AllocateExtent:
    """Allocates memory for released bytes of a buffer, without content, on behalf of a phase of a layer."""

    buffer: int
    extent: range
    layer: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Pinned:
    """One copy by a copy engine from or to pinned host memory, as cudaMemcpyAsync does it."""


@dataclass(frozen=True, slots=True)
class Paged:
    """Copies of one page each, every one of which waits for the host to handle a page fault.

    Attributes:
        page_latency_s: from the fault until the page has arrived, the transfer included.
    """

    page_bytes: int
    page_latency_s: float


Mechanism = Pinned | Paged


@dataclass(frozen=True, slots=True)
class Offload:
    """Copies a buffer to the host.

    Attributes:
        layer, phase: on whose behalf; under vDNN the layer that reads the buffer last in forward.
        copy: number of the copy, where a system makes several of the same content.
        extent: the bytes to copy; None for all.
    """

    buffer: int
    layer: int
    phase: Phase = Phase.FORWARD
    mechanism: Mechanism = Pinned()
    copy: int = 0
    extent: range | None = None


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Copies a buffer back from the host.

    Attributes:
        layer, phase: the kernel for which, or under vDNN beside which, the copy is launched.
        on_demand: whether that layer itself needs the buffer, so that the copy cannot overlap with it.
        keeps_copy: whether the copy on the host stays valid until a kernel writes the buffer; else it is freed.
        copy: as of the Offload.
        extent: as of the Offload, which may have had other extents.
    """

    buffer: int
    layer: int
    on_demand: bool
    keeps_copy: bool = False
    mechanism: Mechanism = Pinned()
    copy: int = 0
    extent: range | None = None
    phase: Phase = Phase.BACKWARD


class Aggregation(Enum):
    """How the gradients of several GPUs become one sum on each of them.

    `cpu`: the host adds up copies of all and returns the sum. `gpu`: so does the first GPU. `ring`: reduce-scatter and
    all-gather around a ring, in 2 (n - 1) steps of one nth (Patarasuk and Yuan, Bandwidth optimal all-reduce
    algorithms, 2009). `ddp`: a ring with the latencies of NCCL, in the buckets of PyTorch's DistributedDataParallel;
    under `ddp_views` gradients are views of buckets (`gradient_as_bucket_view`), under `ddp` these are a second copy.
    """

    CPU = "cpu"
    GPU = "gpu"
    RING = "ring"
    DDP = "ddp"
    DDP_VIEWS = "ddp_views"

    @property
    def has_buckets(self) -> bool:
        """Whether gradients are exchanged in the buckets of DDP."""
        return self in (Aggregation.DDP, Aggregation.DDP_VIEWS)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sums buffers over all GPUs on the communication stream, once every GPU has reached it.

    Attributes:
        collective: id of the exchange, the same in the plans of all GPUs.
    """

    collective: int
    buffers: tuple[int, ...]
    layer: int
    aggregation: Aggregation


@dataclass(frozen=True, slots=True)
class RecordEvent:
    """Marks a point of a stream."""

    event: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class WaitEvent:
    """Holds a stream until the point that an event marks has been reached."""

    event: int
    stream: Stream


@dataclass(frozen=True, slots=True)
class HostSynchronize:
    """Holds the host until everything that it issued to these streams is done."""

    streams: tuple[Stream, ...]


MemoryOperation = Allocate | AllocateExtent | Alias | Release | ReleaseExtent
"""Operations that allocate or free memory."""

Operation = (
    Compute | Communicate | MemoryOperation | Offload | Prefetch | AllReduce | RecordEvent | WaitEvent | HostSynchronize
)
