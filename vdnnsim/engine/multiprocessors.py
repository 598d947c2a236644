"""The multiprocessors of one GPU in simulated time, of which NCCL's kernels take some from those beside them.

A kernel beside a collective runs as on a GPU with fewer multiprocessors: one that computes takes longer, one that
waits for DRAM does not. Whenever a collective begins or ends, the kernel that runs is timed anew.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

import simpy

Slowdowns = Mapping[int, float]
"""By its position in the plan, how many times as long a kernel takes; where it is left out, once."""


class Multiprocessors:
    """The multiprocessors of one GPU.

    Args:
        slowdowns: those of kernels beside collectives that take so many.
    """

    def __init__(self, slowdowns: Callable[[int], Slowdowns]) -> None:
        self._slowdowns = lru_cache(maxsize=None)(slowdowns)
        self._taken = 0
        self._running: simpy.Process | None = None

    def slowdown(self, position: int) -> float:
        return self._slowdowns(self._taken).get(position, 1.0) if self._taken else 1.0

    @contextmanager
    def running(self, kernel: simpy.Process | None) -> Iterator[None]:
        """Interrupt a process, while it runs a kernel, whenever its slowdown may change."""
        self._running = kernel
        yield
        self._running = None

    @contextmanager
    def taken(self, count: int) -> Iterator[None]:
        """Take some for a collective."""
        self._take(count)
        yield
        self._take(-count)

    def _take(self, count: int) -> None:
        self._taken += count
        if count and self._running is not None:
            self._running.interrupt()
