"""What the pretended runtime lets a process see and set that no real one does; for use inside such a process."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from vdnnsim.errors import DeviceError

_COUNTED: Final = ("malloc", "free", "launch", "copy", "pin")


class Controls:
    """The functions of the runtime that this process was started with.

    Raises:
        DeviceError: it was started without.
    """

    def __init__(self) -> None:
        runtime = ctypes.CDLL(None)
        if not hasattr(runtime, "pretend_clock_ns"):
            raise DeviceError("no GPU is pretended to this process; start it by python -m calibration.pretend")
        self._clock = runtime.pretend_clock_ns
        self._clock.restype, self._clock.argtypes = ctypes.c_int64, ()
        self._spend = runtime.pretend_spend
        self._spend.restype, self._spend.argtypes = None, (ctypes.c_double,)
        self._used = runtime.pretend_used_bytes
        self._used.restype, self._used.argtypes = ctypes.c_size_t, (ctypes.c_int,)
        self._peak = runtime.pretend_peak_bytes
        self._peak.restype, self._peak.argtypes = ctypes.c_size_t, (ctypes.c_int,)
        self._reset_peak = runtime.pretend_reset_peak
        self._reset_peak.restype, self._reset_peak.argtypes = None, (ctypes.c_int,)
        self._set_memory = runtime.pretend_set_memory_bytes
        self._set_memory.restype, self._set_memory.argtypes = None, (ctypes.c_size_t,)
        self._count = runtime.pretend_count
        self._count.restype, self._count.argtypes = ctypes.c_int64, (ctypes.c_char_p,)
        self._begin = runtime.pretend_operator_begin
        self._begin.restype, self._begin.argtypes = None, (ctypes.c_double,)
        self._end = runtime.pretend_operator_end
        self._end.restype, self._end.argtypes = None, ()

    @property
    def clock_ns(self) -> int:
        """What the host has come to."""
        return int(self._clock())

    def spend(self, seconds: float) -> None:
        """Let the host work for so long."""
        self._spend(seconds)

    def used_bytes(self, gpu: int = 0) -> int:
        """Return what the driver has handed out of a GPU, the context included."""
        return int(self._used(gpu))

    def peak_bytes(self, gpu: int = 0) -> int:
        """Return the most that it had, since the start or the last `reset_peak`."""
        return int(self._peak(gpu))

    def reset_peak(self, gpu: int = 0) -> None:
        """Forget more than is handed out now."""
        self._reset_peak(gpu)

    def set_memory(self, nbytes: int) -> None:
        """Give all GPUs so much memory; what is handed out stays, even if it is more."""
        self._set_memory(nbytes)

    def count(self, what: str) -> int:
        """Return how often there was a malloc, free, launch, copy or pin."""
        assert what in _COUNTED, what
        return int(self._count(what.encode()))

    @contextmanager
    def operator(self, seconds: float) -> Iterator[None]:
        """Let the kernels that this thread launches meanwhile take so long together."""
        self._begin(seconds)
        try:
            yield
        finally:
            self._end()
