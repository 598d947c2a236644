"""The buffers of one iteration, by what they hold, and which of them each kernel touches."""

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plan.liveness import operands
from vdnnsim.plan.schedule import Content
from vdnnsim.plan.training_plan import Buffer, BufferKind
from vdnnsim.plan.writer import PlanWriter


class IterationBuffers:
    """The buffers of a workload but for workspaces; ids are positions, as in the plan that begins with them.

    Attributes:
        buffers: all of them: feature maps, their gradients, then what belongs to layers.
        contents: what each holds.
        ids: the other way round.
        maps: buffer of feature map i.
        gradients: buffer of the gradient of feature map i, for those that have one.
        resident: those that hold from iteration to iteration (W, optimizer states) or throughout one (dW, batch
            statistics), with the index of their layer.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._training = workload.mode is Mode.TRAINING
        self._touched: dict[tuple[int, Phase], tuple[list[int], list[int]]] = {}
        self.buffers: list[Buffer] = []
        self.contents: list[Content] = []
        self.ids: dict[Content, int] = {}
        for each in workload.graph.maps:
            nbytes, given = workload.map_bytes(each.index), each.producer is None
            content = Content(BufferKind.FEATURE_MAP, each.index)
            self.add(content, Buffer(f"map {each.name}", content.kind, nbytes, each.stage, given, each.index))
        self.maps = list(range(len(self.buffers)))
        for each in workload.graph.maps:
            if self._training and each.needs_gradient:
                content, nbytes = Content(BufferKind.GRADIENT_MAP, each.index), workload.map_bytes(each.index)
                self.add(content, Buffer(f"gradient of {each.name}", content.kind, nbytes, each.stage, of=each.index))
        self.gradients = {self.contents[buffer].of: buffer for buffer in range(len(self.maps), len(self.buffers))}
        first_resident = len(self.buffers)
        for layer in workload.graph.layers:
            self._add_resident(layer)
        self.resident = [(buffer, self.contents[buffer].of) for buffer in range(first_resident, len(self.buffers))]

    def add(self, content: Content, buffer: Buffer) -> None:
        """Add what an iteration keeps beside."""
        self.ids[content] = len(self.buffers)
        self.contents.append(content)
        self.buffers.append(buffer)

    def _add_resident(self, layer: Layer) -> None:
        def add(name: str, kind: BufferKind, nbytes: int, *, given: bool, number: int = 0) -> None:
            buffer = Buffer(f"{name} of {layer.name}", kind, nbytes, layer.stage, given, layer.index)
            self.add(Content(kind, layer.index, number), buffer)

        if layer.parameters:
            nbytes = self._workload.weight_bytes(layer)
            add("weights", BufferKind.WEIGHTS, nbytes, given=True)
            if self._training:
                add("weight gradient", BufferKind.WEIGHT_GRADIENT, nbytes, given=False)
                for number in range(self._workload.optimizer.states):
                    add(f"state {number + 1}", BufferKind.OPTIMIZER_STATE, nbytes, given=True, number=number)
        if statistics_bytes := self._workload.statistics_bytes(layer):
            add("statistics", BufferKind.STATISTICS, statistics_bytes, given=not self._training)

    def held(self, *, with_statistics: bool) -> list[tuple[int, int]]:
        """Return those resident, with the statistics that training writes anew for its backward or without."""
        if with_statistics or not self._training:
            return self.resident
        return [each for each in self.resident if self.contents[each[0]].kind is not BufferKind.STATISTICS]

    def add_to(self, writer: PlanWriter) -> None:
        """Name all of them in a plan that has none yet."""
        for each in self.buffers:
            writer.buffer(each.name, each.kind, each.nbytes, each.stage, given=each.given, of=each.of)

    def nbytes(self, buffer: int) -> int:
        """Return the size of a buffer."""
        return self.buffers[buffer].nbytes

    def touched(self, layer: Layer, phase: Phase) -> tuple[list[int], list[int]]:
        """Return the buffers that a phase of a layer reads and those that it writes, the workspace aside."""
        key = layer.index, phase
        if key not in self._touched:
            self._touched[key] = self._touched_by(layer, phase)
        return self._touched[key]

    def _touched_by(self, layer: Layer, phase: Phase) -> tuple[list[int], list[int]]:
        touched = operands(self._workload, layer, phase)
        reads = [self.maps[i] for i in touched.maps_read] + [self.gradients[i] for i in touched.gradients_read]
        writes = [self.maps[i] for i in touched.maps_written] + [self.gradients[i] for i in touched.gradients_written]
        owner = layer.index if layer.weights_of is None else layer.weights_of

        def of_owner(kind: BufferKind) -> int:
            return self.ids[Content(kind, owner)]

        def states() -> list[int]:
            numbers = range(self._workload.optimizer.states)
            return [self.ids[Content(BufferKind.OPTIMIZER_STATE, owner, number)] for number in numbers]

        if touched.weights_read:
            reads.append(of_owner(BufferKind.WEIGHTS))
        if touched.weights_written:
            writes += [of_owner(BufferKind.WEIGHTS), *states()]
        if touched.weight_gradient_read:
            reads.append(of_owner(BufferKind.WEIGHT_GRADIENT))
            reads += states() if phase is Phase.UPDATE else []
        if touched.weight_gradient_written:
            writes.append(of_owner(BufferKind.WEIGHT_GRADIENT))
        statistics = Content(BufferKind.STATISTICS, layer.index)
        if touched.statistics_read:
            reads.append(self.ids[statistics])
        if touched.statistics_written:
            writes.append(self.ids[statistics])
        return reads, writes
