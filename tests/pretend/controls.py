"""What the pretended runtime lets a process see and set beside what a recording asks of it, for tests of it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import torch

from calibration.pretend.inside.driver import Driver
from vdnnsim.errors import DeviceError

_COUNTED: Final = ("malloc", "free", "launch", "copy", "pin")


class Controls(Driver):
    """The functions of the runtime that this process was started with."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except AttributeError:
            raise DeviceError(
                "no GPU is pretended to this process; start it by python -m calibration.pretend"
            ) from None

    @property
    def clock_ns(self) -> int:
        """What the host has come to."""
        return int(self._runtime.pretend_clock_ns())

    def spend(self, seconds: float) -> None:
        self._runtime.pretend_spend(seconds)

    def used_bytes(self, gpu: int = 0) -> int:
        """Return what the driver has handed out of a GPU, the context included."""
        return int(self._runtime.pretend_used_bytes(gpu))

    def peak_bytes(self, gpu: int = 0) -> int:
        """Return the most that it had, since the start or the last `reset_peak`."""
        return super().peak_bytes(gpu)

    def reset_peak(self, gpu: int = 0) -> None:
        """Forget more than is handed out now."""
        self._runtime.pretend_reset_peak(gpu)

    def count(self, what: str) -> int:
        assert what in _COUNTED, what
        return int(self._runtime.pretend_count(what.encode()))

    @contextmanager
    def operator(self, seconds: float) -> Iterator[None]:
        """Let the kernels that this thread launches meanwhile take so long together."""
        self.begin_operator(seconds)
        try:
            yield
        finally:
            self.end_operator()


def seconds(work: Callable[[], object]) -> float:
    """How long some work lasts on the GPU, once it has been done before."""
    work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    work()
    end.record()
    torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3
