"""Clocks of `time` that follow the pretended GPUs' virtual clock, so that all durations of a program agree.

`perf_counter`, `time` and their forms in nanoseconds follow it; real host time of Python and PyTorch is not counted.
`monotonic` stays real: the standard library uses it for timeouts of queues and locks, which would never end on a clock
that stands still while a process waits for another one. Forked processes, which have no GPU, return to real time.
"""

import ctypes
import os
import threading
import time
from typing import SupportsIndex

_READING_S = 1e-7
"""Time of a reading, of the order of a real one's, so that a loop that waits for a time ends."""
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
        # Really sleep too: it may be for other processes and threads. Sleep of other threads, as of watchdogs, does not
        # delay the program.
        really_sleep(seconds)
        if threading.current_thread() is threading.main_thread():
            spend(float(seconds))

    time.perf_counter, time.perf_counter_ns = perf_counter, perf_counter_ns
    time.time, time.time_ns, time.sleep = date, time_ns, sleep
    os.register_at_fork(after_in_child=_follow_real_clocks)


def _follow_real_clocks() -> None:
    time.perf_counter, time.perf_counter_ns, time.time, time.time_ns, time.sleep = _REAL
