"""Processes of this machine that compute chunks.

They are spawned, so that they have nothing of the process that asks, and end with it, whatever ends it.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice
from threading import Thread

from vdnnsim.errors import StudyError
from vdnnsim.study.chunk import Chunk, Finished, Workers, compute_chunk, in_this_process

_AHEAD = 2
"""Chunks that wait for each process, so that none waits for a chunk."""


def local_workers(count: int) -> Workers:
    """Return so many processes; one is this process itself."""
    return in_this_process if count == 1 else lambda chunks: _compute(chunks, count)


def _compute(chunks: Iterator[Chunk], count: int) -> Iterator[Finished]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent)
    try:
        waiting = {pool.submit(compute_chunk, chunk) for chunk in islice(chunks, _AHEAD * count)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            finished = [_result(each) for each in done]
            waiting |= {pool.submit(compute_chunk, chunk) for chunk in islice(chunks, len(done))}
            yield from finished
    finally:
        pool.shutdown(cancel_futures=True)


def _result(future: "Future[Finished]") -> Finished:
    try:
        return future.result()
    except BrokenProcessPool:
        raise StudyError(
            "a process of this study was killed, perhaps for want of memory; what was finished is kept, run it again"
        ) from None


def _end_with_parent() -> None:
    """Leave interrupts to the parent, and watch it: when it is killed, nobody else would end this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process was spawned"

    def watch() -> None:
        parent.join()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
