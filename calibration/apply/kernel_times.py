"""How long kernels take on this GPU: an operation runs a few times behind a pause, so that the host is ahead of it."""

from collections.abc import Callable
from typing import Final

import torch

_RUNS: Final = 4
_ATTEMPTS: Final = 3
_PAUSE_CYCLES: Final = 2_000_000
"""About a millisecond of a GPU of today; four times as long with each attempt."""


def kernel_seconds(run: Callable[[], object], device: torch.device) -> float | None:
    """Return the seconds for which an operation keeps a GPU busy, the mean of a few runs.

    The stream is paused until all runs are queued, so that what the host spends on them is no part of it.

    Args:
        run: queues it on the current stream; it has run before.
        device: a GPU.

    Returns:
        None of an operation whose host waits for the GPU, so that it can never be queued behind a pause.
    """
    for attempt in range(_ATTEMPTS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        # PyTorch's own tests keep a stream busy with it; there is no public way.
        torch._C._cuda_sleep(_PAUSE_CYCLES * 4**attempt)  # noqa: SLF001
        begin.record()
        for _ in range(_RUNS):
            run()
        end.record()
        is_ahead = not begin.query()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        if is_ahead:
            milliseconds: float = begin.elapsed_time(end)
            return milliseconds / 1000 / _RUNS
    return None
