"""Streams of the CPU: threads that run queued work in order, and marks of when."""

import select
import time
from collections.abc import Callable
from queue import SimpleQueue
from threading import Event, Lock, Thread, current_thread
from time import perf_counter

import torch

from calibration.devices.interface import Interval, Mark

# A sleep ends 50 to 150 microseconds late on Linux, the slack of ordinary threads' timers.
_SPIN_S = 200e-6


class HostClock:
    """Seconds since the last `restart`, as a device and its streams read them and wait for them."""

    def __init__(self) -> None:
        self._origin_s = self.moment_s()

    def moment_s(self) -> float:
        """Return the present, in seconds since a fixed origin."""
        return perf_counter()

    def wait_until(self, moment_s: float) -> None:
        """Wait for a moment without holding the core or the interpreter.

        Most of the wait is slept, the rest spun on an empty poll, which takes a microsecond; `time.sleep(0)` would take
        as long as a short sleep.
        """
        sleep_s = moment_s - perf_counter() - _SPIN_S
        if sleep_s > 0:
            time.sleep(sleep_s)
        nothing = select.poll()
        while perf_counter() < moment_s:
            nothing.poll(0)

    def restart(self) -> None:
        self._origin_s = self.moment_s()

    def shown_at(self, moment_s: float) -> float:
        """Return what the clock showed at a moment."""
        return moment_s - self._origin_s

    def now_s(self) -> float:
        return self.shown_at(self.moment_s())


class WorkerMark:
    """A point of a worker stream."""

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        # Held until it is reached; an `Event` takes twenty times as long to make, for each copy of a loop.
        self._lock = Lock()
        self._lock.acquire()
        self._is_reached = False
        self._free_s = 0.0
        self._time_s = 0.0

    @property
    def time_s(self) -> float:
        """When the stream reached it, by the clock as it stood then."""
        assert self._is_reached, "a mark is read before its stream was synchronized"
        return self._time_s

    def reach(self, free_s: float) -> None:
        """Set the mark, with the moment at which its stream was free to, had its thread not been late."""
        self._free_s = free_s
        self._time_s = self._clock.now_s()
        self._is_reached = True
        self._lock.release()

    def join(self) -> float:
        """Block the calling thread until the mark is reached, and return when its stream was free to reach it."""
        with self._lock:
            return self._free_s


class WorkerStream:
    """A thread with a queue. Work releases the interpreter while PyTorch computes or copies, so streams overlap.

    When work fails, the stream drops all further work until `take_failure`, but still reaches its marks, so that no
    wait lasts forever. A wait only names a mark that was queued before it, so streams cannot deadlock.

    The thread is a daemon: an interpreter that ends for another reason does not wait for it.
    """

    def __init__(self, name: str, clock: HostClock, torch_threads: int) -> None:
        self._clock = clock
        # When the work queued so far left the stream free.
        self._free_s = 0.0
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._closing = False
        self._open = True
        ready = Event()
        self._thread = Thread(target=self._serve, args=(torch_threads, ready), name=name, daemon=True)
        self._thread.start()
        # PyTorch sets the number of threads for the calling thread and as a default, so one thread sets it at a time.
        ready.wait()

    def launch(self, work: Callable[[], None], *, lasts_s: float | None = None) -> Interval:
        """Queue work; see the interface.

        Paced work counts from when the stream was free for it, and frees the stream when its time has passed: delays of
        threads that wake up, from a tenth of a millisecond on, do not add up. Its interval has the real times.
        """
        start, end = WorkerMark(self._clock), WorkerMark(self._clock)
        queued_s = self._clock.moment_s()

        def timed() -> None:
            free_s = max(self._free_s, queued_s)
            start.reach(free_s)
            if not self._drops:
                self._attempt(work)
            self._free_s = self._clock.moment_s()
            if lasts_s is not None and not self._drops:
                self._clock.wait_until(free_s + lasts_s)
                self._free_s = max(self._free_s, free_s + lasts_s)
            end.reach(self._free_s)

        self._put(timed)
        return Interval(start, end)

    def mark(self) -> WorkerMark:
        mark = WorkerMark(self._clock)
        queued_s = self._clock.moment_s()
        self._put(lambda: mark.reach(max(self._free_s, queued_s)))
        return mark

    def wait(self, mark: Mark) -> None:
        """Hold the stream until a mark of another one has been reached."""
        assert isinstance(mark, WorkerMark), "a stream can only wait for marks of its own device"

        def hold() -> None:
            self._free_s = max(self._free_s, mark.join())

        self._put(hold)

    @property
    def is_calling(self) -> bool:
        """Whether the caller runs on the stream's own thread, as Python's garbage collector may."""
        return current_thread() is self._thread

    def take_failure(self) -> BaseException | None:
        failure, self._failure = self._failure, None
        return failure

    def stop(self) -> None:
        """Let the thread end after its current work; queued work is dropped."""
        self._closing = True
        if self._open:
            self._queue.put(None)
            self._open = False

    def join(self) -> None:
        self._thread.join()

    @property
    def _drops(self) -> bool:
        return self._closing or self._failure is not None

    def _put(self, item: Callable[[], None]) -> None:
        assert self._open, "the device is closed"
        self._queue.put(item)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  # raised where the host synchronizes
            self._failure = failure

    def _serve(self, torch_threads: int, ready: Event) -> None:
        torch.set_num_threads(torch_threads)
        # Reading it fixes the number for this thread; otherwise the first kernel would take the default of then.
        torch.get_num_threads()
        ready.set()
        while (item := self._queue.get()) is not None:
            item()
            # Tensors of a work live until it is done, not until the next one.
            del item
