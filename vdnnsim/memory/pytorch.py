"""PyTorch's CUDA caching allocator as it is set: the one place where it is made."""

from collections.abc import Sequence

from vdnnsim.memory.caching import CachingAllocator
from vdnnsim.memory.expandable import ExpandableSegments
from vdnnsim.memory.online import serve
from vdnnsim.memory.requests import Overflow, Placed, Request
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings
from vdnnsim.memory.whole_segments import WholeSegments


def place_pytorch(
    requests: Sequence[Request],
    capacity_bytes: int,
    granule_bytes: int,
    settings: AllocatorSettings = DEFAULTS,
    total_bytes: int | None = None,
) -> Placed | Overflow:
    """Serve requests one by one as PyTorch does in a process that has not allocated anything before."""
    allocator = pytorch_allocator(capacity_bytes, granule_bytes, settings, total_bytes)
    return serve(requests, allocator, capacity_bytes, granule_bytes)


def pytorch_allocator(
    capacity_bytes: int, granule_bytes: int, settings: AllocatorSettings = DEFAULTS, total_bytes: int | None = None
) -> CachingAllocator:
    """Return an allocator that has not allocated anything.

    Args:
        capacity_bytes: memory of the GPU that is there for segments.
        granule_bytes: to which requests are rounded.
        settings: how it is set.
        total_bytes: all memory of the GPU, of which settings take a part; the capacity unless given.
    """
    total_bytes = capacity_bytes if total_bytes is None else total_bytes
    allowed_bytes = settings.allowed_bytes(total_bytes)
    segments: WholeSegments | ExpandableSegments
    if settings.expandable_segments:
        segments = ExpandableSegments(capacity_bytes, granule_bytes, settings, allowed_bytes, total_bytes=total_bytes)
    else:
        segments = WholeSegments(capacity_bytes, granule_bytes, settings, allowed_bytes)
    return CachingAllocator(segments, settings)
