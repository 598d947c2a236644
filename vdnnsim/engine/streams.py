"""Streams: queues of operations that run strictly in order, as CUDA streams do.

The host puts operations on a stream together with the moment at which it had issued them; the stream runs each as
soon as the one before is done and it has been issued. A kernel takes its time from the cost table, a copy occupies
the copy engine of its direction, everything else takes no time.
"""

from collections import deque
from collections.abc import Generator
from typing import Any

import simpy

from vdnnsim.cost.transfer import before_flow_s, copy_s, paged_copy_s
from vdnnsim.engine.collectives import Collectives
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server
from vdnnsim.plans.operations import (
    Allocate,
    AllocateExtent,
    AllReduce,
    Compute,
    Offload,
    Paged,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.recorder import Recorder

Process = Generator[simpy.Event, Any, None]
"""A SimPy process."""

Queued = (
    Compute
    | Allocate
    | AllocateExtent
    | Release
    | ReleaseExtent
    | Offload
    | Prefetch
    | AllReduce
    | RecordEvent
    | WaitEvent
    | simpy.Event
)
"""What may stand in a stream's queue; a SimPy event is the host's, and succeeds when all before it is done."""


class CopyEngines:
    """The copy engines of one GPU, one per direction, each serving one copy at a time in the order of request.

    Where the server has no topology its GPU has a link of its own, and a copy takes what it takes alone.
    """

    def __init__(
        self,
        env: simpy.Environment,
        server: Server,
        gpu: int,
        interconnect: Interconnect | None,
        collectives: Collectives | None,
    ) -> None:
        self._env = env
        self._server = server
        self._gpu = gpu
        self._interconnect = interconnect
        self._collectives = collectives
        self._d2h = simpy.Resource(env, capacity=1)
        self._h2d = simpy.Resource(env, capacity=1)

    def of(self, copy: Offload | Prefetch) -> simpy.Resource:
        """The engine that serves a copy."""
        return self._d2h if isinstance(copy, Offload) else self._h2d

    def move(self, copy: Offload | Prefetch, nbytes: int) -> Process:
        """Move the bytes of a copy."""
        topology, direction = self._server.topology, Direction.D2H if isinstance(copy, Offload) else Direction.H2D
        if isinstance(copy.mechanism, Paged):
            yield self._env.timeout(paged_copy_s(nbytes, copy.mechanism.page_bytes, copy.mechanism.page_latency_s))
        elif topology is None or self._interconnect is None:
            yield self._env.timeout(copy_s(self._server.link, direction, nbytes))
        else:
            path = topology.to_host(self._gpu) if direction is Direction.D2H else topology.from_host(self._gpu)
            yield self._env.timeout(before_flow_s(self._server, direction, path, nbytes))
            yield self._interconnect.start(path, nbytes).done

    def exchange(self, all_reduce: AllReduce, nbytes: int) -> simpy.Event:
        """Join the other GPUs in an exchange; return the event of its end."""
        assert self._collectives is not None, "a GPU alone exchanges nothing"
        return self._collectives.join(all_reduce, nbytes)


class EventBoard:
    """The CUDA events of one iteration."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._events: dict[int, simpy.Event] = {}

    def __getitem__(self, event: int) -> simpy.Event:
        """The SimPy event behind a CUDA event; it succeeds when the recording stream reaches it."""
        if event not in self._events:
            self._events[event] = self._env.event()
        return self._events[event]


class StreamProcess:
    """One stream; `put` is the host's side, `run` the GPU's.

    Attributes:
        waiting_for: position of the operation that the stream cannot get past at the moment; None when it can.
    """

    def __init__(
        self,
        env: simpy.Environment,
        stream: Stream,
        plan: TrainingPlan,
        durations_s: dict[int, float],
        placement: Placement,
        events: EventBoard,
        engines: CopyEngines,
        recorder: Recorder,
    ) -> None:
        self._env = env
        self._stream = stream
        self._plan = plan
        self._durations_s = durations_s
        self._placement = placement
        self._events = events
        self._engines = engines
        self._recorder = recorder
        self._queue: deque[tuple[int, float, Queued]] = deque()
        self._wake = env.event()
        self.waiting_for: int | None = None

    def put(self, position: int, issue_s: float, operation: Queued) -> None:
        """Append an operation that the host has issued at a moment."""
        self._queue.append((position, issue_s, operation))
        if not self._wake.triggered:
            self._wake.succeed()

    def run(self) -> Process:
        """Run operations in order, for ever."""
        env, queue = self._env, self._queue
        while True:
            if not queue:
                self._wake = env.event()
                yield self._wake
            position, issue_s, operation = queue.popleft()
            start_s = max(env.now, issue_s)
            match operation:
                case Release() | Allocate() | AllocateExtent() | ReleaseExtent():
                    # The Release of an alias frees nothing and so is no change.
                    if position in self._placement.changes:
                        self._recorder.memory_change(self._placement.changes[position], start_s)
                case Compute():
                    # SimPy adds the delay to its clock; the same sum here, so that both agree to the last bit.
                    delay_s = start_s + self._durations_s[position] - env.now
                    self._recorder.kernel(position, operation, issue_s, start_s, env.now + delay_s)
                    yield env.timeout(delay_s)
                case Offload() | Prefetch():
                    yield from self._copy(position, issue_s, start_s, operation)
                case AllReduce():
                    yield from self._all_reduce(position, issue_s, start_s, operation)
                case RecordEvent():
                    yield from self._record(start_s, operation.event)
                case WaitEvent():
                    yield from self._wait(position, operation.event)
                case simpy.Event():  # pragma: no branch
                    operation.succeed()

    def _record(self, start_s: float, event: int) -> Process:
        if start_s > self._env.now:
            yield self._env.timeout(start_s - self._env.now)
        self._recorder.event_recorded(event, self._stream)
        self._events[event].succeed()

    def _copy(self, position: int, issue_s: float, start_s: float, copy: Offload | Prefetch) -> Process:
        if start_s > self._env.now:
            yield self._env.timeout(start_s - self._env.now)
        with self._engines.of(copy).request() as grant:
            yield grant
            begin_s = self._env.now
            self._recorder.copy_starts(copy, begin_s)
            yield from self._engines.move(copy, self._plan.copied_bytes(copy))
        self._recorder.copy_ends(position, copy, issue_s, begin_s, self._env.now)

    def _all_reduce(self, position: int, issue_s: float, start_s: float, all_reduce: AllReduce) -> Process:
        if start_s > self._env.now:
            yield self._env.timeout(start_s - self._env.now)
        self._recorder.all_reduce_starts(position, all_reduce)
        self.waiting_for = position
        nbytes = sum(self._plan.buffers[buffer].nbytes for buffer in all_reduce.buffers)
        yield self._engines.exchange(all_reduce, nbytes)
        self.waiting_for = None
        self._recorder.all_reduce_ends(position, all_reduce, issue_s, start_s, self._env.now)

    def _wait(self, position: int, event: int) -> Process:
        fired = self._events[event]
        if not fired.triggered:
            self.waiting_for = position
            yield fired
            self.waiting_for = None
        self._recorder.event_waited(event, self._stream, self._env.now)
