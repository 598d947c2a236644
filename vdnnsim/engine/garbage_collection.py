"""Garbage collection tuned for replays."""

import gc


def collect_rarely() -> None:
    """Run the cyclic garbage collector rarely: it took two fifths of a replay, whose objects live to the end."""
    gc.set_threshold(200_000, 50, 100)
