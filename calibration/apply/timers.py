"""Timers of a loop and its copies: events on the streams of a GPU, the clock of the host on a CPU."""

import torch

from calibration.apply.copy_stream import CopyStream, CpuCopyStream, CudaCopyStream
from calibration.devices.worker import WorkerMark


class CpuStopwatch:
    """The clock of the host."""

    def __init__(self, copy_stream: CpuCopyStream) -> None:
        self._copy_stream = copy_stream
        self._begun_s = copy_stream.clock.now_s()

    def here(self) -> float:
        """Read it now."""
        return self._copy_stream.clock.now_s()

    def beside(self) -> WorkerMark:
        """Let the thread of copies read it, behind what it was given."""
        return self._copy_stream.stream.mark()

    def seconds(self, mark: float | WorkerMark) -> float:
        """Return when a mark was reached since the watch was made; wait until it is."""
        if isinstance(mark, WorkerMark):
            mark.join()
            mark = mark.time_s
        return mark - self._begun_s


class CudaStopwatch:
    """Events that are timed."""

    def __init__(self, copy_stream: CudaCopyStream, device: torch.device) -> None:
        self._device, self._stream = device, copy_stream.stream
        self._begun = self.here()

    def here(self) -> torch.cuda.Event:
        """Record on the current stream."""
        return self._recorded(torch.cuda.current_stream(self._device))

    def beside(self) -> torch.cuda.Event:
        """Record on the stream of copies."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._recorded(self._stream)

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Return when a mark was reached since the watch was made; wait until it is."""
        mark.synchronize()
        milliseconds: float = self._begun.elapsed_time(mark)
        return milliseconds / 1000

    def _recorded(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


Stopwatch = CpuStopwatch | CudaStopwatch
"""Marks the stream of the loop (`here`) and that of its copies behind it (`beside`)."""


def stopwatch(copy_stream: CopyStream, device: torch.device) -> Stopwatch:
    """Return a watch that begins now."""
    if isinstance(copy_stream, CudaCopyStream):
        return CudaStopwatch(copy_stream, device)
    assert isinstance(copy_stream, CpuCopyStream), "there are two kinds"
    return CpuStopwatch(copy_stream)
