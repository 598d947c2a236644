"""The planning problem: kernels in order, the bytes that each needs on the GPU, and those that may be offloaded.

A buffer may be on the host while it is idle, between two kernels that use it. W, dW and optimizer states are never idle
here; those that are given on the host are on the GPU for the update alone, from the first kernel that uses them to the
last, and weight gradients that are there between backward and update for the kernels of either.

A problem supposes nothing of the order of kernels: in training idle bytes rise to a peak and fall again, which makes
plans good, but no bound rests on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.planning.buffer_uses import BufferUses, IdleInterval, Residency, sums_of
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, Schedule, by_operation


@dataclass(frozen=True, slots=True)
class Option:
    """One algorithm of a kernel.

    Attributes:
        kernel: what the phase of the layer costs by it.
        seconds, workspace_bytes: of this operation of the phase; the temporary memory that any algorithm takes
            included.
    """

    kernel: KernelCost
    seconds: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """An operation in its place.

    Attributes:
        options: the fastest first, each with less workspace than the one before.
        held_bytes: what must be on the GPU while it runs, whatever else is away; its workspace aside.
        waiting_bytes: what lives then and it does not touch, and so may be away.
        content_bytes: of that, what copies move; the rest rounds it up to granules.
        fresh_bytes: what of that the kernel just before it has made, which could leave in no time but that of a stall.
        sendable_bytes: of what waits behind it, what has been made when it starts.
        parked_bytes: of states and weight gradients what is on the host then, granules aside.
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
        """Return what is given back with what waits, and never copied."""
        return self.waiting_bytes - self.content_bytes

    @property
    def returnable_bytes(self) -> int:
        """Return what was needed away before it, at the most, and can come back only after it."""
        return self.content_bytes - self.fresh_bytes

    def away_bytes(self, option: Option, capacity_bytes: int) -> int:
        """Return how much must be away while it runs by an algorithm; below 0 what could be there beside."""
        return self.held_bytes + self.waiting_bytes + option.workspace_bytes - capacity_bytes


@dataclass(frozen=True, slots=True)
class Problem:
    """An iteration on a machine.

    An iteration begins with what is given on the GPU or on the host, and ends with what is held throughout there.

    Attributes:
        idle: all idle intervals of all buffers that a kernel runs in, in the order in which they begin.
        residencies: of states and weight gradients that are not held, in the order in which they begin.
        capacity_bytes: device memory for buffers.
        granule_bytes: in which they take it.
    """

    workload: Workload
    kernels: tuple[Kernel, ...]
    idle: tuple[IdleInterval, ...]
    residencies: tuple[Residency, ...]
    capacity_bytes: int
    granule_bytes: int

    @property
    def on_host(self) -> frozenset[int]:
        """Return the states and weight gradients that are not held."""
        return frozenset(each.buffer for each in self.residencies)

    @property
    def fastest_s(self) -> float:
        """Return what the kernels take by their fastest algorithms, nothing beside."""
        return sum(each.options[0].seconds for each in self.kernels)

    @property
    def fullest(self) -> int:
        """Return the position of the kernel with the most idle bytes that could be offloaded without a stall."""
        return max(range(len(self.kernels)), key=lambda at: self.kernels[at].returnable_bytes)

    def around(self, turn: int) -> "Problem":
        """Return the problem in which only buffers that are idle over a kernel may be away, and all else is held."""
        count, granule = len(self.kernels), self.granule_bytes
        idle = tuple(each for each in self.idle if each.last < turn < each.next)
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
        return replace(self, kernels=kernels, idle=idle)


def problem_of(
    schedule: Schedule,
    workload: Workload,
    costs: CostTable,
    capacity_bytes: int,
    granule_bytes: int = 1,
    *,
    buffers: IterationBuffers | None = None,
) -> Problem:
    """Return what is to be decided about kernels in an order.

    Args:
        schedule: the runs of an iteration, recomputations among them; of a batch in parts those of one part.
        workload: what is trained.
        costs: of its kernels.
        capacity_bytes: device memory for buffers.
        granule_bytes: in which a buffer takes memory.
        buffers: of the iteration, where states or weight gradients are on the host, or several orders are looked at.
    """
    runs = [each for each in by_operation(schedule, workload.step) if isinstance(each, Run)]
    uses = BufferUses(runs, buffers or IterationBuffers(workload), granule_bytes)
    figures = zip(runs, uses.held, uses.waiting, uses.content, uses.fresh, uses.sendable, uses.parked, strict=True)
    kernels = tuple(
        Kernel(run, _options(costs.options(run.layer.index, run.phase), run, workload, granule_bytes), *bytes_of)
        for run, *bytes_of in figures
    )
    return Problem(workload, kernels, tuple(uses.idle), tuple(uses.residencies), capacity_bytes, granule_bytes)


def _options(costs: Sequence[KernelCost], run: Run, workload: Workload, granule_bytes: int) -> tuple[Option, ...]:
    own_bytes = run.of(workload.step).temporary_bytes
    options: list[Option] = []
    found = [Option(each, each.of(run.operation or 0).seconds, 0) for each in costs]
    for option in sorted(found, key=lambda each: each.seconds):
        nbytes = round_up(own_bytes + option.kernel.of(run.operation or 0).workspace_bytes, granule_bytes)
        if not options or nbytes < options[-1].workspace_bytes:
            options.append(Option(option.kernel, option.seconds, nbytes))
    return tuple(options)
