"""The stream on which a plan copies beside the user's loop: of a GPU, or a thread of the CPU, with pinned memory.

What orders the copies of a GPU, whatever streams the user's program has:

- A step has one stream, the one that was current when its context began. All that is done for its plan is issued
  while that stream is current (`on`): copies begin after what it has issued, memory is allocated from its pool, and
  operations are recomputed on it, in whatever thread and under whatever stream autograd asks. So a block that is freed
  goes back to a pool whose stream already waits for the copies that read it: neither a later allocation nor
  `empty_cache`, which waits for the stream that a block is of, can be ahead of them.
- A storage may come from the pool of another stream, where a program allocates on one and uses it on the step's.
  `lend` tells the allocator that the step's stream uses it too (`Tensor.record_stream`, which does nothing where the
  block is of that stream): it is then not reused before that stream is done with it.
  What is read to recompute is lent alike, for its recipe holds it longer than the program may.
- Backward unpacks a tensor under the stream of its node. Where that is not the step's, it waits for the step's
  (`join`), and the memory is lent to it.
- The host waits for a copy before it hands out what was copied to it (`finish`), and for the whole device before it
  unpins.
- What a program makes or uses on other streams is neither moved nor recomputed (`Tape.aside`), and a step departs where
  a tensor that would be is saved on another stream than the step's.
"""

import weakref
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch

from calibration.devices.pinned_memory import PinnedMemory
from calibration.devices.worker import HostClock, WorkerMark, WorkerStream
from calibration.executor.pinned_arena import HostMemory
from vdnnsim.errors import ExecutionRefused


class CopyStream(HostMemory, Protocol):
    """Copies in order, beside what the loop computes, to and from memory that it pins."""

    def current(self) -> Any:  # noqa: ANN401 - a stream of the device
        """Return the stream on which the calling thread issues; None where there are none."""

    def is_current(self, stream: Any) -> bool:  # noqa: ANN401 - as above
        """Whether the calling thread issues on a stream."""

    def on(self, stream: Any) -> AbstractContextManager[Any]:  # noqa: ANN401 - as above
        """Issue on a stream what is issued within."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:  # noqa: ANN401 - a mark
        """Begin a copy after what the current stream has issued and the copies so far; return the mark of its end.

        Raises:
            ExecutionRefused: the current stream is captured into a CUDA graph.
        """

    def wait(self, mark: Any) -> None:  # noqa: ANN401 - as above
        """Let what the current stream is given from now on wait for a mark."""

    def finish(self, mark: Any) -> None:  # noqa: ANN401 - as above
        """Let the host wait for a mark, so that it may read what was copied."""

    def join(self, stream: Any) -> None:  # noqa: ANN401 - as above
        """Let what the current stream is given from now on wait for all that a stream was given."""

    def lend(self, tensor: torch.Tensor) -> None:
        """Have the memory of a tensor not reused before the current stream is done with what it was given so far."""


class CpuCopyStream:
    """A thread that copies while the thread of the loop computes.

    Attributes:
        stream: the thread; `clock` is what its marks are read by.
    """

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        self.clock = HostClock()
        self.stream = WorkerStream("vdnnsim copies", self.clock, 1)
        # The number of the new thread has become that of later threads.
        torch.set_num_threads(threads)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return host memory, from which a CPU copies as it is."""
        return torch.empty(nbytes, dtype=torch.uint8)

    def unpin(self, tensor: torch.Tensor) -> None:
        """Do nothing: it is freed with its tensor."""

    def current(self) -> None:
        """Return none: all threads compute when they are asked to."""

    def is_current(self, stream: None) -> bool:
        """Return that it is."""
        assert stream is None, "a CPU has no streams"
        return True

    def on(self, stream: None) -> AbstractContextManager[None]:
        """Do nothing."""
        assert stream is None, "a CPU has no streams"
        return nullcontext()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> WorkerMark:
        """Queue a copy."""
        self.stream.launch(partial(_copy, target, source))
        return self.stream.mark()

    def wait(self, mark: WorkerMark) -> None:
        """Wait, and raise what failed."""
        if self.stream.is_calling:
            # It would wait for itself. A copy that is queued holds what it reads and writes.
            return
        mark.join()
        failure = self.stream.take_failure()
        if failure is not None:
            raise failure

    def finish(self, mark: WorkerMark) -> None:
        """Wait, as the host is what waits anyway."""
        self.wait(mark)

    def join(self, stream: None) -> None:
        """Do nothing: what was asked for is done."""

    def lend(self, tensor: torch.Tensor) -> None:
        """Do nothing: a tensor keeps its memory."""


class CudaCopyStream:
    """A stream of its own on a GPU, whose index the device tells."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = device.index
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pinned = PinnedMemory()
        weakref.finalize(self, _give_all_back, self._pinned, device)

    def pin(self, nbytes: int) -> torch.Tensor:
        """Return pinned memory."""
        return self._pinned.take(nbytes)

    def unpin(self, tensor: torch.Tensor) -> None:
        """Unpin it."""
        torch.cuda.synchronize(self._device)
        self._pinned.give_back(tensor)

    def current(self) -> torch.cuda.Stream:
        """Return the current stream of the GPU."""
        return torch.cuda.current_stream(self._index)

    def is_current(self, stream: torch.cuda.Stream) -> bool:
        """Compare handles: it is asked for every tensor that is saved."""
        raw: int = torch._C._cuda_getCurrentRawStream(self._index)  # noqa: SLF001 - its public twin makes an object
        return raw == stream.cuda_stream

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """Make it current, unless it is."""
        return nullcontext() if self.is_current(stream) else torch.cuda.stream(stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> torch.cuda.Event:
        """Launch a copy."""
        if torch.cuda.is_current_stream_capturing():
            raise ExecutionRefused(
                "a step under a plan is captured into a CUDA graph, which would replay its copies without what waits "
                "for them, expected a step that runs eagerly, or a graph of what saves nothing for backward"
            )
        self.stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self.stream):
            _copy(target, source)
            mark: torch.cuda.Event = self.stream.record_event()
            return mark

    def wait(self, mark: torch.cuda.Event) -> None:
        """Let the current stream wait."""
        torch.cuda.current_stream(self._device).wait_event(mark)

    def finish(self, mark: torch.cuda.Event) -> None:
        """Synchronize the event, behind which no stream needs to wait."""
        mark.synchronize()

    def join(self, stream: torch.cuda.Stream) -> None:
        """Let the current stream wait."""
        torch.cuda.current_stream(self._device).wait_stream(stream)

    def lend(self, tensor: torch.Tensor) -> None:
        """Record the current stream with the allocator; no dispatch mode of the program hears of it."""
        if not tensor.is_cuda:
            # Kernels hand out a few numbers on the host, as the seeds of attention with dropout.
            return
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 - there is no public one
            tensor.record_stream(torch.cuda.current_stream(self._device))


def copy_stream_for(device: torch.device) -> CopyStream:
    """Return a copy_stream of a device."""
    return CudaCopyStream(device) if device.type == "cuda" else CpuCopyStream()


def card_of(device: torch.device) -> tuple[str, tuple[int, int] | None]:
    """Return what a device is called, and its compute capability where it is of CUDA."""
    if device.type != "cuda":
        return device.type, None
    return torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)


def _give_all_back(pinned: PinnedMemory, device: torch.device) -> None:
    """Unpin what a copy_stream had, once no copy is about it."""
    if pinned.is_of_this_process:
        torch.cuda.synchronize(device)
        pinned.give_all_back()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source, non_blocking=True)
