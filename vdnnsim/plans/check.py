"""The check of a plan: the invariants that executors rely on.

- Every buffer is allocated before it is used, once, and released before the plan ends.
- A kernel reads only what has been written or copied back, a copy only what has been written.
- Operations on the same bytes from two streams are ordered by events or synchronizations: a kernel after the prefetch
  that it reads, an offload or an exchange between GPUs after the kernel that wrote its buffer, a prefetch after the
  Allocate of its buffer, a Release after every copy of its buffer.
- A released buffer is read only after a prefetch. A prefetch that keeps the copy may be followed by others, until a
  kernel writes the buffer: then the copy is stale.
- A buffer may have several numbered copies on the host; each is offloaded once and prefetched once.
- A buffer that is given on the host is there at the end.
- All of this holds for every piece of a buffer: a kernel needs all pieces, a copy those that it moves. An extent is
  released and allocated in turn, and loses its content.
- A buffer that lies in another covers it; a kernel that works in place may still read the other.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from vdnnsim.errors import PlanError
from vdnnsim.plans import operations
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Operation, Stream
from vdnnsim.plans.order import NOTHING, StreamOrder
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan


def check_plan(plan: TrainingPlan) -> None:
    """Check a plan.

    Raises:
        PlanError: it breaks an invariant; the message names the policy, the operation and the buffer.
    """
    _Checker(plan).check()


@dataclass(slots=True)
class _Piece:
    """The state of some bytes of a buffer, with the positions of the last operations on them."""

    name: str
    held: bool = False
    written: bool = False
    on_host: frozenset[int] = frozenset()
    last_compute: int = NOTHING
    last_compute_write: int = NOTHING
    last_copy: dict[Stream, int] = field(default_factory=dict)
    last_arrival: dict[Stream, int] = field(default_factory=dict)


@dataclass(slots=True)
class _BufferState:
    """The state of a buffer, and of its pieces in order."""

    pieces: list[_Piece]
    allocated: bool = False
    released: bool = False
    storage: int | None = None
    covered_by: int | None = None


class _Checker:
    def __init__(self, plan: TrainingPlan) -> None:
        self._plan = plan
        self._pieces = Pieces(plan)
        self._states: list[_BufferState] = []
        for number, buffer in enumerate(plan.buffers):
            copies = frozenset({0}) if buffer.given_on_host else frozenset[int]()
            self._states.append(_BufferState([_Piece(each, on_host=copies) for each in self._pieces.names(number)]))
        self._position = 0
        self._order = StreamOrder()

    def check(self) -> None:
        for position, operation in enumerate(self._plan.operations):
            self._position = position
            self._visit(operation)
        for state, buffer in zip(self._states, self._plan.buffers, strict=True):
            is_lost = buffer.given_on_host and not all(0 in each.on_host for each in state.pieces)
            if is_lost or state.allocated:
                raise self._error(f"{buffer.name} is {'not on the host' if is_lost else 'still allocated'} at the end")

    def _visit(self, operation: Operation) -> None:
        match operation:  # pragma: no branch
            case (
                operations.Compute(reads=reads, writes=writes)
                | operations.Communicate(reads=reads, writes=writes, stream=Stream.COMPUTE)
            ):
                self._compute(reads, writes)
            case operations.Communicate(reads=reads, writes=writes, stream=stream):
                self._exchange(stream, reads, writes)
            case operations.Allocate(buffer=buffer, stream=stream):
                self._allocate(buffer, stream)
            case operations.AllocateExtent(buffer=buffer, extent=extent):
                self._allocate_extent(buffer, extent)
            case operations.Alias(buffer=buffer, storage=storage):
                self._alias(buffer, storage)
            case operations.Release(buffer=buffer, stream=stream):
                self._release(buffer, stream)
            case operations.ReleaseExtent(buffer=buffer, extent=extent):
                self._release_extent(buffer, extent)
            case operations.Offload() | operations.Prefetch():
                self._copy(operation)
            case operations.AllReduce(buffers=buffers):
                self._exchange(Stream.COMMUNICATION, buffers, buffers)
            case operations.RecordEvent(event=event, stream=stream):
                self._record(event, stream)
            case operations.WaitEvent(event=event, stream=stream):
                self._wait(event, stream)
            case operations.HostSynchronize(streams=streams):
                self._order.synchronize(streams)

    def _alias(self, buffer: int, storage: int) -> None:
        below = self._use(storage)
        if self._plan.buffers[buffer].nbytes > self._plan.buffers[storage].nbytes:
            raise self._error(f"{self._name(buffer)} is larger than {self._name(storage)}, in which it is to lie")
        self._order.reach(Stream.COMPUTE)
        for piece in self._held(storage):
            if self._unfinished(piece.last_copy, Stream.COMPUTE):
                raise self._error(f"{piece.name} is covered before the compute stream waited for its copy")
        self._allocate(buffer, Stream.COMPUTE)
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
            self._use(buffer, covered_for=writes)
            for piece in self._held(buffer):
                if not piece.written:
                    raise self._error(f"{piece.name} is read before anything was written to it")
                if late := self._unfinished(piece.last_arrival, Stream.COMPUTE):
                    what = "exchange" if Stream.COMMUNICATION in late else "prefetch"
                    raise self._error(f"{piece.name} is read before the compute stream waited for its {what}")
                piece.last_compute = self._position
        for buffer in writes:
            state = self._use(buffer)
            for piece in self._held(buffer):
                if self._unfinished(piece.last_copy, Stream.COMPUTE):
                    raise self._error(f"{piece.name} is written before the compute stream waited for its copy")
                piece.written = True
                piece.on_host = frozenset()
                piece.last_compute = piece.last_compute_write = self._position
            if state.storage is not None:
                self._lose(state.storage)
        self._order.run(Stream.COMPUTE, self._position)

    def _allocate(self, buffer: int, stream: Stream) -> None:
        state = self._states[buffer]
        self._order.reach(stream)
        if state.allocated:
            raise self._error(f"{self._name(buffer)} is allocated twice")
        given = self._plan.buffers[buffer].given_on_gpu and not state.released
        pieces = [self._taken(each, stream, written=given) for each in state.pieces]
        self._states[buffer] = _BufferState(pieces, allocated=True)

    def _taken(self, piece: _Piece, stream: Stream = Stream.COMPUTE, *, written: bool = False) -> _Piece:
        # An allocation is ordered on its stream: what other streams do with the new bytes must come after it.
        self._order.run(stream, self._position)
        on_compute = stream is Stream.COMPUTE
        copies, kernel = {} if on_compute else {stream: self._position}, self._position if on_compute else NOTHING
        return _Piece(piece.name, True, written, piece.on_host, kernel, last_copy=copies)  # noqa: FBT003 - held

    def _allocate_extent(self, buffer: int, extent: range) -> None:
        state = self._use_extent(buffer, extent)
        for number in self._pieces.covered(buffer, extent):
            if state.pieces[number].held:
                raise self._error(f"{state.pieces[number].name} is allocated twice")
            state.pieces[number] = self._taken(state.pieces[number])

    def _release(self, buffer: int, stream: Stream) -> None:
        state = self._use(buffer)
        self._order.reach(stream)
        pieces = [self._released(piece, stream) if piece.held else piece for piece in state.pieces]
        if state.storage is not None:
            self._states[state.storage].covered_by = None
            self._lose(state.storage)
            for piece in self._states[state.storage].pieces:
                piece.last_compute = self._position
            self._order.run(Stream.COMPUTE, self._position)
        self._states[buffer] = _BufferState(pieces, released=True)

    def _release_extent(self, buffer: int, extent: range) -> None:
        state = self._use_extent(buffer, extent)
        if state.storage is not None:
            raise self._error(f"{self._name(buffer)} lies in {self._name(state.storage)} and has no memory of its own")
        self._order.reach(Stream.COMPUTE)
        for number, piece in zip(self._pieces.covered(buffer, extent), self._held(buffer, extent), strict=True):
            state.pieces[number] = self._released(piece)

    def _released(self, piece: _Piece, stream: Stream = Stream.COMPUTE) -> _Piece:
        if self._unfinished(piece.last_copy, stream):
            raise self._error(f"{piece.name} is released before the {stream.value} stream waited for its copy")
        if not self._order.knows(stream, Stream.COMPUTE, piece.last_compute):
            raise self._error(f"{piece.name} is released before the {stream.value} stream waited for its kernel")
        return _Piece(piece.name, on_host=piece.on_host)

    def _lose(self, storage: int) -> None:
        """Mark the content of a storage as overwritten by a buffer that lies in it."""
        for piece in self._states[storage].pieces:
            piece.written = False

    def _copy(self, operation: operations.Offload | operations.Prefetch) -> None:
        self._use_extent(operation.buffer, operation.extent)
        self._order.reach(Stream.MEMORY)
        for piece in self._held(operation.buffer, operation.extent):
            if isinstance(operation, operations.Offload):
                self._offload(piece, operation.copy)
            else:
                self._prefetch(piece, operation.copy, keeps_copy=operation.keeps_copy)
        self._order.run(Stream.MEMORY, self._position)

    def _offload(self, piece: _Piece, copy: int) -> None:
        if not piece.written:
            raise self._error(f"{piece.name} is offloaded before anything was written to it")
        if copy in piece.on_host:
            raise self._error(f"{piece.name} is offloaded twice")
        if not self._order.knows(Stream.MEMORY, Stream.COMPUTE, piece.last_compute_write):
            raise self._error(f"{piece.name} is offloaded before the memory stream waited for its kernel")
        if self._unfinished(piece.last_arrival, Stream.MEMORY):
            raise self._error(f"{piece.name} is offloaded before the memory stream waited for its exchange")
        piece.on_host |= {copy}
        piece.last_copy[Stream.MEMORY] = self._position

    def _prefetch(self, piece: _Piece, copy: int, *, keeps_copy: bool) -> None:
        if copy not in piece.on_host:
            raise self._error(f"{piece.name} is prefetched but not on the host")
        if not self._order.knows(Stream.MEMORY, Stream.COMPUTE, piece.last_compute):
            raise self._error(f"{piece.name} is prefetched before the memory stream waited for its allocation")
        if not keeps_copy:
            piece.on_host -= {copy}
        piece.written = True
        piece.last_copy[Stream.MEMORY] = piece.last_arrival[Stream.MEMORY] = self._position

    def _exchange(self, stream: Stream, reads: tuple[int, ...], writes: tuple[int, ...]) -> None:
        self._order.reach(stream)
        for buffer in dict.fromkeys(reads + writes):
            self._use(buffer)
            is_written = buffer in writes
            for piece in self._held(buffer):
                if buffer in reads and not piece.written:
                    raise self._error(f"{piece.name} is exchanged before anything was written to it")
                kernel = piece.last_compute if is_written else piece.last_compute_write
                if not self._order.knows(stream, Stream.COMPUTE, kernel):
                    raise self._error(f"{piece.name} is exchanged before the stream waited for its kernel")
                if self._unfinished(piece.last_copy if is_written else piece.last_arrival, stream):
                    raise self._error(f"{piece.name} is exchanged before the stream waited for its copy")
                piece.last_copy[stream] = self._position
                if is_written:
                    piece.written = True
                    piece.on_host = frozenset()
                    piece.last_arrival[stream] = self._position
        self._order.run(stream, self._position)

    def _unfinished(self, copies: dict[Stream, int], stream: Stream) -> list[Stream]:
        """Return the streams whose last copy of a buffer is not ordered before a stream."""
        return [each for each in copies if not self._order.knows(stream, each, copies[each])]

    def _use(self, buffer: int, covered_for: tuple[int, ...] = ()) -> _BufferState:
        """Return the state of a buffer in use; a kernel may read a buffer that it covers with one of its outputs."""
        state = self._states[buffer]
        if not state.allocated:
            raise self._error(f"{self._name(buffer)} is used while it is not allocated")
        if state.covered_by is not None and state.covered_by not in covered_for:
            raise self._error(f"{self._name(buffer)} is used while {self._name(state.covered_by)} lies in it")
        return state

    def _use_extent(self, buffer: int, extent: range | None) -> _BufferState:
        state, nbytes = self._use(buffer), self._plan.buffers[buffer].nbytes
        if extent is not None and (len(extent) < 1 or extent.step != 1 or extent.start < 0 or extent.stop > nbytes):
            raise self._error(f"{self._name(buffer)} has {nbytes} B, found {len(extent)} B from byte {extent.start} on")
        return state

    def _held(self, buffer: int, extent: range | None = None) -> Iterator[_Piece]:
        for number in self._pieces.covered(buffer, extent):
            piece = self._states[buffer].pieces[number]
            if not piece.held:
                raise self._error(f"{piece.name} is used while its memory is freed")
            yield piece

    def _name(self, buffer: int) -> str:
        return self._plan.buffers[buffer].name

    def _error(self, message: str) -> PlanError:
        plan = self._plan
        text = describe(plan.operations[self._position], plan.buffer_names, plan.layers)
        return PlanError(f"{plan.policy}: operation {self._position} ({text}): {message}")
