"""The writer of plans: collects operations, and numbers buffers and events."""

from collections.abc import Iterable

from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Operation, RecordEvent, Stream
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan


class PlanWriter:
    """Collects buffers and operations; `finish` freezes them into a `TrainingPlan`."""

    def __init__(self, workload: Workload, buffers: Iterable[Buffer] = ()) -> None:
        """Begin with some buffers, whose ids are their positions."""
        self._workload = workload
        self._buffers = list(buffers)
        self._operations: list[Operation] = []
        self._events = 0

    def buffer(
        self, name: str, kind: BufferKind, nbytes: int, stage: Stage, *, given: bool = False, storage: int | None = None
    ) -> int:
        """Name a buffer and return its id; it takes no memory until it is allocated."""
        self._buffers.append(Buffer(name, kind, nbytes, stage, given, storage))
        return len(self._buffers) - 1

    def nbytes(self, buffer: int) -> int:
        return self._buffers[buffer].nbytes

    def add(self, operation: Operation) -> None:
        self._operations.append(operation)

    def record(self, stream: Stream) -> int:
        event = self._events
        self._events += 1
        self.add(RecordEvent(event, stream))
        return event

    def finish(self, policy: str, algorithms: str, *, handles: int = 0) -> TrainingPlan:
        return TrainingPlan(
            workload=self._workload,
            policy=policy,
            algorithms=algorithms,
            buffers=tuple(self._buffers),
            operations=tuple(self._operations),
            handles=handles,
        )
