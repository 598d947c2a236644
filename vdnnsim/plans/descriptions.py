"""Operations of plans in words, for messages and pictures."""

from vdnnsim.dnn.collective import Collective
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    AllReduce,
    Communicate,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Paged,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    WaitEvent,
)


def describe(operation: Operation, buffer_names: tuple[str, ...], layer_names: tuple[str, ...]) -> str:
    """Return an operation in words: `prefetch of X conv2_1 during backward of conv2_2`."""
    match operation:  # pragma: no branch
        case Compute(layer=layer, phase=phase, algorithm=algorithm, repeat=repeat, part=part):
            again = f", recomputation {repeat}" if repeat else ""
            of_batch = f", part {part} of the batch" if part else ""
            return f"{phase.value} of {layer_names[layer]} ({algorithm}{again}{of_batch})"
        case Communicate(layer=layer, phase=phase, collective=collective):
            return f"{_exchange(collective)} in {phase.value} of {layer_names[layer]}"
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
        case HostSynchronize(streams=streams):
            return f"host synchronization with {' and '.join(stream.value for stream in streams)}"


def _exchange(collective: Collective | None) -> str:
    if collective is None:
        return "copy for communication"
    return collective.kind.value + ("" if collective.is_of_host else f" of {collective.ranks} ranks")


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
    """Return the gradients of an exchange in words: `gradients of conv2_1`."""
    layer = layer_names[exchange.layer]
    if exchange.aggregation.has_buckets:
        return f"bucket of {len(exchange.buffers)} gradients, completed by {layer}"
    return f"gradients of {layer}"
