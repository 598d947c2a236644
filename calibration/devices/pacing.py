"""Wait for a moment of the host's clock, precisely, and leave the core and the interpreter to others meanwhile."""

import select
import time
from time import perf_counter

# A sleep ends 50 to 150 microseconds late on Linux, where timers of ordinary threads have that much slack.
_SPIN_S = 200e-6


def wait_until(moment_s: float) -> None:
    """Return as soon as `perf_counter` has reached a moment: most of the wait is slept, the rest is spun.

    The spin asks an empty poll, which takes a microsecond and gives the interpreter to whoever wants it meanwhile;
    `time.sleep(0)` would take as long as a short sleep.
    """
    sleep_s = moment_s - perf_counter() - _SPIN_S
    if sleep_s > 0:
        time.sleep(sleep_s)
    nothing = select.poll()
    while perf_counter() < moment_s:
        nothing.poll(0)
