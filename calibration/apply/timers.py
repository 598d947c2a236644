"""When a loop and its copies come to a place: by events on the streams of a GPU, by the clock of the host on a CPU."""

from typing import Any, Protocol

import torch

from calibration.apply.copy_stream import CpuLane, CudaLane, Lane
from calibration.devices.worker import WorkerMark


class Stopwatch(Protocol):
    """Marks places on the stream of the loop and on that of its copies; made where a step begins."""

    def here(self) -> Any:  # noqa: ANN401 - a mark of the watch
        """Mark where the loop is."""

    def beside(self) -> Any:  # noqa: ANN401 - as above
        """Mark where the copies are, behind what the loop has issued."""

    def seconds(self, mark: Any) -> float:  # noqa: ANN401 - as above
        """Return when a mark was come to since the watch was made; wait until it is."""


class CpuStopwatch:
    """The clock of the host."""

    def __init__(self, lane: CpuLane) -> None:
        self._lane = lane
        self._begun_s = lane.clock.now_s()

    def here(self) -> float:
        """Read it."""
        return self._lane.clock.now_s()

    def beside(self) -> WorkerMark:
        """Let the thread of copies read it."""
        return self._lane.stream.mark()

    def seconds(self, mark: float | WorkerMark) -> float:
        """Subtract."""
        if isinstance(mark, WorkerMark):
            mark.join()
            mark = mark.time_s
        return mark - self._begun_s


class CudaStopwatch:
    """Events that are timed."""

    def __init__(self, lane: CudaLane, device: torch.device) -> None:
        self._device, self._stream = device, lane.stream
        self._begun = self.here()

    def here(self) -> torch.cuda.Event:
        """Record on the current stream."""
        return self._recorded(torch.cuda.current_stream(self._device))

    def beside(self) -> torch.cuda.Event:
        """Record on the stream of copies."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        return self._recorded(self._stream)

    def seconds(self, mark: torch.cuda.Event) -> float:
        """Ask the GPU."""
        mark.synchronize()
        milliseconds: float = self._begun.elapsed_time(mark)
        return milliseconds / 1000

    def _recorded(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(stream)
        return event


def stopwatch(lane: Lane, device: torch.device) -> Stopwatch:
    """Return a watch that begins now."""
    if isinstance(lane, CudaLane):
        return CudaStopwatch(lane, device)
    assert isinstance(lane, CpuLane), "there are two kinds"
    return CpuStopwatch(lane)
