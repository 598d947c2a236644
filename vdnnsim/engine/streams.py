"""Streams: queues of operations that run strictly in order, as CUDA streams do.

The host puts operations on a stream with their issue times; the stream runs each as soon as it is issued and the one
before is done. A kernel takes its time from the cost table, and longer beside collectives; a copy occupies the copy
engine of its direction, everything else takes no time.
"""

from collections import defaultdict, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import simpy

from vdnnsim.cost.transfer import before_flow_s, copy_s, paged_copy_s
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.engine.collectives import Collectives
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.multiprocessors import Multiprocessors
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Hop, Topology
from vdnnsim.plans import operations
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.recorder import Recorder
from vdnnsim.plans.training_plan import TrainingPlan

Process = Generator[simpy.Event, Any, None]
"""A SimPy process."""

Queued = operations.Operation | simpy.Event
"""An operation, or an event of the host that succeeds when all operations before it are done."""


@dataclass(eq=False)
class CopyEngines:
    """The copy engines of one GPU, one per direction, each serving one copy at a time in order of request.

    Without a topology the GPU has a link of its own. The other ranks that it stands for copy as much at the same time.

    Attributes:
        gpu: its number among those that are simulated.
        places: host and number there of each rank that it stands for, its own first.
    """

    env: simpy.Environment
    server: Server
    gpu: int
    places: Sequence[tuple[int, int]]
    interconnect: Interconnect | None
    collectives: Collectives | None

    def __post_init__(self) -> None:
        self._d2h, self._h2d = (simpy.Resource(self.env, capacity=1) for _ in Direction)

    def of(self, direction: Direction) -> simpy.Resource:
        return self._d2h if direction is Direction.D2H else self._h2d

    def move(self, mechanism: operations.Mechanism, direction: Direction, nbytes: int) -> Process:
        topology = self.server.topology
        if isinstance(mechanism, operations.Paged):
            yield self.env.timeout(paged_copy_s(nbytes, mechanism.page_bytes, mechanism.page_latency_s))
        elif topology is None or self.interconnect is None:
            yield self.env.timeout(copy_s(self.server.link, direction, nbytes))
        else:
            paths = self._paths(topology, direction)
            yield self.env.timeout(before_flow_s(self.server, direction, paths[0], nbytes))
            yield self.env.all_of([self.interconnect.start(path, nbytes).done for path in paths])

    def with_host(self, exchange: Collective) -> Process:
        """Copy from or to the host, or wait for its work, which memory of its socket bounds."""
        if exchange.kind is CollectiveKind.ON_HOST:
            assert self.server.topology is not None
            assert self.interconnect is not None, "a machine without links between GPUs was refused"
            # The link below the root of the tree is host memory.
            paths = [path[:1] for path in self._paths(self.server.topology, Direction.H2D)]
            yield self.env.all_of([self.interconnect.start(path, exchange.nbytes).done for path in paths])
            return
        direction = Direction.D2H if exchange.kind is CollectiveKind.TO_HOST else Direction.H2D
        with self.of(direction).request() as grant:
            yield grant
            yield from self.move(operations.Pinned(), direction, exchange.nbytes)

    def _paths(self, topology: Topology, direction: Direction) -> list[tuple[Hop, ...]]:
        way = topology.to_host if direction is Direction.D2H else topology.from_host
        return [tuple(replace(hop, host=host) for hop in way(gpu)) for host, gpu in self.places]

    def exchange(self, all_reduce: operations.AllReduce, nbytes: int) -> simpy.Event:
        """Join an exchange; return the event of its end."""
        assert self.collectives is not None, "a GPU alone exchanges nothing"
        return self.collectives.join(all_reduce, nbytes)

    def communicate(self, collective: Collective) -> tuple[simpy.Event, int]:
        """Join a collective; return the event of its end, and how many multiprocessors it takes until then."""
        assert self.collectives is not None, "a machine without links between GPUs was refused"
        blocks = self.collectives.blocks(self.gpu, collective)
        return self.collectives.communicate(self.gpu, collective), blocks


