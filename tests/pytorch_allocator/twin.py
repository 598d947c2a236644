"""Random traces on several streams, run on PyTorch's caching allocator on a GPU and on the model, event by event.

Tensors of bytes are allocated and freed; some are used by other, possibly busy streams (`record_stream`); sometimes the
cache is emptied. Memory is scarce in some traces, so that requests are refused. Compared are allocated and reserved
bytes after every event, room and address after every request, and at intervals all free blocks.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

import torch

from tests.pytorch_allocator.model import Divergence, GpuMemory, ModelBeside
from tests.pytorch_allocator.random_traces import SETTINGS, RandomTrace
from vdnnsim.memory.online import Block
from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.units import GIB

Occupy = Callable[[torch.cuda.Stream], None]
"""Gives a stream work that lasts until the host waits for the stream."""

EVENTS_BETWEEN_SNAPSHOTS: Final = 1000


@dataclass(frozen=True, slots=True)
class TraceOutcome:
    """The outcome of a trace: requests without room, and blocks that `waited` for a stream before they were reused."""

    trace: RandomTrace
    events: int
    refusals: int
    waited: int
    divergence: Divergence | None


def run_trace(trace: RandomTrace, device: int, memory: GpuMemory, occupy: Occupy) -> TraceOutcome:
    """Run a trace on both allocators, up to the first difference.

    The memory of the device is empty and limited as the trace says; `occupy` gives a stream work.
    """
    twins = _Twins(trace, device, memory, occupy)
    with allocator_set(trace.settings, device, memory.total_bytes):
        try:
            return twins.run()
        finally:
            twins.clear()


@contextmanager
def allocator_set(settings: AllocatorSettings, device: int, total_bytes: int) -> Iterator[None]:
    """Apply settings to PyTorch's allocator within the context; memory is empty at both ends."""
    words = settings.words or "expandable_segments:False"
    torch._C._accelerator_setAllocatorSettings(words)  # noqa: SLF001  # has no other name
    allowed_bytes = settings.allowed_bytes(total_bytes)
    # PyTorch takes the fraction of the initial memory, and ignores it in settings that change later.
    first_bytes = torch.cuda.get_device_properties(device).total_memory
    fraction = 1.0 if allowed_bytes is None else min(1.0, (allowed_bytes + 0.5) / first_bytes)
    torch.cuda.set_per_process_memory_fraction(fraction, device)
    try:
        yield
    finally:
        torch._C._accelerator_setAllocatorSettings("expandable_segments:False")  # noqa: SLF001
        torch.cuda.set_per_process_memory_fraction(1.0, device)


TRACE_COLUMNS: Final = (
    "PYTORCH_ALLOC_CONF",
    "traces",
    "with several streams",
    "events",
    "refusals",
    "blocks that waited",
    "divergences",
)
"""Of `trace_rows`, one row for all traces with the same settings."""


def trace_rows(outcomes: Sequence[TraceOutcome]) -> list[tuple[str, ...]]:
    """Return the rows of a table, one for each of `SETTINGS`."""
    rows = []
    for words in SETTINGS:
        alike = [each for each in outcomes if each.trace.settings == parse_settings(words)]
        counts = (
            len(alike),
            sum(each.trace.streams > 1 for each in alike),
            sum(each.events for each in alike),
            sum(each.refusals for each in alike),
            sum(each.waited for each in alike),
            sum(each.divergence is not None for each in alike),
        )
        rows.append((words or "not set", *(f"{count:,}" for count in counts)))
    return rows


