"""The one-byte records of rectifiers (Layrub, 4.2), by which their backward knows where Y is above zero without Y.

All records pass through one region: each leaves for host memory behind its kernel, and must be gone when the next
rectifier runs; in backward each comes back as soon as the one before it is done. A plan holds a record as statistics of
its layer, one byte for each element of Y.
"""

from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.plan.writer import PlanWriter
from vdnnsim.policies.buffers import IterationBuffers


class Records:
    """The records of a network in training; writes the kernels of its rectifiers."""

    def __init__(self, writer: PlanWriter, workload: Workload) -> None:
        self._writer = writer
        self._layers = [
            layer
            for layer in workload.graph.layers
            if workload.mode is Mode.TRAINING and isinstance(layer.operator, Activation) and layer.backward_phases
        ]
        self._buffers = {
            layer.index: writer.buffer(
                f"record of {layer.name}",
                BufferKind.STATISTICS,
                layer.out_shape.elements * workload.batch_size,
                layer.stage,
                of=layer.index,
            )
            for layer in self._layers
        }
        # By rectifier, the one before it in forward.
        self._below = dict(zip(self._buffers, [None, *self._layers], strict=False))
        self._region: int | None = None
        if self._layers:
            nbytes = max(writer.nbytes(buffer) for buffer in self._buffers.values())
            stage = self._layers[0].stage
            self._region = writer.buffer("region of records", BufferKind.FEATURE_MAP, nbytes, stage)
        # The record in the region on its way to the host, or back, and the event that marks its arrival.
        self._leaving: tuple[int, int] | None = None
        self._coming: int | None = None

    def __contains__(self, layer: int) -> bool:
        return layer in self._buffers

    def allocate(self) -> None:
        """Allocate the region."""
        if self._region is not None:
            self._writer.allocate(self._region, self._layers[0].index, Phase.FORWARD)

    def release(self) -> None:
        """Release the region."""
        if self._region is not None:
            self._writer.release(self._region)

    def forward(self, layer: Layer, buffers: IterationBuffers, algorithm: str) -> None:
        """Rectify and record; the record leaves at once, but for that of the last, which backward reads first."""
        assert self._region is not None, "there is a rectifier"
        if self._leaving is not None:
            before, gone = self._leaving
            self._writer.wait(gone, Stream.COMPUTE)
            self._writer.release(before)
            self._leaving = None
        record = self._buffers[layer.index]
        self._writer.alias(record, self._region)
        reads, writes = buffers.touched(layer, Phase.FORWARD)
        self._writer.compute(layer.index, Phase.FORWARD, algorithm, reads=reads, writes=[*writes, record])
        if layer is not self._layers[-1]:
            self._writer.wait(self._writer.record(Stream.COMPUTE), Stream.MEMORY)
            self._writer.offload(record, layer.index)
            self._leaving = record, self._writer.record(Stream.MEMORY)

    def backward(self, layer: Layer, buffers: IterationBuffers, algorithm: str) -> None:
        """Rectify the gradient by the record, in the place of Y."""
        if self._coming is not None:
            self._writer.wait(self._coming, Stream.COMPUTE)
            self._coming = None
        record = self._buffers[layer.index]
        _, gradients = buffers.touched(layer, Phase.BACKWARD_DATA)
        reads = [*gradients, record]
        self._writer.compute(layer.index, Phase.BACKWARD_DATA, algorithm, reads=reads, writes=gradients)

    def fetch_next(self, layer: Layer) -> None:
        """Let the record of the rectifier below follow into the region."""
        assert self._region is not None, "there is a rectifier"
        self._writer.release(self._buffers[layer.index])
        below = self._below[layer.index]
        if below is not None:
            record = self._buffers[below.index]
            self._writer.alias(record, self._region)
            self._writer.wait(self._writer.record(Stream.COMPUTE), Stream.MEMORY)
            self._writer.prefetch(record, layer.index, on_demand=False)
            self._coming = self._writer.record(Stream.MEMORY)
