"""The simulation of plans in simulated time, one on each GPU of a server.

The host issues the operations of the plan in their order. Each kernel, copy, event and wait costs it its issue time
(`vdnnsim.engine.host`); allocations come from a pool in host memory and are free. It runs ahead of the GPU until it
synchronizes. Pinning host memory for an offload, where the scenario asks for it, holds the host too.

Assumptions: a kernel takes the time that it costs alone for the plan's own workload, and beside a collective of NCCL
what it costs on the multiprocessors that are left; a copy neither slows kernels down nor is slowed by them. Copies slow
each other down where they share links of the server's topology.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import simpy
from simpy.core import EmptySchedule

from vdnnsim.cost.collectives import Cluster
from vdnnsim.cost.table import CostModel
from vdnnsim.cost.transfer import pin_s
from vdnnsim.engine.collectives import Collectives
from vdnnsim.engine.host import Execution, issue_seconds, pins
from vdnnsim.engine.interconnect import Interconnect
from vdnnsim.engine.multiprocessors import Multiprocessors, Slowdowns
from vdnnsim.engine.streams import CopyEngines, Process, StreamProcess
from vdnnsim.errors import SimulationDeadlock
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.recorder import Recorder
from vdnnsim.plans.trace import IterationTrace, ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan

_STREAM_OF: Final[dict[type, Stream]] = {
    operations.Offload: Stream.MEMORY,
    operations.Prefetch: Stream.MEMORY,
    operations.AllReduce: Stream.COMMUNICATION,
}
"""Streams of operations; events name theirs, all others run on the compute stream."""


def simulate(
    plan: TrainingPlan,
    cost_model: CostModel,
    server: Server,
    placement: Placement,
    pinned: PinnedMemory,
    execution: Execution = Execution.EAGER,
) -> IterationTrace:
    """Replay one iteration of a plan that fits, on one GPU.

    Raises:
        SimulationDeadlock: the plan cannot complete; the message says what each stream waits for.
    """
    return simulate_server([(plan, placement)], cost_model, server, pinned, execution).gpus[0]


def simulate_server(
    work: Sequence[tuple[TrainingPlan, Placement]],
    cost_model: CostModel,
    server: Server,
    pinned: PinnedMemory,
    execution: Execution = Execution.EAGER,
    ranks: Sequence[Sequence[int]] = (),
) -> ServerTrace:
    """Replay one iteration of several GPUs, begun together; each has a plan that fits.

    Args:
        work: plan and placement of each.
        cost_model: of its kernels.
        server: one of the servers.
        pinned: when pinned memory is allocated.
        execution: how the framework runs the network.
        ranks: for each the ranks that do the same, its own first, of a job on as many servers as it needs; each host is
            simulated on which one of these first ranks is. Without it, each GPU stands for itself.

    Raises:
        SimulationDeadlock: a plan cannot complete; the message says what each stream waits for.
    """
    env = simpy.Environment(initial_time=0.0)
    interconnect = collectives = None
    standing = [list(each) for each in ranks] or _standing([plan for plan, _ in work])
    places = [[(0, rank) for rank in each] for each in standing]
    if server.topology is not None:
        cluster = Cluster(server.topology, max(map(max, standing)) + 1)
        on = tuple(dict.fromkeys(each[0] // cluster.local for each in standing))
        standing = [[rank for rank in each if rank // cluster.local in on] for each in standing]
        places = [[divmod(rank, cluster.local) for rank in each] for each in standing]
        interconnect = Interconnect(env, server.topology, on)
        collectives = Collectives(env, server, interconnect, cluster, standing)
    engines = [CopyEngines(env, server, gpu, its, interconnect, collectives) for gpu, its in enumerate(places)]
    gpus = [
        _Iteration(env, plan, cost_model, server, placement, pinned, execution, each)
        for (plan, placement), each in zip(work, engines, strict=True)
    ]
    hosts = [env.process(gpu.run()) for gpu in gpus]
    try:
        env.run(until=env.all_of(hosts))
    except RuntimeError as error:
        # SimPy raises this for an EmptySchedule before the end of `until`.
        if not isinstance(error.__context__, EmptySchedule):
            raise
        stuck = [gpu.deadlock() for gpu, host in zip(gpus, hosts, strict=True) if host.is_alive]
        raise SimulationDeadlock("; ".join(dict.fromkeys(stuck))) from error
    return ServerTrace(tuple(gpu.trace() for gpu in gpus), tuple(interconnect.loads) if interconnect else ())


def _standing(plans: Sequence[TrainingPlan]) -> list[list[int]]:
    """Return the ranks that GPUs stand for: themselves, or one alone for all that its plan communicates with."""
    if len(plans) > 1:
        return [[gpu] for gpu in range(len(plans))]
    groups = [each.collective for each in plans[0].operations if isinstance(each, operations.Communicate)]
    return [list(range(max((each.ranks * each.stride for each in groups if each), default=1)))]


@dataclass(eq=False)
class _Iteration:
    """One GPU and the part of the host that serves it."""

    env: simpy.Environment
    plan: TrainingPlan
    cost_model: CostModel
    server: Server
    placement: Placement
    pinned: PinnedMemory
    execution: Execution
    engines: CopyEngines

    def __post_init__(self) -> None:
        env, plan = self.env, self.plan
        self._recorder = Recorder(plan)
        self._issue_total_s = 0.0
        self._end_s = 0.0
        self._host_waits_for: int | None = None
        costs = self.cost_model.table(plan.workload)
        computed = [
            (position, each, costs.find(each.layer, each.phase, each.algorithm, each.operation))
            for position, each in enumerate(plan.operations)
            if isinstance(each, operations.Compute)
        ]
        durations_s = {position: cost.seconds + each.barrier_s for position, each, cost in computed}
        durations_s |= {
            position: costs.find(each.layer, each.phase, each.algorithm, each.operation).seconds
            for position, each in enumerate(plan.operations)
            if isinstance(each, operations.Communicate) and each.collective is None
        }
        issues_s = {position: cost.issue_s for position, _, cost in computed if cost.issue_s is not None}
        self._issue_s = issue_seconds(plan, self.server.host, self.execution, durations_s, issues_s)
        events = defaultdict[int, simpy.Event](env.event)
        self._computed = [(position, each) for position, each, cost in computed if cost.seconds]
        shared = durations_s, self.placement, events, self.engines, Multiprocessors(self._slowdowns), self._recorder
        self._streams = {stream: StreamProcess(env, stream, plan, *shared) for stream in Stream}

    def _slowdowns(self, taken: int) -> Slowdowns:
        """Return how many times as long kernels take while so many multiprocessors are taken, all algorithms alike."""
        workload, left = self.plan.workload, max(1, self.server.gpu.multiprocessors - taken)
        alone, beside = (each.table(workload) for each in (self.cost_model, self.cost_model.on_multiprocessors(left)))
        slowdowns = {}
        for position, each in self._computed:
            alone_s, beside_s = (
                table.fastest(each.layer, each.phase).of(each.operation).seconds for table in (alone, beside)
            )
            slowdowns[position] = max(1.0, beside_s / alone_s)
        return slowdowns

    def run(self) -> Process:
        for stream in self._streams.values():
            self.env.process(stream.run())
        yield from self._issue()
        self._end_s = self.env.now

    def trace(self) -> IterationTrace:
        trace = self._recorder.trace(
            iteration_s=self._end_s,
            pool_bytes=self.placement.pool_bytes,
            host_bytes=self.placement.host_bytes,
            host_issue_s=self._issue_total_s,
        )
        return replace(trace, peaks_in_search=self.placement.peaks_in_search)

    def _issue(self) -> Process:
        clock_s = 0.0
        for position, operation in enumerate(self.plan.operations):
            if isinstance(operation, operations.Alias):
                continue  # takes no time
            if isinstance(operation, operations.HostSynchronize):
                self._host_waits_for = position
                yield from self._drain(operation.streams, clock_s)
                self._host_waits_for = None
                clock_s = max(clock_s, self.env.now)
                continue
            if self.pinned is PinnedMemory.PER_OFFLOAD and pins(operation):
                clock_s = self._spend(clock_s, pin_s(self.server.host, self.plan.copied_bytes(operation)))
                self._recorder.host_pins(clock_s)
            if isinstance(operation, operations.RecordEvent | operations.WaitEvent | operations.Communicate):
                stream = operation.stream
            else:
                stream = _STREAM_OF.get(type(operation), Stream.COMPUTE)
            clock_s = self._spend(clock_s, self._issue_s.get(position, 0.0))
            self._streams[stream].put(position, clock_s, operation)
        self._host_waits_for = len(self.plan.operations)
        yield from self._drain(tuple(Stream), clock_s)
        if clock_s > self.env.now:
            yield self.env.timeout(clock_s - self.env.now)

    def _spend(self, clock_s: float, seconds: float) -> float:
        self._issue_total_s += seconds
        return clock_s + seconds

    def _drain(self, streams: tuple[Stream, ...], clock_s: float) -> Process:
        for stream in streams:
            done = self.env.event()
            self._streams[stream].put(-1, clock_s, done)
            yield done
        self._recorder.host_synchronized(streams, self.env.now)

    def deadlock(self) -> str:
        """Return what each stream and the host wait for."""
        plan = self.plan
        waits = [
            f"the {stream.value} stream at operation {process.waiting_for} "
            f"({describe(plan.operations[process.waiting_for], plan.buffer_names, plan.layers)})"
            for stream, process in self._streams.items()
            if process.waiting_for is not None
        ]
        host = "the end" if self._host_waits_for == len(plan.operations) else f"operation {self._host_waits_for}"
        return f"{plan.policy}: nothing can go on: {'; '.join(waits)}; the host waits for its streams at {host}"