class _Twins:
    """PyTorch's tensors and the model's blocks under the same keys."""

    def __init__(self, trace: RandomTrace, device: int, memory: GpuMemory, occupy: Occupy) -> None:
        self._trace = trace
        self._device = device
        self._gpu = torch.device("cuda", device)
        self._memory = memory
        self._occupy = occupy
        self._numbers = random.Random(f"{trace.sizes.value} {trace.seed}")  # noqa: S311  # picks sizes
        self._streams: Sequence[torch.cuda.Stream] = [
            torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            for _ in range(trace.streams)
        ]
        self._beside = ModelBeside(memory)
        self._held: list[tuple[torch.Tensor, Block]] = []
        # Events on the streams for which blocks wait, recorded where PyTorch records its own.
        self._ends: list[deque[torch.cuda.Event]] = [deque() for _ in self._streams]
        self._waited = 0
        # Target of allocated bytes; beyond the memory of the GPU requests are refused.
        self._target_bytes = self._numbers.uniform(0.5, 1.2) * min(trace.memory_bytes, 2 * GIB)

    def run(self) -> TraceOutcome:
        beside = self._beside
        for event in range(self._trace.events):
            beside.events = event
            self._next()
            self._compare(with_blocks=event % EVENTS_BETWEEN_SNAPSHOTS == 0)
            if beside.divergence is not None:
                break
        return TraceOutcome(self._trace, beside.events + 1, beside.refusals, self._waited, beside.divergence)

    def clear(self) -> None:
        self._held.clear()
        torch.cuda.set_stream(torch.cuda.default_stream(self._device))
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()

    def _next(self) -> None:
        numbers, several = self._numbers, len(self._streams) > 1
        what = numbers.random()
        if what < 0.002:
            self._empty_cache()
        elif several and what < 0.03:
            self._streams[numbers.randrange(len(self._streams))].synchronize()
        elif several and what < 0.08:
            self._occupy(self._streams[numbers.randrange(len(self._streams))])
        elif several and self._held and what < 0.2:
            self._use(numbers.randrange(len(self._held)), numbers.randrange(len(self._streams)))
        elif self._held and numbers.random() < (0.42 if self._below_target else 0.6):
            self._give_back(numbers.randrange(len(self._held)))
        else:
            self._take(self._trace.sizes.draw(numbers), numbers.randrange(len(self._streams)))

    @property
    def _below_target(self) -> bool:
        return self._beside.allocator.allocated_bytes < self._target_bytes

    def _take(self, nbytes: int, number: int) -> None:
        model = self._beside.allocator
        for stream, ends in enumerate(self._ends):
            if ends:
                model.reach(stream, sum(1 for _ in takewhile(_is_over, ends)))
        # Half a million times, the context manager of streams would take most of the time.
        torch.cuda.set_stream(self._streams[number])
        try:
            tensor = torch.empty(nbytes, dtype=torch.uint8, device=self._gpu)
        except torch.cuda.OutOfMemoryError:
            self._beside.take(nbytes, number, None)
        else:
            block = self._beside.take(nbytes, number, tensor.data_ptr())
            if block is not None:
                self._held.append((tensor, block))
        self._forget_ends()

    def _use(self, at: int, number: int) -> None:
        tensor, block = self._held[at]
        tensor.record_stream(self._streams[number])
        self._beside.allocator.record_use(block, number)

    def _give_back(self, at: int) -> None:
        self._held[at], self._held[-1] = self._held[-1], self._held[at]
        model, (tensor, block) = self._beside.allocator, self._held.pop()
        del tensor
        model.free(block)
        for number, stream in enumerate(self._streams):
            if model.waiting_blocks(number) > len(self._ends[number]):
                end = torch.cuda.Event()  # type: ignore[no-untyped-call]
                end.record(stream)
                self._waited += not _is_over(end)
                self._ends[number].append(end)

    def _empty_cache(self) -> None:
        torch.cuda.empty_cache()
        self._beside.allocator.empty_cache()
        self._forget_ends()

    def _forget_ends(self) -> None:
        """Drop the ends of blocks that wait no longer."""
        for number, ends in enumerate(self._ends):
            while len(ends) > self._beside.allocator.waiting_blocks(number):
                ends.popleft()

    def _compare(self, *, with_blocks: bool) -> None:
        beside, model = self._beside, self._beside.allocator
        statistics = torch.cuda.memory_stats_as_nested_dict(self._device)
        for what, counted in (("allocated", model.allocated_bytes), ("reserved", model.reserved_bytes)):
            beside.compare(f"{what} bytes", statistics[f"{what}_bytes"]["all"]["current"], counted)
        if with_blocks and beside.divergence is None:
            beside.compare_free(_free_blocks(self._device))


def _is_over(end: torch.cuda.Event) -> bool:
    return bool(end.query())  # type: ignore[no-untyped-call]


def _free_blocks(device: int) -> list[Block]:
    """Return the free blocks of PyTorch, without those that wait for a stream."""
    return [
        Block(block["address"], block["size"])
        for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
        if segment["device"] == device
        for block in segment["blocks"]
        if block["state"] == "inactive"
    ]
