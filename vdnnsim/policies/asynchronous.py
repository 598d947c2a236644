"""The iteration of Kim et al. (2018): maps leave and come back beside the kernels, with no synchronization of layers.

An offload starts with the last forward reader of its map (Fig. 2: Swap-out(n) beside FWD(n+1)). The memory is given
back when a later request would not fit without it, oldest first, or else just before the map comes back: only then does
the compute stream wait for the copy. That is what an allocator does which waits for memory that is about to be freed,
as TensorFlow's; it counts bytes, as the ideal pool does, and knows of no gaps.

Each map comes back at its trigger (Fig. 6), a number of steps before the first backward that reads it; a step is the
backward of one layer that is not in place. A map without a trigger depends on nothing but its own offload and follows
it at once (Fig. 5): it never leaves the GPU, and frees nothing.

Source: Kim, Lee, Kim, Je, Roh, "Efficient Multi-GPU Memory Management for Deep Learning Acceleration", 2018, III-B and
III-C. How TensorFlow frees memory under a copy is not in the paper; the rule above is an assumption.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import neg

from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.requests import round_up
from vdnnsim.plan.liveness import needed_in_backward
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.placement import MemoryLimits
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.algorithms import KernelChoice
from vdnnsim.policies.offloading import OffloadingWriter


def asynchronous_plan(
    workload: Workload,
    kernels: KernelChoice,
    triggers: Mapping[int, int | None],
    limits: MemoryLimits,
    *,
    label: str,
    algorithms: str,
) -> TrainingPlan:
    """Write the plan that offloads the maps in `triggers`.

    A trigger says how many steps before its first backward reader a map comes back, 1 or more; None for no trigger. One
    that would lie before backward lies at its beginning.
    """
    writer = _AsynchronousWriter(workload, kernels, triggers, limits)
    writer.write()
    return writer.plan.finish(label, algorithms)


def backward_steps(workload: Workload) -> tuple[int, ...]:
    """Return the layers whose backward is a step, in the order of backward."""
    return tuple(
        layer.index for layer in reversed(workload.graph.layers) if layer.backward_phases and not layer.in_place
    )


def steps_before_backward_use(workload: Workload, feature_map: FeatureMap) -> int:
    """Return how many steps precede the first backward that reads a map, which may be that of an in-place layer."""
    return _steps_before(backward_steps(workload), feature_map)


def _steps_before(steps: tuple[int, ...], feature_map: FeatureMap) -> int:
    first_reader = max(feature_map.saved_for)
    return bisect_left(steps, -first_reader, key=neg)  # backward goes down


class _AsynchronousWriter(OffloadingWriter):
    plan: "_WaitingWriter"

    def __init__(
        self, workload: Workload, kernels: KernelChoice, triggers: Mapping[int, int | None], limits: MemoryLimits
    ) -> None:
        super().__init__(_WaitingWriter(workload, limits), workload, kernels, triggers)
        self._triggers = triggers
        # By layer with whose backward they come back.
        self._fetches: list[list[int]] = [[] for _ in self._layers]
        # Maps on their way back, with the event that marks the arrival.
        self._coming: dict[int, int] = {}
        steps = backward_steps(workload)
        # The later a map was made the sooner backward reads it: of those that come back together the first.
        for index in sorted(triggers, reverse=True):
            lead, feature_map = triggers[index], workload.graph.maps[index]
            if lead is not None and needed_in_backward(workload, feature_map):
                step = max(0, _steps_before(steps, feature_map) - lead)
                self._fetches[steps[step]].append(index)

    def _offload(self, leaving: Sequence[int], layer: Layer) -> None:
        for index in leaving:
            self.plan.offload(self._buffers.maps[index], layer.index)
            if self._triggers[index] is None:
                self._copy_back(index, layer, on_demand=False)
            else:
                self.plan.release_when_away(self._buffers.maps[index])

    def _backward(self, layer: Layer) -> None:
        for index in self._fetches[layer.index]:
            self.plan.give_back(self._buffers.maps[index])
            self.plan.allocate(self._buffers.maps[index], layer.index, layer.backward_phases[0])
            self._copy_back(index, layer, on_demand=index in layer.saved_maps)
        for index in layer.saved_maps:
            if index in self._coming:
                self.plan.wait(self._coming.pop(index), Stream.COMPUTE)
        self._compute_gradients(layer)
        self._release_last_reads(layer)

    def _copy_back(self, index: int, layer: Layer, *, on_demand: bool) -> None:
        """Fetch a map once the compute stream has come to this point."""
        self.plan.wait(self.plan.record(Stream.COMPUTE), Stream.MEMORY)
        self.plan.prefetch(self._buffers.maps[index], layer.index, on_demand=on_demand)
        self._coming[index] = self.plan.record(Stream.MEMORY)


class _WaitingWriter(PlanWriter):
    """Keeps buffers that leave until a request would not fit beside them, and lets it wait until they have left."""

    def __init__(self, workload: Workload, limits: MemoryLimits) -> None:
        super().__init__(workload)
        self._limits = limits
        self._in_use_bytes = 0
        # Buffers on their way to the host, oldest first, with the event that marks the end of the copy.
        self._leaving: dict[int, int] = {}

    def allocate(self, buffer: int, layer: int, phase: Phase) -> None:
        """Take memory for a buffer, once as many of those that leave are given back as it needs."""
        size_bytes = self._size_bytes(buffer)
        while self._leaving and self._in_use_bytes + size_bytes > self._limits.device_bytes:
            self.give_back(next(iter(self._leaving)))
        self._in_use_bytes += size_bytes
        super().allocate(buffer, layer, phase)

    def release(self, buffer: int) -> None:
        """Give the memory of a buffer back."""
        self._in_use_bytes -= self._size_bytes(buffer)
        super().release(buffer)

    def release_when_away(self, buffer: int) -> None:
        """Let a buffer go, when its memory is wanted: it leaves with the copy launched last."""
        self._leaving[buffer] = self.record(Stream.MEMORY)

    def give_back(self, buffer: int) -> None:
        """Release a buffer once it has left, unless that has been done before."""
        if buffer in self._leaving:
            self.wait(self._leaving.pop(buffer), Stream.COMPUTE)
            self.release(buffer)

    def _size_bytes(self, buffer: int) -> int:
        return round_up(self.nbytes(buffer), self._limits.granule_bytes)
