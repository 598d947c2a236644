"""The planning problem: kernels in order, the bytes that each needs on the GPU, and those that may be offloaded.

A buffer may be on the host while it is idle, between two kernels that use it. W, dW and optimizer states are never
idle; those given on the host are on the GPU during the update alone, and weight gradients that are there between
backward and update during both.

The order of kernels is arbitrary: in training idle bytes rise to a peak and fall again, which makes plans good, but no
bound depends on it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.planning.buffer_uses import BufferUses, IdleInterval, Residency, sums_of
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, Schedule, by_operation


@dataclass(frozen=True, slots=True)
class Option:
    """One algorithm of a kernel.

    Attributes:
        seconds, workspace_bytes: of this operation of the phase, with the temporary memory of any algorithm.
    """

    kernel: KernelCost
    seconds: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operation in its place.

    Attributes:
        options: the fastest first, each with less workspace than the one before.
        held_bytes: that must be on the GPU while it runs, its workspace aside.
        waiting_bytes: of idle buffers, which may be on the host.
        content_bytes: of these without the padding to granules, which is not copied.
        fresh_bytes: of these written by the kernel just before it, which can be offloaded only in a stall.
        sendable_bytes: of buffers idle after it and written before it.
        parked_bytes: of states and weight gradients on the host, without padding.
    """

    run: Run
    options: tuple[Option, ...]
    held_bytes: int
    waiting_bytes: int
    content_bytes: int
    fresh_bytes: int
    sendable_bytes: int
    parked_bytes: int

    @property
    def padding_bytes(self) -> int:
        """Return the padding of idle buffers, which is released and never copied."""
        return self.waiting_bytes - self.content_bytes

    @property
    def returnable_bytes(self) -> int:
        """Return the most that earlier kernels needed on the host and that can be prefetched only after it."""
        return self.content_bytes - self.fresh_bytes

    def away_bytes(self, option: Option, capacity_bytes: int) -> int:
        """Return the bytes that must be on the host while it runs by an algorithm; below 0 free memory."""
        return self.held_bytes + self.waiting_bytes + option.workspace_bytes - capacity_bytes

    def lacking_bytes(self, capacity_bytes: int, host_bytes: int) -> int:
        """Return the bytes that it lacks with all idle buffers on the host; at least a byte."""
        return max(1, self.away_bytes(self.options[-1], capacity_bytes) - min(self.content_bytes, host_bytes))


@dataclass(frozen=True, slots=True)
class Problem:
    """An iteration on a machine.

    Attributes:
        idle: all idle intervals with a kernel in them, in order of their beginning.
        residencies: of states and weight gradients that are not held throughout, likewise.
    """

    workload: Workload
    kernels: tuple[Kernel, ...]
    idle: tuple[IdleInterval, ...]
    residencies: tuple[Residency, ...]
    capacity_bytes: int
    granule_bytes: int
    buffers: IterationBuffers = field(repr=False, compare=False)

    @property
    def on_host(self) -> frozenset[int]:
        """Return the states and weight gradients that are not held throughout."""
        return frozenset(each.buffer for each in self.residencies)

    @property
    def fastest_s(self) -> float:
        return sum(each.options[0].seconds for each in self.kernels)

    @property
    def fullest(self) -> int:
        """Return the position of the kernel with the most idle bytes that could be offloaded without a stall."""
        return max(range(len(self.kernels)), key=lambda at: self.kernels[at].returnable_bytes)

    def around(self, turn: int) -> "Problem":
        """Return the problem in which only buffers idle during the turn may be on the host."""
        return self.with_idle([each for each in self.idle if each.last < turn < each.next])

    def with_idle(self, idle: Sequence[IdleInterval]) -> "Problem":
        """Return the problem in which only buffers in these intervals may be on the host, parts of its own."""
        count, granule = len(self.kernels), self.granule_bytes
        waiting = sums_of(((each.last + 1, each.next, round_up(each.nbytes, granule)) for each in idle), count)
        content = sums_of(((each.last + 1, each.next, each.nbytes) for each in idle), count)
        sendable = sums_of(((each.made + 1, each.next - 1, each.nbytes) for each in idle), count)
        kernels = tuple(
            replace(
                each,
                held_bytes=each.held_bytes + each.waiting_bytes - waiting[at],
                waiting_bytes=waiting[at],
                content_bytes=content[at],
                fresh_bytes=0,
                sendable_bytes=sendable[at],
            )
            for at, each in enumerate(self.kernels)
        )
        return replace(self, kernels=kernels, idle=tuple(idle))

    def with_less_room(self, where: tuple[int, Phase], nbytes: int) -> "Problem":
        """Return the problem in which the kernels of a phase hold more."""
        return self._changed(where, lambda each: replace(each, held_bytes=each.held_bytes + nbytes))

    def with_smaller_workspaces(self, where: tuple[int, Phase], nbytes: int) -> "Problem":
        """Return the problem in which the kernels of a phase have a smaller workspace, if any."""

        def smaller(kernel: Kernel) -> Kernel:
            options = tuple(each for each in kernel.options if each.workspace_bytes < nbytes)
            room = 0 if options else nbytes
            return replace(kernel, options=options or kernel.options[-1:], held_bytes=kernel.held_bytes + room)

        return self._changed(where, smaller)

    def _changed(self, where: tuple[int, Phase], change: Callable[[Kernel], Kernel]) -> "Problem":
        runs = ((each, (each.run.layer.index, each.run.phase)) for each in self.kernels)
        return replace(self, kernels=tuple(change(each) if at == where else each for each, at in runs))


def problem_of(
    schedule: Schedule,
    workload: Workload,
    costs: CostTable,
    capacity_bytes: int,
    granule_bytes: int = 1,
    *,
    buffers: IterationBuffers | None = None,
) -> Problem:
    """Return the planning problem of an order of kernels.

    The schedule has the runs of an iteration, recomputations among them; of a batch in parts those of one part.
    `buffers` may have states or weight gradients on the host, and be shared by several orders.
    """
    runs = [each for each in by_operation(schedule, workload.step) if isinstance(each, Run)]
    buffers = buffers or IterationBuffers(workload)
    uses = BufferUses(runs, buffers, granule_bytes, workload.rounds)
    figures = zip(runs, uses.held, uses.waiting, uses.content, uses.fresh, uses.sendable, uses.parked, strict=True)
    kernels = tuple(
        Kernel(run, _options(costs.options(run.layer.index, run.phase), run, workload, granule_bytes), *bytes_of)
        for run, *bytes_of in figures
    )
    idle, residencies = tuple(uses.idle), tuple(uses.residencies)
    return Problem(workload, kernels, idle, residencies, capacity_bytes, granule_bytes, buffers)


def _options(costs: Sequence[KernelCost], run: Run, workload: Workload, granule_bytes: int) -> tuple[Option, ...]:
    own_bytes = run.of(workload.step).temporary_bytes
    options: list[Option] = []
    found = [Option(each, each.of(run.operation or 0).seconds, 0) for each in costs]
    for option in sorted(found, key=lambda each: each.seconds):
        nbytes = round_up(own_bytes + option.kernel.of(run.operation or 0).workspace_bytes, granule_bytes)
        if not options or nbytes < options[-1].workspace_bytes:
            options.append(Option(option.kernel, option.seconds, nbytes))
    return tuple(options)
