"""Executes a plan in simulated time.

The host issues the operations of the plan in their order. Each kernel, copy, event and wait costs it its issue time;
allocations come from a pool in host memory and are free. It runs ahead of the GPU until it synchronizes. Pinning host
memory for an offload, where the scenario asks for it, holds the host too.

Assumptions: an operation takes the time that the cost table gives it alone; a copy neither slows kernels down nor is
slowed by them.
"""

import simpy

from vdnnsim.cost.table import CostTable
from vdnnsim.cost.transfer import pin_s
from vdnnsim.engine.streams import CopyEngines, EventBoard, Process, StreamProcess
from vdnnsim.errors import SimulationDeadlock
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plan.operations import (
    Alias,
    Allocate,
    Compute,
    HostSynchronize,
    Offload,
    Pinned,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plan.placement import Placement
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.recorder import Recorder
from vdnnsim.trace import IterationTrace


def simulate(
    plan: TrainingPlan, costs: CostTable, server: Server, placement: Placement, pinned: PinnedMemory
) -> IterationTrace:
    """Replay one iteration of a plan that fits.

    Raises:
        SimulationDeadlock: the plan cannot end; the message says what each stream waits for.
    """
    return _Iteration(plan, costs, server, placement, pinned).replay()


class _Iteration:
    def __init__(
        self, plan: TrainingPlan, costs: CostTable, server: Server, placement: Placement, pinned: PinnedMemory
    ) -> None:
        self._plan = plan
        self._server = server
        self._placement = placement
        self._pinned = pinned
        self._recorder = Recorder(plan)
        self._env = simpy.Environment(initial_time=0.0)
        self._issue_total_s = 0.0
        self._host_waits_for: int | None = None
        durations_s = {
            position: costs.find(operation.layer, operation.phase, operation.algorithm).seconds
            for position, operation in enumerate(plan.operations)
            if isinstance(operation, Compute)
        }
        events = EventBoard(self._env)
        engines = CopyEngines(self._env, server.link)
        self._streams = {
            stream: StreamProcess(self._env, stream, plan, durations_s, placement, events, engines, self._recorder)
            for stream in Stream
        }

    def replay(self) -> IterationTrace:
        for stream in self._streams.values():
            self._env.process(stream.run())
        host = self._env.process(self._issue())
        try:
            self._env.run(until=host)
        except RuntimeError as error:
            # SimPy raises this when nothing is left to happen although the host has not finished.
            raise SimulationDeadlock(self._deadlock()) from error
        return self._recorder.trace(
            iteration_s=self._env.now,
            pool_bytes=self._placement.pool_bytes,
            host_bytes=self._placement.host_bytes,
            host_issue_s=self._issue_total_s,
        )

    def _issue(self) -> Process:
        compute, memory = self._streams[Stream.COMPUTE], self._streams[Stream.MEMORY]
        clock_s = 0.0
        for position, operation in enumerate(self._plan.operations):
            match operation:
                case Compute():
                    clock_s = self._spend(clock_s, self._server.host.issue_s)
                    compute.put(position, clock_s, operation)
                case Allocate() | Release():
                    compute.put(position, clock_s, operation)
                case Alias():
                    pass  # which bytes a buffer shares concerns the check of the plan, not its timing
                case Offload(buffer=buffer, mechanism=mechanism):
                    if self._pinned is PinnedMemory.PER_OFFLOAD and isinstance(mechanism, Pinned):
                        clock_s = self._spend(clock_s, pin_s(self._server.host, self._plan.buffers[buffer].nbytes))
                        self._recorder.host_pins(clock_s)
                    clock_s = self._spend(clock_s, self._server.host.issue_s)
                    memory.put(position, clock_s, operation)
                case Prefetch():
                    clock_s = self._spend(clock_s, self._server.host.issue_s)
                    memory.put(position, clock_s, operation)
                case RecordEvent(stream=stream) | WaitEvent(stream=stream):
                    clock_s = self._spend(clock_s, self._server.host.issue_s)
                    self._streams[stream].put(position, clock_s, operation)
                case HostSynchronize(streams=streams):  # pragma: no branch
                    self._host_waits_for = position
                    yield from self._drain(streams, clock_s)
                    self._host_waits_for = None
                    clock_s = max(clock_s, self._env.now)
        self._host_waits_for = len(self._plan.operations)
        yield from self._drain(tuple(Stream), clock_s)
        if clock_s > self._env.now:
            yield self._env.timeout(clock_s - self._env.now)

    def _spend(self, clock_s: float, seconds: float) -> float:
        self._issue_total_s += seconds
        return clock_s + seconds

    def _drain(self, streams: tuple[Stream, ...], clock_s: float) -> Process:
        """Wait until streams are done."""
        for stream in streams:
            done = self._env.event()
            self._streams[stream].put(-1, clock_s, done)
            yield done
        self._recorder.host_synchronized(streams, self._env.now)

    def _deadlock(self) -> str:
        plan = self._plan
        waits = [
            f"the {stream.value} stream at operation {process.waiting_for} "
            f"({describe(plan.operations[process.waiting_for], plan.buffer_names, plan.layers)})"
            for stream, process in self._streams.items()
            if process.waiting_for is not None
        ]
        host = "the end" if self._host_waits_for == len(plan.operations) else f"operation {self._host_waits_for}"
        return f"{plan.policy}: nothing can go on: {'; '.join(waits)}; the host waits for its streams at {host}"
