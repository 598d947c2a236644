"""Functions of the pretended CUDA runtime beyond CUDA's: peaks, clock, durations of operators, memory size."""

import ctypes
from typing import Final

import torch

_FUNCTIONS: Final = {
    "pretend_used_bytes": (ctypes.c_size_t, (ctypes.c_int,)),
    "pretend_peak_bytes": (ctypes.c_size_t, (ctypes.c_int,)),
    "pretend_reset_peak": (None, (ctypes.c_int,)),
    "pretend_set_memory_bytes": (None, (ctypes.c_size_t,)),
    "pretend_clock_ns": (ctypes.c_int64, ()),
    "pretend_spend": (None, (ctypes.c_double,)),
    "pretend_count": (ctypes.c_int64, (ctypes.c_char_p,)),
    "pretend_operator_begin": (None, (ctypes.c_double,)),
    "pretend_operator_end": (None, ()),
    "pretend_bytes_at": (ctypes.c_void_p, (ctypes.c_void_p,)),
    "pretend_busy": (None, (ctypes.c_void_p, ctypes.c_double)),
}
"""Result and argument types, as in the runtime's headers."""


class Driver:
    """The functions of the runtime in this process.

    Raises:
        AttributeError: the runtime is not preloaded into this process.
    """

    def __init__(self) -> None:
        self._runtime = ctypes.CDLL(None)
        for name, (answer, arguments) in _FUNCTIONS.items():
            function = getattr(self._runtime, name)
            function.restype, function.argtypes = answer, arguments

    def peak_bytes(self, gpu: int) -> int:
        """Peak of used memory on a GPU by the driver, the context included."""
        return int(self._runtime.pretend_peak_bytes(gpu))

    def clock_s(self) -> float:
        """Seconds on the host's clock, which waits advance."""
        return int(self._runtime.pretend_clock_ns()) / 1e9

    def launches(self) -> int:
        """Number of kernels that this process has launched, calls of libraries included."""
        return int(self._runtime.pretend_count(b"launch"))

    def begin_operator(self, seconds: float = 0.0) -> None:
        """Let the kernels that this thread launches until `end_operator` last `seconds` together."""
        self._runtime.pretend_operator_begin(seconds)

    def end_operator(self) -> None:
        """Return to the runtime's default durations of kernels."""
        self._runtime.pretend_operator_end()

    def work(self, device: torch.device, seconds: float) -> None:
        """Queue work of some seconds on the current stream of a GPU."""
        self._runtime.pretend_busy(torch.cuda.current_stream(device).cuda_stream, seconds)

    def bytes_at(self, address: int) -> int:
        """Return the host address of the bytes of an address of a GPU, which the host cannot access itself."""
        return int(self._runtime.pretend_bytes_at(address))

    def set_memory_bytes(self, nbytes: int) -> None:
        """Set the memory of each GPU; allocated memory stays, even if it is more."""
        self._runtime.pretend_set_memory_bytes(nbytes)
