"""Memory snapshots of placed iterations for https://pytorch.org/memory_viz.

As those of `torch.cuda.memory._dump_snapshot` they have segments and blocks at the end, and the history from empty
memory on. The one frame of each request names layer, position of the operation in the plan, phase and buffer.

Source: github.com/pytorch/pytorch, torch/utils/viz/MemoryViz.js, for what the viewer reads.
"""

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.memory.caching import pytorch_allocator
from vdnnsim.memory.choices import settings_of
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import UNLIMITED_BYTES, Request, round_up
from vdnnsim.memory.segments import SMALL_SEGMENT_BYTES
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Allocate, Compute
from vdnnsim.plans.placement import asked_by_iteration
from vdnnsim.plans.repetition import buffer_of
from vdnnsim.plans.trace import IterationTrace

_PROTOCOL: Final = 4
"""The newest that the viewer reads."""
_LOWEST: Final = 0x7F00_0000_0000
"""Address of the first segment, typical of GPUs."""

_Entry = dict[str, Any]


def snapshot_pickle(result: ScenarioResult, rows: Sequence[PolicyResult]) -> bytes:
    """Return the iterations of a policy on all GPUs as a pickled snapshot; the memory model must be PyTorch's."""
    model = result.memory_model
    settings = settings_of(model)
    assert settings is not None, "another memory model has no snapshot"
    limits = MemoryLimits.of_server(result.server, model, result.gpus)
    histories = [_History(row, limits, settings) for row in rows]
    words = replace(settings, cudnn_benchmark=False, preallocated=False).words
    content = {
        "segments": [segment for each in histories for segment in each.segments()],
        "device_traces": [each.events for each in histories],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": words},
    }
    return pickle.dumps(content, protocol=_PROTOCOL)


class _History:
    """Requests to the allocator of one GPU over all iterations, and its `events` as a snapshot has them."""

    def __init__(self, row: PolicyResult, limits: MemoryLimits, settings: AllocatorSettings) -> None:
        plan = row.trace.plan
        # A plan that does not fit was replayed without a capacity.
        free_bytes, total_bytes = (limits.pool_bytes(plan), limits.total_bytes) if row.fits else (UNLIMITED_BYTES, None)
        self._allocator = pytorch_allocator(free_bytes, limits.granule_bytes, settings, total_bytes)
        self._gpu = row.gpu
        self._grows = settings.expandable_segments
        self._ranges: set[tuple[int, int]] = set()
        self._changes = 0
        self._granule_bytes = limits.granule_bytes
        # Block, requested bytes and frames by buffer.
        self._held: dict[int, tuple[Block, int, list[_Entry]]] = {}
        self.events: list[_Entry] = []
        times = {change.operation: change.time_s for change in row.trace.memory}
        for iteration, asked in enumerate(asked_by_iteration(plan, limits)):
            begun_s = time_s = iteration * row.trace.iteration_s
            for operation, request in asked:
                buffer, nbytes, searches = request.key, request.nbytes, request.searches
                # Requests of the first iteration alone have no times in the trace.
                time_s = max(time_s, begun_s + times.get(operation, 0.0))
                if nbytes is None:
                    self._free(buffer, time_s)
                    continue
                frames = _frames(row.trace, operation, buffer_of(plan, buffer))
                wanted = nbytes
                while wanted and not self._take(request, wanted, frames, time_s):
                    assert searches, "the replay had room"
                    wanted //= 2
                if searches:
                    self._free(buffer, time_s)
                    self._allocator.empty_cache()
                    self._note_ranges(frames, time_s)

    def segments(self) -> list[_Entry]:
        held = {block.start: (block, asked, frames) for block, asked, frames in self._held.values()}
        blocks = sorted([*(block for block, _, _ in held.values()), *self._allocator.free_blocks])
        segments = []
        for start, size in sorted(self._ranges):
            inside = [block for block in blocks if start <= block.start < start + size]
            entries: list[_Entry] = []
            for block in inside:
                _, asked, frames = held.get(block.start, (block, 0, []))
                state = "active_allocated" if block.start in held else "inactive"
                sizes: _Entry = {"address": _LOWEST + block.start, "size": block.nbytes, "requested_size": asked}
                entries.append({**sizes, "state": state, "frames": frames})
            in_use = sum(block.nbytes for block in inside if block.start in held)
            segment: _Entry = {"device": self._gpu, "address": _LOWEST + start, "total_size": size, "stream": 0}
            segment["segment_type"] = "small" if size == SMALL_SEGMENT_BYTES else "large"
            segment |= {"allocated_size": in_use, "active_size": in_use, "is_expandable": self._grows}
            segments.append({**segment, "frames": [], "blocks": entries})
        return segments

    def _take(self, request: Request, asked: int, frames: list[_Entry], time_s: float) -> bool:
        block = self._allocator.take(round_up(asked, self._granule_bytes), request.stream, request.pool)
        self._note_ranges(frames, time_s)
        if block is None:
            return False
        self._held[request.key] = block, asked, frames
        self._note("alloc", block.start, asked, frames, time_s)
        return True

    def _free(self, buffer: int, time_s: float) -> None:
        if buffer not in self._held:  # it has no bytes
            return
        block, asked, frames = self._held.pop(buffer)
        self._allocator.free(block)
        for action in ("free_requested", "free_completed"):
            self._note(action, block.start, asked, frames, time_s)

    def _note_ranges(self, frames: list[_Entry], time_s: float) -> None:
        if self._allocator.segment_changes == self._changes:
            return
        self._changes = self._allocator.segment_changes
        before, self._ranges = self._ranges, set(self._allocator.ranges)
        old, new = sorted(before - self._ranges), sorted(self._ranges - before)
        freed, allocated = ("segment_unmap", "segment_map") if self._grows else ("segment_free", "segment_alloc")
        for action, ranges, others in ((freed, old, new), (allocated, new, old)):
            for start, size in _without(ranges, others):
                self._note(action, start, size, frames, time_s)

    def _note(self, action: str, start: int, nbytes: int, frames: list[_Entry], time_s: float) -> None:
        event: _Entry = {"action": action, "addr": _LOWEST + start, "size": nbytes, "stream": 0}
        self.events.append({**event, "time_us": round(time_s * 1e6), "frames": frames})


def _without(ranges: Iterable[tuple[int, int]], others: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the parts of ranges outside of others, which are sorted."""
    left = []
    for start, size in ranges:
        reached, end = start, start + size
        for other, other_size in others:
            if other < end and other + other_size > reached:
                if other > reached:
                    left.append((reached, other - reached))
                reached = max(reached, other + other_size)
        if reached < end:
            left.append((reached, end - reached))
    return left


def _frames(trace: IterationTrace, operation: int, buffer: int) -> list[_Entry]:
    """Return the frame of a request: `conv1_1:17:forward, conv1_1 Y`."""
    plan = trace.plan
    made = plan.operations[operation]
    assert isinstance(made, Allocate | Compute)
    beyond = "memory ahead, or search for the fastest convolution"
    what = plan.buffers[buffer].name if buffer < len(plan.buffers) else beyond
    name = f"{made.phase.value}, {what}"
    return [{"filename": plan.layers[made.layer], "line": operation, "name": name}]
