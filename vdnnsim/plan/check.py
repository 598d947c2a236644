"""The check of a plan: what must hold of any plan before an executor may run it.

- Every buffer is allocated before it is used, once, and released before the plan ends.
- A kernel reads only what has been written or copied back, a copy only what has been written.
- Whatever touches the same bytes from two streams is ordered by events or synchronizations: a kernel after the
  prefetch that it reads, an offload or an exchange between GPUs after the kernel that wrote its buffer, a prefetch
  after the Allocate that made it, a Release after every copy of its buffer.
- What was offloaded and released is read again only after a prefetch. A prefetch that keeps the copy may be followed by
  others, until a kernel writes the buffer: then the copy is stale and a new offload is due.
- A buffer may have several copies on the host, by their numbers; each is offloaded once and good for one prefetch.
- What a Release gives up is gone; only a copy on the host brings it back.
- What lies in the bytes of another buffer covers it. The kernel that first writes it may still read what was there, as
  one that works in place.
"""

from dataclasses import dataclass, field

from vdnnsim.errors import PlanError
from vdnnsim.plan.operations import (
    Alias,
    Allocate,
    AllReduce,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    RecordEvent,
    Release,
    Stream,
    WaitEvent,
    describe,
)
from vdnnsim.plan.order import NOTHING, StreamOrder
from vdnnsim.plan.training_plan import TrainingPlan


def check_plan(plan: TrainingPlan) -> None:
    """Prove that a plan keeps the contract.

    Raises:
        PlanError: it does not; the message names the policy, the operation and what is wrong with it.
    """
    _Checker(plan).check()


@dataclass(slots=True)
class _BufferState:
    """What is known of one buffer: positions of the last operations that matter for order."""

    allocated: bool = False
    released: bool = False
    storage: int | None = None
    written: bool = False
    on_host: frozenset[int] = frozenset()
    last_compute: int = NOTHING
    last_compute_write: int = NOTHING
    last_copy: dict[Stream, int] = field(default_factory=dict)
    last_arrival: dict[Stream, int] = field(default_factory=dict)
    covered_by: int | None = None