@dataclass(eq=False)
class StreamProcess:
    """One stream; `put` is the host's side, `run` the GPU's.

    Attributes:
        events: the SimPy event of each CUDA event, which succeeds when the recording stream reaches it.
        waiting_for: position of the operation that blocks the stream; None when it is not blocked.
    """

    env: simpy.Environment
    stream: Stream
    plan: TrainingPlan
    durations_s: Mapping[int, float]
    placement: Placement
    events: defaultdict[int, simpy.Event]
    engines: CopyEngines
    multiprocessors: Multiprocessors
    recorder: Recorder
    waiting_for: int | None = None

    def __post_init__(self) -> None:
        self._queue: deque[tuple[int, float, Queued]] = deque()
        self._wake = self.env.event()

    def put(self, position: int, issue_s: float, operation: Queued) -> None:
        self._queue.append((position, issue_s, operation))
        if not self._wake.triggered:
            self._wake.succeed()

    def run(self) -> Process:
        env, queue = self.env, self._queue
        while True:
            if not queue:
                self._wake = env.event()
                yield self._wake
            position, issue_s, operation = queue.popleft()
            start_s = max(env.now, issue_s)
            match operation:
                case (
                    operations.Release()
                    | operations.Allocate()
                    | operations.AllocateExtent()
                    | operations.ReleaseExtent()
                ):
                    # The Release of an alias frees nothing and so is no change.
                    if position in self.placement.changes:
                        self.recorder.memory_change(self.placement.changes[position], start_s)
                case operations.Compute():
                    yield from self._compute(position, issue_s, start_s, operation)
                case operations.Offload() | operations.Prefetch():
                    yield from self._copy(position, issue_s, start_s, operation)
                case operations.AllReduce():
                    yield from self._all_reduce(position, issue_s, start_s, operation)
                case operations.Communicate():
                    yield from self._communicate(position, issue_s, start_s, operation)
                case operations.RecordEvent():
                    yield from self._record(start_s, operation.event)
                case operations.WaitEvent():
                    yield from self._wait(position, operation.event)
                case _:
                    assert isinstance(operation, simpy.Event), "the host puts nothing else on a stream"
                    operation.succeed()

    def _compute(self, position: int, issue_s: float, start_s: float, kernel: operations.Compute) -> Process:
        env, left_s, since_s = self.env, self.durations_s[position], start_s
        slowdown = self.multiprocessors.slowdown(position)
        # The same sum as SimPy's, so that both agree to the last bit.
        delay_s = since_s + left_s * slowdown - env.now
        self.recorder.kernel(position, kernel, issue_s, start_s, env.now + delay_s)
        with self.multiprocessors.running(env.active_process):
            while True:
                try:
                    yield env.timeout(delay_s)
                except simpy.Interrupt:
                    left_s -= max(0.0, env.now - since_s) / slowdown
                    since_s = max(since_s, env.now)
                    slowdown = self.multiprocessors.slowdown(position)
                    delay_s = max(0.0, since_s + left_s * slowdown - env.now)
                    self.recorder.kernel_ends_at(env.now + delay_s)
                else:
                    return

    def _record(self, start_s: float, event: int) -> Process:
        if start_s > self.env.now:
            yield self.env.timeout(start_s - self.env.now)
        self.recorder.event_recorded(event, self.stream)
        self.events[event].succeed()

    def _copy(
        self, position: int, issue_s: float, start_s: float, copy: operations.Offload | operations.Prefetch
    ) -> Process:
        if start_s > self.env.now:
            yield self.env.timeout(start_s - self.env.now)
        direction = Direction.D2H if isinstance(copy, operations.Offload) else Direction.H2D
        with self.engines.of(direction).request() as grant:
            yield grant
            begin_s = self.env.now
            self.recorder.copy_starts(copy, begin_s)
            yield from self.engines.move(copy.mechanism, direction, self.plan.copied_bytes(copy))
        self.recorder.copy_ends(position, copy, issue_s, begin_s, self.env.now)

    def _all_reduce(self, position: int, issue_s: float, start_s: float, all_reduce: operations.AllReduce) -> Process:
        if start_s > self.env.now:
            yield self.env.timeout(start_s - self.env.now)
        self.recorder.all_reduce_starts(position, all_reduce)
        self.waiting_for = position
        nbytes = sum(self.plan.buffers[buffer].nbytes for buffer in all_reduce.buffers)
        yield self.engines.exchange(all_reduce, nbytes)
        self.waiting_for = None
        self.recorder.all_reduce_ends(position, all_reduce, issue_s, start_s, self.env.now)

    def _communicate(
        self, position: int, issue_s: float, start_s: float, communicate: operations.Communicate
    ) -> Process:
        if start_s > self.env.now:
            yield self.env.timeout(start_s - self.env.now)
        self.recorder.communication_starts(position, communicate, start_s)
        if communicate.collective is None:
            yield self.env.timeout(self.durations_s[position])
        elif communicate.collective.is_of_host:
            yield from self.engines.with_host(communicate.collective)
        else:
            self.waiting_for = position
            done, blocks = self.engines.communicate(communicate.collective)
            with self.multiprocessors.taken(blocks):
                yield done
            self.waiting_for = None
        self.recorder.communication_ends(position, communicate, issue_s, start_s, self.env.now)

    def _wait(self, position: int, event: int) -> Process:
        fired = self.events[event]
        if not fired.triggered:
            self.waiting_for = position
            yield fired
            self.waiting_for = None
        self.recorder.event_waited(event, self.stream, self.env.now)
