"""Processes of this machine that compute chunks.

They are spawned, so that they have nothing of the process that asks, and end with it, whatever ends it. Where it gives
up they end at once, in the middle of a point: what they did not hand over is not waited for.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.connection import Connection
from threading import Thread

from vdnnsim.engine.processes import collect_rarely
from vdnnsim.errors import StudyError
from vdnnsim.study.workers.chunk import Chunk, Finished, Workers, compute_chunk

_AHEAD = 2
"""Chunks that wait for each process, so that none waits for a chunk."""


def local_workers(count: int) -> Workers:
    """Return so many processes; one is this process itself."""
    return lambda chunks: map(compute_chunk, chunks) if count == 1 else _compute(chunks, count)


def _compute(chunks: Iterator[Chunk], count: int) -> Iterator[Finished]:
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with _left_to_parent():
        pool = ProcessPoolExecutor(count, mp_context=context, initializer=_end_with_parent, initargs=(theirs,))
    try:
        waiting = {_submit(pool, chunk) for chunk in islice(chunks, _AHEAD * count)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            finished = [_result(each) for each in done]
            waiting |= {_submit(pool, chunk) for chunk in islice(chunks, len(done))}
            yield from finished
    except BaseException:
        ours.close()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        ours.close()
        theirs.close()


def _submit(pool: ProcessPoolExecutor, chunk: Chunk) -> "Future[Finished]":
    """Hand over a chunk, for which a process may begin."""
    with _left_to_parent():
        return pool.submit(compute_chunk, chunk)


@contextmanager
def _left_to_parent() -> Iterator[None]:
    """Leave to the parent alone, which gets it after, what a terminal sends to all: Ctrl-C, and that it is closed.

    A process that begins meanwhile inherits which signals are blocked.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result(future: "Future[Finished]") -> Finished:
    try:
        return future.result()
    except BrokenProcessPool:
        raise StudyError(
            "a process of this study was killed, perhaps for want of memory; what was finished is kept, run it again"
        ) from None


def _end_with_parent(pipe: Connection) -> None:
    """Leave interrupts to the parent, and watch the pipe to it: it may be killed, or give up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()

    def watch() -> None:
        pipe.poll(None)
        os._exit(1)

    Thread(target=watch, daemon=True).start()
