"""The vocabulary of a plan: what a host may issue to a GPU, in plain frozen data.

Operations are issued by the host in the order of the plan and run in order on their stream, as CUDA does. Allocate,
Alias and Release are ordered on the compute stream: whether and where they fit is decided in issue order by a memory
model (`vdnnsim.memory`), their time is when the compute stream reaches them.
"""

from dataclasses import dataclass, field
from enum import Enum

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Operand


class Stream(Enum):
    """The two CUDA streams of vDNN (III-B), for kernels and for copies, and one for what several GPUs exchange."""

    COMPUTE = "compute"
    MEMORY = "memory"
    COMMUNICATION = "communication"

    # As that of `Phase`.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Compute:
    """One kernel: a phase of a layer, or one operation of it, by a named algorithm.

    Attributes:
        operands: the buffers that it touches by their roles, its workspace the last.
        repeat: 0 for the first time in an iteration, n for the n-th recomputation, whose result is the same, even where
            random numbers are drawn.
        barrier_s: what it loses by a barrier before it, where kernels would overlap without.
        part: over which part of the batch it runs, from 1; 0 is the whole. Parts behind the first add to weight
            gradients.
        operation: which of the operations of the phase it is.
        reads, writes: ids of the buffers that it reads and writes.
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
        """Derive what is read and written."""
        object.__setattr__(self, "reads", tuple(each.memory for each in self.operands if each.access.reads))
        object.__setattr__(self, "writes", tuple(each.memory for each in self.operands if each.access.writes))


@dataclass(frozen=True, slots=True)
class Allocate:
    """Takes the bytes of a buffer from the memory pool, on behalf of a phase of a layer."""

    buffer: int
    layer: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Alias:
    """Lays a buffer into the bytes of an allocated one; its Release ends it and frees nothing."""

    buffer: int
    storage: int


@dataclass(frozen=True, slots=True)
class Release:
    """Gives the bytes of a buffer back to the memory pool."""

    buffer: int


@dataclass(frozen=True, slots=True)
class ReleaseExtent:
    """Gives the memory of some bytes of an allocated buffer back; it keeps its addresses and its other bytes.

    A memory model hands memory back in granules, once no byte of one is held any more (`vdnnsim.memory.models`).
    """

    buffer: int
    extent: range


@dataclass(frozen=True, slots=True)
class AllocateExtent:
    """Takes memory for some bytes of an allocated buffer again, on behalf of a phase of a layer; they are empty."""

    buffer: int
    extent: range
    layer: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class Pinned:
    """One copy by a copy engine from or to pinned host memory, as cudaMemcpyAsync does it."""


@dataclass(frozen=True, slots=True)
class Paged:
    """Many copies of one page each, every one of which waits for the host to handle a page fault.

    Attributes:
        page_latency_s: from the fault until the page has arrived, the transfer included.
    """

    page_bytes: int
    page_latency_s: float


Mechanism = Pinned | Paged
"""How a copy between GPU and host is done."""


@dataclass(frozen=True, slots=True)
class Offload:
    """Copies a buffer to the host.

    Attributes:
        layer, phase: on whose behalf; under vDNN the layer that has just read the buffer last in forward.
        copy: which of several copies of the same content on the host, where a system makes more than one.
        extent: the bytes that it moves; None for all of the buffer.
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
        layer, phase: the kernel for which, or under vDNN beside which, the copy was launched.
        on_demand: whether that layer itself needs the buffer, so that the copy cannot overlap with it.
        keeps_copy: whether the copy on the host stays, good until a kernel writes the buffer; else its memory is free.
        copy: which of several copies, as of the Offload.
        extent: the bytes that it moves; None for all of the buffer. They may have left by other extents.
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

    `cpu`: each copies its own to the host, which adds them up, and copies the sum back. `gpu`: all copy theirs to the
    first GPU, which adds them up and sends the sum to each. `ring`: reduce-scatter and all-gather around a ring, in
    2 (n - 1) steps of one nth (Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009). `ddp`: a ring as
    well, in buckets as PyTorch's DistributedDataParallel fills them, with the latencies of NCCL; `ddp_views` lets the
    gradients lie in their buckets (`gradient_as_bucket_view`), where `ddp` has a second copy of them.
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
    """Sums buffers over all GPUs; runs on the communication stream, when every GPU has reached it.

    Attributes:
        collective: the id by which the plans of the GPUs mean the same exchange.
        layer: on whose behalf.
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
"""What takes memory or gives it back, where the compute stream reaches it."""

Operation = Compute | MemoryOperation | Offload | Prefetch | AllReduce | RecordEvent | WaitEvent | HostSynchronize


def describe(operation: Operation, buffer_names: tuple[str, ...], layer_names: tuple[str, ...]) -> str:
    """Return an operation in one line for people: `prefetch of X conv2_1 during backward of conv2_2`."""
    match operation:
        case Compute(layer=layer, phase=phase, algorithm=algorithm, repeat=repeat, part=part):
            again = f", recomputation {repeat}" if repeat else ""
            of_batch = f", part {part} of the batch" if part else ""
            return f"{phase.value} of {layer_names[layer]} ({algorithm}{again}{of_batch})"
        case Allocate(buffer=buffer):
            return f"allocate {buffer_names[buffer]}"
        case Alias(buffer=buffer, storage=storage):
            return f"lay {buffer_names[buffer]} into {buffer_names[storage]}"
        case Release(buffer=buffer):
            return f"release {buffer_names[buffer]}"
        case AllocateExtent(buffer=buffer, extent=extent):
            return f"allocate {of_extent(buffer_names[buffer], extent)}"
        case ReleaseExtent(buffer=buffer, extent=extent):
            return f"release {of_extent(buffer_names[buffer], extent)}"
        case Offload(buffer=buffer, layer=layer, extent=extent) | Prefetch(buffer=buffer, layer=layer, extent=extent):
            kind, when = _copy_words(operation)
            return f"{kind} of {of_extent(buffer_names[buffer], extent)} {when} {layer_names[layer]}"
        case AllReduce(aggregation=aggregation):
            return f"aggregation of the {exchanged(operation, layer_names)} ({aggregation.value})"
        case RecordEvent(event=event, stream=stream):
            return f"record event {event} on the {stream.value} stream"
        case WaitEvent(event=event, stream=stream):
            return f"wait for event {event} on the {stream.value} stream"
        case HostSynchronize(streams=streams):  # pragma: no branch
            return f"host synchronization with {' and '.join(stream.value for stream in streams)}"


def _copy_words(copy: Offload | Prefetch) -> tuple[str, str]:
    if isinstance(copy.mechanism, Paged):
        return "page-out" if isinstance(copy, Offload) else "page-in", "for"
    when = f"during {'backward' if copy.phase.is_backward else copy.phase.value} of"
    if isinstance(copy, Offload):
        return "offload", when
    return "fetch on demand" if copy.on_demand else "prefetch", when


def of_extent(name: str, extent: range | None) -> str:
    """Return the name of a buffer, or of some of its bytes: `bytes 0 to 511 of X`."""
    return name if extent is None else f"bytes {extent.start} to {extent.stop - 1} of {name}"


def exchanged(exchange: AllReduce, layer_names: tuple[str, ...]) -> str:
    """Return what an exchange adds up: `gradients of conv2_1`."""
    layer = layer_names[exchange.layer]
    if exchange.aggregation.has_buckets:
        return f"bucket of {len(exchange.buffers)} gradients, completed by {layer}"
    return f"gradients of {layer}"