class _Checker:
    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._states = [_BufferState() for _ in plan.buffers]
        self._position = 0
        self._order = StreamOrder()

    def check(self) -> None:
        for position, operation in enumerate(self._plan.operations):
            self._position = position
            self._visit(operation)
        for state, buffer in zip(self._states, self._plan.buffers, strict=True):
            if state.allocated:
                raise self._error(f"{buffer.name} is still allocated at the end")

    def _visit(self, operation: Operation) -> None:
        match operation:
            case Compute(reads=reads, writes=writes):
                self._compute(reads, writes)
            case Allocate(buffer=buffer):
                self._allocate(buffer)
            case Alias(buffer=buffer, storage=storage):
                self._alias(buffer, storage)
            case Release(buffer=buffer):
                self._release(buffer)
            case Offload(buffer=buffer, copy=copy):
                self._offload(buffer, copy)
            case Prefetch(buffer=buffer, keeps_copy=keeps_copy, copy=copy):
                self._prefetch(buffer, copy, keeps_copy=keeps_copy)
            case AllReduce(buffers=buffers):
                self._all_reduce(buffers)
            case RecordEvent(event=event, stream=stream):
                self._record(event, stream)
            case WaitEvent(event=event, stream=stream):
                self._wait(event, stream)
            case HostSynchronize(streams=streams):  # pragma: no branch
                self._order.synchronize(streams)

    def _alias(self, buffer: int, storage: int) -> None:
        below = self._use(storage)
        if self._plan.buffers[buffer].nbytes > self._plan.buffers[storage].nbytes:
            raise self._error(f"{self._name(buffer)} is larger than {self._name(storage)}, in which it is to lie")
        self._order.reach(Stream.COMPUTE)
        if self._unfinished(below.last_copy, Stream.COMPUTE):
            raise self._error(f"{self._name(storage)} is covered before the compute stream waited for its copy")
        self._allocate(buffer)
        self._states[buffer].storage = storage
        below.covered_by = buffer

    def _record(self, event: int, stream: Stream) -> None:
        if self._order.is_recorded(event):
            raise self._error(f"event {event} is recorded twice")
        self._order.record(event, stream)

    def _wait(self, event: int, stream: Stream) -> None:
        if not self._order.is_recorded(event):
            raise self._error(f"event {event} is waited for before it is recorded")
        self._order.wait(event, stream)

    def _compute(self, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        self._order.reach(Stream.COMPUTE)
        for buffer in reads:
            state = self._use(buffer, covered_for=writes)
            if not state.written:
                raise self._error(f"{self._name(buffer)} is read before anything was written to it")
            if late := self._unfinished(state.last_arrival, Stream.COMPUTE):
                what = "exchange" if Stream.COMMUNICATION in late else "prefetch"
                raise self._error(f"{self._name(buffer)} is read before the compute stream waited for its {what}")
            state.last_compute = self._position
        for buffer in writes:
            state = self._use(buffer)
            if self._unfinished(state.last_copy, Stream.COMPUTE):
                raise self._error(f"{self._name(buffer)} is written before the compute stream waited for its copy")
            state.written = True
            state.on_host = frozenset()
            state.last_compute = state.last_compute_write = self._position
            if state.storage is not None:
                self._states[state.storage].written = False
        self._order.run(Stream.COMPUTE, self._position)

    def _allocate(self, buffer: int) -> None:
        state = self._states[buffer]
        self._order.reach(Stream.COMPUTE)
        if state.allocated:
            raise self._error(f"{self._name(buffer)} is allocated twice")
        given = self._plan.buffers[buffer].given and not state.released
        self._states[buffer] = _BufferState(allocated=True, written=given, on_host=state.on_host)
        # The allocation is a point of the compute stream: a copy into the fresh bytes must come after it.
        self._states[buffer].last_compute = self._position
        self._order.run(Stream.COMPUTE, self._position)

    def _release(self, buffer: int) -> None:
        state = self._use(buffer)
        self._order.reach(Stream.COMPUTE)
        if self._unfinished(state.last_copy, Stream.COMPUTE):
            raise self._error(f"{self._name(buffer)} is released before the compute stream waited for its copy")
        if state.storage is not None:
            below = self._states[state.storage]
            below.covered_by = None
            below.written = False
            below.last_compute = self._position
            self._order.run(Stream.COMPUTE, self._position)
        self._states[buffer] = _BufferState(released=True, on_host=state.on_host)

    def _offload(self, buffer: int, copy: int) -> None:
        state = self._use(buffer)
        self._order.reach(Stream.MEMORY)
        if not state.written:
            raise self._error(f"{self._name(buffer)} is offloaded before anything was written to it")
        if copy in state.on_host:
            raise self._error(f"{self._name(buffer)} is offloaded twice")
        if not self._order.knows(Stream.MEMORY, Stream.COMPUTE, state.last_compute_write):
            raise self._error(f"{self._name(buffer)} is offloaded before the memory stream waited for its kernel")
        if self._unfinished(state.last_arrival, Stream.MEMORY):
            raise self._error(f"{self._name(buffer)} is offloaded before the memory stream waited for its exchange")
        state.on_host |= {copy}
        state.last_copy[Stream.MEMORY] = self._position
        self._order.run(Stream.MEMORY, self._position)

    def _prefetch(self, buffer: int, copy: int, *, keeps_copy: bool) -> None:
        state = self._use(buffer)
        self._order.reach(Stream.MEMORY)
        if copy not in state.on_host:
            raise self._error(f"{self._name(buffer)} is prefetched but not on the host")
        if not self._order.knows(Stream.MEMORY, Stream.COMPUTE, state.last_compute):
            raise self._error(f"{self._name(buffer)} is prefetched before the memory stream waited for its allocation")
        if not keeps_copy:
            state.on_host -= {copy}
        state.written = True
        state.last_copy[Stream.MEMORY] = state.last_arrival[Stream.MEMORY] = self._position
        self._order.run(Stream.MEMORY, self._position)

    def _all_reduce(self, buffers: tuple[int, ...]) -> None:
        self._order.reach(Stream.COMMUNICATION)
        for buffer in buffers:
            state = self._use(buffer)
            if not state.written:
                raise self._error(f"{self._name(buffer)} is exchanged before anything was written to it")
            if not self._order.knows(Stream.COMMUNICATION, Stream.COMPUTE, state.last_compute):
                raise self._error(f"{self._name(buffer)} is exchanged before the stream waited for its kernel")
            if self._unfinished(state.last_copy, Stream.COMMUNICATION):
                raise self._error(f"{self._name(buffer)} is exchanged before the stream waited for its copy")
            state.on_host = frozenset()
            state.last_copy[Stream.COMMUNICATION] = state.last_arrival[Stream.COMMUNICATION] = self._position
        self._order.run(Stream.COMMUNICATION, self._position)

    def _unfinished(self, copies: dict[Stream, int], stream: Stream) -> list[Stream]:
        """Return on which streams the last copy of a buffer may not be done, as far as another stream knows."""
        return [each for each in copies if not self._order.knows(stream, each, copies[each])]

    def _use(self, buffer: int, covered_for: tuple[int, ...] = ()) -> _BufferState:
        """Return what is known of a buffer in use; a kernel may read what it is to cover with what it writes."""
        state = self._states[buffer]
        if not state.allocated:
            raise self._error(f"{self._name(buffer)} is used while it is not allocated")
        if state.covered_by is not None and state.covered_by not in covered_for:
            raise self._error(f"{self._name(buffer)} is used while {self._name(state.covered_by)} lies in it")
        return state

    def _name(self, buffer: int) -> str:
        return self._plan.buffers[buffer].name

    def _error(self, message: str) -> PlanError:
        plan = self._plan
        text = describe(plan.operations[self._position], plan.buffer_names, plan.layers)
        return PlanError(f"{plan.policy}: operation {self._position} ({text}): {message}")
