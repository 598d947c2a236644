"""Replay of PyTorch's memory history on the model of its caching allocator, entry by entry.

The history (`torch.cuda.memory._record_memory_history`) has every allocation, free, refusal, and segment taken or
released, but no entry for `empty_cache`: it was called if segments were released although the GPU had room for the next
request.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import torch

from tests.pytorch_allocator.model import GpuMemory, ModelBeside
from vdnnsim.memory.online import Block
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.segments import LARGE_SEGMENT_BYTES

Entry = Mapping[str, Any]
"""One entry of the record: `action`, and with most actions `addr`, `size` and `stream`."""

Answer = TypeVar("Answer")

_TAKEN: Final = ("segment_alloc", "segment_map")
_GIVEN_BACK: Final = ("segment_free", "segment_unmap")


def recorded(work: Callable[[], Answer], device: int) -> tuple[Answer, list[Entry]]:
    """Run work on a GPU; return its result and the history of the allocator."""
    torch.cuda.memory._record_memory_history(context=None, device=device, clear_history=True)  # noqa: SLF001  # so documented
    try:
        answer = work()
        entries: list[Entry] = torch.cuda.memory._snapshot(device)["device_traces"][device]  # noqa: SLF001
    finally:
        torch.cuda.memory._record_memory_history(enabled=None, device=device)  # noqa: SLF001
    return answer, entries


class History:
    """Entries from the first request of a process on, or from an empty allocator."""

    def __init__(self, memory: GpuMemory) -> None:
        self._memory = memory
        self.beside = ModelBeside(memory)
        self.requests = 0
        self._blocks: dict[int, Block] = {}
        self._reserved_bytes = 0
        # What was reserved before segments were released, until the reason is known.
        self._before_bytes: int | None = None
        # By address of a waiting block, a number for the streams that it waits for.
        self._waits_for: dict[int, int] = {}

    def replay(self, entries: Sequence[Entry]) -> None:
        """Replay entries on the model, up to the first difference."""
        for place, entry in enumerate(entries):
            if self.beside.divergence is not None:
                return
            self.beside.events += 1
            following = entries[place + 1] if place + 1 < len(entries) else None
            self._replay(entry, following)

    def _replay(self, entry: Entry, following: Entry | None) -> None:
        model, action = self.beside.allocator, entry["action"]
        if action in _TAKEN:
            self._reserved_bytes += entry["size"]
        elif action in _GIVEN_BACK:
            if self._before_bytes is None:
                self._before_bytes = self._reserved_bytes
            self._reserved_bytes -= entry["size"]
        elif action in ("alloc", "oom"):
            self._take(entry["size"], entry["stream"], entry["addr"] if action == "alloc" else None)
        elif action == "free_requested":
            block = self._blocks.pop(entry["addr"])
            if following is None or (following["action"], following["addr"]) != ("free_completed", entry["addr"]):
                stream = self._waits_for[entry["addr"]] = -1 - self.beside.events
                model.record_use(block, stream)
            model.free(block)
        elif action == "free_completed" and entry["addr"] in self._waits_for:
            stream = self._waits_for.pop(entry["addr"])
            model.reach(stream, model.waiting_blocks(stream))

    def _take(self, nbytes: int, stream: int, address: int | None) -> None:
        if self._before_bytes is not None:
            most_bytes = round_up(nbytes, LARGE_SEGMENT_BYTES) + LARGE_SEGMENT_BYTES
            if self._before_bytes + most_bytes <= self._memory.free_bytes:
                self.beside.allocator.empty_cache()
            self._before_bytes = None
        self.requests += 1
        block = self.beside.take(nbytes, stream, address)
        if block is not None and address is not None:
            self._blocks[address] = block
        self.beside.compare("reserved bytes", self._reserved_bytes, self.beside.allocator.reserved_bytes)
