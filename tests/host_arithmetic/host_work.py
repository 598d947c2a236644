"""Work of the host on device memory, in the order of a stream: what a kernel would do, done where the kernel stands.

The host cannot touch an address of the pretended GPU; the runtime says where the bytes lie that it stands for.
"""

import ctypes
from collections.abc import Callable
from functools import cache

import torch
from torch.utils._python_dispatch import _disable_current_modes

from calibration.pretend.inside.driver import Driver
from vdnnsim.errors import ExecutionRefused

_HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@cache
def _driver() -> Driver:
    return Driver()


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the CPU over the same bytes; it keeps none of them alive. One of the CPU is itself."""
    if not tensor.is_cuda:
        return tensor
    storage = tensor.untyped_storage()
    elements = storage.nbytes() // tensor.dtype.itemsize
    if elements == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = (ctypes.c_char * storage.nbytes()).from_address(_driver().bytes_at(storage.data_ptr()))
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=elements)
    return flat.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


class HostWork:
    """Puts functions on streams with `cudaLaunchHostFunc`, and keeps what failed in one until the host asks.

    `lasts` returns seconds that the current stream is busy before it comes to the next function.
    """

    def __init__(self, lasts: Callable[[], float] | None = None) -> None:
        self._lasts = lasts
        self._launch = ctypes.CDLL(None).cudaLaunchHostFunc
        self._launch.argtypes = [ctypes.c_void_p, _HostFunction, ctypes.c_void_p]
        self._waiting: dict[int, tuple[str, Callable[[], None]]] = {}
        self._put = 0
        self._failure: ExecutionRefused | None = None
        # Lives as long as the library may call it.
        self._call = _HostFunction(self._run)

    def put(self, name: str, work: Callable[[], None]) -> None:
        """Put work of the CPU alone on the current stream, for a host function may not call CUDA."""
        self._put += 1
        self._waiting[self._put] = name, work
        if self._lasts is not None:
            _driver().begin_operator(self._lasts())
            torch.cuda._sleep(1)  # type: ignore[no-untyped-call]  # noqa: SLF001  # a kernel
            _driver().end_operator()
        status = self._launch(torch.cuda.current_stream().cuda_stream, self._call, self._put)
        assert status == 0, f"cudaLaunchHostFunc returned {status}"

    def raise_failure(self) -> None:
        """Raise what failed first, once."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self, number: int) -> None:
        name, work = self._waiting.pop(number)
        try:
            with _disable_current_modes(), torch.no_grad():
                work()
        except Exception as failure:  # noqa: BLE001  # C cannot pass it on; the host raises it at its next operator
            refusal = ExecutionRefused(f"the host cannot compute {name}: {str(failure).partition(chr(10))[0]}")
            refusal.__cause__ = failure
            self._failure = self._failure or refusal
