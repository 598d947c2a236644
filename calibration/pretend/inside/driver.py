"""The pretended GPU as its runtime shows it to this process, into which it is preloaded."""

import ctypes
from typing import Final

import torch


class Driver:
    """What no call of CUDA says: peaks of the driver's view, and the clock.

    Raises:
        AttributeError: the runtime is not preloaded into this process.
    """

    def __init__(self) -> None:
        runtime: Final = ctypes.CDLL(None)
        self._peak_bytes = runtime.pretend_peak_bytes
        self._peak_bytes.argtypes, self._peak_bytes.restype = [ctypes.c_int], ctypes.c_size_t
        self._clock_ns = runtime.pretend_clock_ns
        self._clock_ns.argtypes, self._clock_ns.restype = [], ctypes.c_int64
        self._count = runtime.pretend_count
        self._count.argtypes, self._count.restype = [ctypes.c_char_p], ctypes.c_int64
        self._begin = runtime.pretend_operator_begin
        self._begin.argtypes, self._begin.restype = [ctypes.c_double], None
        self._end = runtime.pretend_operator_end
        self._end.argtypes, self._end.restype = [], None
        self._busy = runtime.pretend_busy
        self._busy.argtypes, self._busy.restype = [ctypes.c_void_p, ctypes.c_double], None
        self._set_memory = runtime.pretend_set_memory_bytes
        self._set_memory.argtypes, self._set_memory.restype = [ctypes.c_size_t], None

    def peak_bytes(self, gpu: int) -> int:
        """Most that the driver ever showed as used on a GPU, the context included."""
        return int(self._peak_bytes(gpu))

    def clock_s(self) -> float:
        """Seconds on the host's clock, which waiting moves ahead."""
        return int(self._clock_ns()) / 1e9

    def launches(self) -> int:
        """Kernels that this process has launched, calls of libraries among them."""
        return int(self._count(b"launch"))

    def begin_operator(self) -> None:
        """Let kernels take no time until `end_operator`."""
        self._begin(0.0)

    def end_operator(self) -> None:
        """Let kernels last again what the runtime takes them to last."""
        self._end()

    def work(self, device: torch.device, seconds: float) -> None:
        """Put work of so many seconds on the current stream of a GPU."""
        self._busy(torch.cuda.current_stream(device).cuda_stream, seconds)

    def set_memory_bytes(self, nbytes: int) -> None:
        """Let each GPU have so much memory."""
        self._set_memory(nbytes)
