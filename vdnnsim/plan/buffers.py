"""The buffers of one iteration, by what they hold, and which of them each kernel touches."""

from collections import Counter
from dataclasses import replace

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, Operand, Role, WeightGradients
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.schedule import Content
from vdnnsim.plan.training_plan import Buffer, BufferKind
from vdnnsim.plan.writer import PlanWriter


class IterationBuffers:
    """The buffers of a workload but for workspaces; ids are positions, as in the plan that begins with them.

    There is one for each storage of the step, in order, so that ids are numbers of storages, too.

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
        self._step = workload.step
        self._training = workload.is_training
        self._operands: dict[tuple[int, Phase, bool], tuple[Operand, ...]] = {}
        self._touched: dict[tuple[int, Phase, bool], tuple[list[int], list[int]]] = {}
        self.buffers: list[Buffer] = []
        self.contents: list[Content] = []
        self.ids: dict[Content, int] = {}
        seen: Counter[tuple[BufferKind, int]] = Counter()
        for number, each in enumerate(self._step.storages):
            of_its_kind = each.kind, each.owner
            buffer = Buffer(each.name, each.kind, each.nbytes, each.stage, each.given, number)
            self.add(Content(*of_its_kind, seen[of_its_kind]), buffer)
            seen[of_its_kind] += 1
        found = list(enumerate(self.contents))
        self._drops = self._training and workload.weight_gradients is WeightGradients.DROPPED
        of_maps = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
        self.maps = [buffer for buffer, each in found if each.kind is BufferKind.FEATURE_MAP]
        self.gradients = {each.of: buffer for buffer, each in found if each.kind is BufferKind.GRADIENT_MAP}
        self.resident = [(buffer, each.of) for buffer, each in found if each.kind not in of_maps]

    def add(self, content: Content, buffer: Buffer) -> None:
        """Add what an iteration keeps beside."""
        self.ids[content] = len(self.buffers)
        self.contents.append(content)
        self.buffers.append(buffer)

    def held(self, *, with_statistics: bool) -> list[tuple[int, int]]:
        """Return those resident, with the statistics that training writes anew for its backward or without.

        Weight gradients that are dropped live from backward to the end.
        """
        brief = set() if with_statistics or not self._training else {BufferKind.STATISTICS}
        brief |= {BufferKind.WEIGHT_GRADIENT} if self._drops else set()
        return [each for each in self.resident if self.contents[each[0]].kind not in brief]

    @property
    def results(self) -> frozenset[int]:
        """Return what an iteration makes and holds to its end: weight gradients that are dropped only then."""
        dropped = (BufferKind.WEIGHT_GRADIENT,) if self._drops else ()
        return frozenset(buffer for buffer, each in enumerate(self.contents) if each.kind in dropped)

    def add_to(self, writer: PlanWriter) -> None:
        """Name all of them in a plan that has none yet."""
        for each in self.buffers:
            writer.buffer(each.name, each.kind, each.nbytes, each.stage, given=each.given, storage=each.storage)

    def nbytes(self, buffer: int) -> int:
        """Return the size of a buffer."""
        return self.buffers[buffer].nbytes

    def operands(self, layer: Layer, phase: Phase, part: int = 0) -> tuple[Operand, ...]:
        """Return the buffers that a phase of a layer touches by their roles, the workspace aside.

        A part of the batch behind the first adds to the weight gradients of those before it.
        """
        key = layer.index, phase, part > 1
        if key not in self._operands:
            operands = self._operands_of(layer, phase)
            self._operands[key] = tuple(map(_added_to, operands)) if part > 1 else operands
        return self._operands[key]

    def touched(self, layer: Layer, phase: Phase, part: int = 0) -> tuple[list[int], list[int]]:
        """Return the buffers that a phase of a layer reads and those that it writes, the workspace aside."""
        key = layer.index, phase, part > 1
        if key not in self._touched:
            operands = self.operands(layer, phase, part)
            reads = [each.memory for each in operands if each.access.reads]
            self._touched[key] = reads, [each.memory for each in operands if each.access.writes]
        return self._touched[key]

    def _operands_of(self, layer: Layer, phase: Phase) -> tuple[Operand, ...]:
        tensors = self._step.tensors
        operands = self._step.operation(layer.index, phase).operands
        return tuple(replace(each, memory=tensors[each.memory].storage) for each in operands)


def _added_to(operand: Operand) -> Operand:
    is_sum = operand.role is Role.WEIGHT_GRADIENT and operand.access is Access.WRITE
    return replace(operand, access=Access.UPDATE) if is_sum else operand
