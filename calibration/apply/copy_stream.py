"""The stream of a plan's copies: a stream of a GPU, or a thread of the CPU, with pinned memory.

Order on a GPU, whatever streams the user's program has:

- A step has one stream, the current one when its context began. All work of its plan is issued under it (`on`): copies
  follow its work, memory is of its pool, and recomputation runs on it, in any thread and under any current stream. So
  when a block is freed, its stream already waits for copies that read it, and neither a later allocation nor
  `empty_cache` can be ahead of them.
- A storage may be of another stream's pool. `lend` tells the allocator that the step's stream uses it
  (`Tensor.record_stream`), so that it is not reused before; also for tensors that recomputation reads, which their
  recipe holds longer than the program may.
- Backward unpacks a tensor under the stream of its node, which waits for the step's (`join`), and gets the memory lent.
- The host waits for a copy before it reads it (`finish`), and for the device before it unpins memory.
- Storages that a program uses on other streams are neither offloaded nor recomputed (`Tape.aside`); a step departs
  where another one is saved on another stream than the step's.
"""

import weakref
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol, cast

import torch

from calibration.devices.pinned_memory import PinnedMemory
from calibration.devices.worker import HostClock, WorkerMark, WorkerStream
from calibration.executor.pinned_arena import HostMemory
from vdnnsim.errors import ExecutionRefused


class CopyStream(HostMemory, Protocol):
    """Copies in order, beside the loop's kernels, to and from pinned memory."""

    def current(self) -> Any:  # noqa: ANN401 - a stream of the device
        """Return the current stream of the calling thread; None on a CPU."""

    def is_current(self, stream: Any) -> bool:  # noqa: ANN401 - as above
        """Whether a stream is current."""

    def on(self, stream: Any) -> AbstractContextManager[Any]:  # noqa: ANN401 - as above
        """Make a stream current."""

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> Any:  # noqa: ANN401 - a mark
        """Begin a copy after the work of the current stream and earlier copies; return the mark of its end.

        Raises:
            ExecutionRefused: the current stream is captured into a CUDA graph.
        """

    def wait(self, mark: Any) -> None:  # noqa: ANN401 - as above
        """Make the current stream wait for a mark."""

    def finish(self, mark: Any) -> None:  # noqa: ANN401 - as above
        """Make the host wait for a mark."""

    def join(self, stream: Any) -> None:  # noqa: ANN401 - as above
        """Make the current stream wait for the work of a stream."""

    def lend(self, tensor: torch.Tensor) -> None:
        """Keep the memory of a tensor from reuse before the current stream has done its work."""


class CpuCopyStream:
    """A thread that copies beside that of the loop; `clock` reads its marks."""

    def __init__(self) -> None:
        threads = torch.get_num_threads()
        self.clock = HostClock()
        self.stream = WorkerStream("vdnnsim copies", self.clock, 1)
        # The new thread has set the number for later ones.
        torch.set_num_threads(threads)

    def pin(self, nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8)

    def unpin(self, tensor: torch.Tensor) -> None:
        """Do nothing."""

    def current(self) -> None:
        """Return None."""

    def is_current(self, stream: None) -> bool:
        assert stream is None, "a CPU has no streams"
        return True

    def on(self, stream: None) -> AbstractContextManager[None]:
        assert stream is None, "a CPU has no streams"
        return nullcontext()

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> WorkerMark:
        return cast("WorkerMark", self.stream.launch(partial(_copy, target, source)).end)

    def wait(self, mark: WorkerMark) -> None:
        """Wait, and raise a failure of the thread."""
        if self.stream.is_calling:
            # It would wait for itself; queued copies hold their tensors.
            return
        mark.join()
        failure = self.stream.take_failure()
        if failure is not None:
            raise failure

    def finish(self, mark: WorkerMark) -> None:
        self.wait(mark)

    def join(self, stream: None) -> None:
        """Do nothing."""

    def lend(self, tensor: torch.Tensor) -> None:
        """Do nothing."""


class CudaCopyStream:
    """A stream of its own on a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._index = device.index
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pinned = PinnedMemory()
        weakref.finalize(self, _give_all_back, self._pinned, device)

    def pin(self, nbytes: int) -> torch.Tensor:
        return self._pinned.take(nbytes)

    def unpin(self, tensor: torch.Tensor) -> None:
        torch.cuda.synchronize(self._device)
        self._pinned.give_back(tensor)

    def current(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self._index)

    def is_current(self, stream: torch.cuda.Stream) -> bool:
        """Compare handles, fast, for each saved tensor."""
        raw: int = torch._C._cuda_getCurrentRawStream(self._index)  # noqa: SLF001 - its public twin makes an object
        return raw == stream.cuda_stream

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """Make it current, unless it is."""
        return nullcontext() if self.is_current(stream) else torch.cuda.stream(stream)

    def copy(self, target: torch.Tensor, source: torch.Tensor) -> torch.cuda.Event:
        refuse_graph_capture()
        self.stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self.stream):
            _copy(target, source)
            mark: torch.cuda.Event = self.stream.record_event()
            return mark

    def wait(self, mark: torch.cuda.Event) -> None:
        torch.cuda.current_stream(self._device).wait_event(mark)

    def finish(self, mark: torch.cuda.Event) -> None:
        mark.synchronize()

    def join(self, stream: torch.cuda.Stream) -> None:
        torch.cuda.current_stream(self._device).wait_stream(stream)

    def lend(self, tensor: torch.Tensor) -> None:
        """Record the current stream with the allocator, unseen by dispatch modes."""
        if not tensor.is_cuda:
            # As the seeds of attention with dropout, on the host.
            return
        with torch._C._DisableTorchDispatch():  # noqa: SLF001 - there is no public one
            tensor.record_stream(torch.cuda.current_stream(self._device))


def copy_stream_for(device: torch.device) -> CopyStream:
    return CudaCopyStream(device) if device.type == "cuda" else CpuCopyStream()


def refuse_graph_capture() -> None:
    """Refuse a step that is captured: replays would neither wait for copies nor have their memory to themselves.

    Raises:
        ExecutionRefused: the current stream is captured into a CUDA graph.
    """
    if torch.cuda.is_current_stream_capturing():
        raise ExecutionRefused(
            "a step under a plan is captured into a CUDA graph, which would replay its copies without their waits, in "
            "memory of other steps, expected a step that runs eagerly, or a graph that saves nothing for backward"
        )


def card_of(device: torch.device) -> tuple[str, tuple[int, int] | None]:
    """Return the name of a device, and its compute capability if it is of CUDA."""
    if device.type != "cuda":
        return device.type, None
    return torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device)


def _give_all_back(pinned: PinnedMemory, device: torch.device) -> None:
    """Unpin memory after the last copy."""
    if pinned.is_of_this_process:
        torch.cuda.synchronize(device)
        pinned.give_all_back()


def _copy(target: torch.Tensor, source: torch.Tensor) -> None:
    with torch.no_grad():
        target.copy_(source, non_blocking=True)
