"""Replaces the clocks of `time` by the pretended GPUs' virtual clock, so that all durations of a program agree.

`perf_counter`, `time` and their forms in nanoseconds move with it: what the host really takes for Python and PyTorch is
not counted. `monotonic` stays real. It is what the standard library measures timeouts with, of queues and locks, and a
clock that stands still while a process waits for another one would never end those. Processes that are forked go back
to real time, for no GPU's clock goes on in them.
"""

import ctypes
import os
import threading
import time
from typing import SupportsIndex

_READING_S = 1e-7
"""What a reading takes, so that a loop that waits for a moment comes to it; of the order of a real one's."""
_REAL = (time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep)


def follow_virtual_clock() -> None:
    """Replace the clocks of `time`; nothing changes in a process without the pretended runtime."""
    runtime = ctypes.CDLL(None)
    if not hasattr(runtime, "pretend_clock_ns"):
        return
    read, spend = runtime.pretend_clock_ns, runtime.pretend_spend
    read.restype, read.argtypes = ctypes.c_int64, ()
    spend.restype, spend.argtypes = None, (ctypes.c_double,)
    begin_ns: int = read()
    counter_ns, date_ns = time.perf_counter_ns(), time.time_ns()
    really_sleep = time.sleep

    def passed_ns() -> int:
        spend(_READING_S)
        now_ns: int = read()
        return now_ns - begin_ns

    def perf_counter_ns() -> int:
        return counter_ns + passed_ns()

    def time_ns() -> int:
        return date_ns + passed_ns()

    def perf_counter() -> float:
        return perf_counter_ns() / 1e9

    def date() -> float:
        return time_ns() / 1e9

    def sleep(seconds: float | SupportsIndex, /) -> None:
        # Other processes and threads may be waited for, so it is slept as well. Threads beside the main one, as those
        # that watch a program, do not hold it up.
        really_sleep(seconds)
        if threading.current_thread() is threading.main_thread():
            spend(float(seconds))

    time.perf_counter, time.perf_counter_ns = perf_counter, perf_counter_ns
    time.time, time.time_ns, time.sleep = date, time_ns, sleep
    os.register_at_fork(after_in_child=_follow_real_clocks)


def _follow_real_clocks() -> None:
    time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep = _REAL
