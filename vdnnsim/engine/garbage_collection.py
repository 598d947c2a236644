"""Garbage collection tuned for replays."""

import atexit
import gc


def collect_rarely() -> None:
    """Run the cyclic garbage collector rarely: it took two fifths of a replay, whose objects live to the end.

    At its end Python would look at all of them once more, which took a tenth of an answer.
    """
    gc.set_threshold(200_000, 50, 100)
    atexit.register(gc.freeze)
