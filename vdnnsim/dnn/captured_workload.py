"""A workload that was captured: what one is asked, answered by what was captured and not by the formulas of layers."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from vdnnsim.dnn.captured_graph import TYPES
from vdnnsim.dnn.captured_layers import CapturedLayer
from vdnnsim.dnn.captured_step import CapturedOperation, CapturedStep
from vdnnsim.dnn.captured_view import CapturedView, view_of
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.step import BufferKind, Step, StepOperation, WeightGradients
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.units import ElementType, Precision

_OPTIMIZERS: Final = {"none": Optimizer.NONE, "sgd": Optimizer.SGD, "momentum": Optimizer.MOMENTUM}


@dataclass(frozen=True)
class CapturedWorkload(Workload):
    """What one GPU does in one iteration that was captured.

    The program was captured whole, so its batch is not cut into parts, its weight gradients are dropped, and forward
    keeps what autograd kept.

    Raises:
        PolicyError: something asks for it otherwise.
    """

    view: CapturedView = field(kw_only=True, hash=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what was not captured."""
        if self.parts > 1:
            raise PolicyError(
                f"{self.graph.name}: was captured with a batch of {self.batch_size}, which cannot be cut into "
                f"{self.parts} parts; expected a policy that runs all of it at a time"
            )
        if self.weight_gradients is not WeightGradients.DROPPED:
            raise PolicyError(
                f"{self.graph.name}: was captured with weight gradients that are dropped after each iteration, "
                f"found {self.weight_gradients.value!r}; expected a policy with set_to_none: true"
            )

    @classmethod
    def of(cls, captured: CapturedStep) -> "CapturedWorkload":
        """Return the workload of a step that was checked (`vdnnsim.dnn.captured_check`).

        Raises:
            ScenarioError: layers cannot be made of it (`vdnnsim.dnn.captured_view`).
        """
        view = view_of(captured)
        return cls(
            graph=view.graph,
            batch_size=captured.batch_size * view.rounds,
            element_type=captured.precision.element_type,
            optimizer=_optimizer(captured.optimizer),
            mode=captured.mode,
            weight_gradients=WeightGradients.DROPPED,
            view=view,
        )

    @property
    def captured(self) -> CapturedStep:
        """What was captured."""
        return self.view.captured

    @property
    def rounds(self) -> int:
        """Micro-batches whose weight gradients add up."""
        return self.view.rounds

    @property
    def part_size(self) -> int:
        """Samples of a micro-batch."""
        return self.captured.batch_size

    @property
    def precision(self) -> Precision:
        """In what it computes."""
        return self.captured.precision

    def saved_by(self, rule: SavingRule) -> "CapturedWorkload":
        """Return itself, for forward keeps what autograd kept."""
        assert rule is SavingRule.AUTOGRAD, "a captured model keeps what autograd kept"
        return self

    @cached_property
    def step(self) -> Step:
        """One iteration."""
        return self.view.step

    def map_bytes(self, index: int) -> int:
        """Bytes of feature map `index`; its gradient map is mostly as large."""
        return self.step.storages[self.step.storage(BufferKind.FEATURE_MAP, index)].nbytes

    def arithmetic_type(self, layer: Layer, phase: Phase) -> ElementType:
        """In what the operation with the most FLOPs of a phase computes; integers and float64 as the workload does."""
        operation = max(self._operations(layer, phase), key=_work)
        assert operation.captured is not None, "all operations of a captured workload were"
        return self.computed_in(operation.captured, self.element_type)

    def computed_in(self, operation: CapturedOperation, otherwise: ElementType) -> ElementType:
        """In what an operation computes: in TF32 only products do; `otherwise` where it is in what no workload is."""
        found = TYPES.get(operation.element_type, otherwise)
        if operation.work is None:
            return ElementType.FLOAT32 if found is ElementType.TF32 else found
        is_tf32 = self.element_type is ElementType.TF32 and found is ElementType.FLOAT32
        return ElementType.TF32 if is_tf32 else found

    def narrow_weight_bytes(self, layer: Layer) -> int:  # noqa: ARG002 - such copies are storages of their own
        """None: a copy of W under autocast is an operation and a storage like any other."""
        return 0

    def weight_bytes(self, layer: Layer) -> int:
        """Bytes of the W that a layer reads in forward, its own or another's."""
        operations = self._operations(layer, Phase.FORWARD) if Phase.FORWARD in self.phases(layer) else ()
        operands = (operand for each in operations for operand in each.operands if operand.access.reads)
        numbers = {self.step.tensors[each.memory].storage for each in operands}
        storages = (self.step.storages[each] for each in numbers)
        return sum(each.nbytes for each in storages if each.kind is BufferKind.WEIGHTS)

    def statistics_bytes(self, layer: Layer) -> int:
        """Bytes that backward of a layer reads and that are no map: moments, masks, reserves, narrow weights.

        In inference those that training left.
        """
        return self._statistics_bytes[layer.index]

    @cached_property
    def _statistics_bytes(self) -> Counter[int]:
        found = Counter[int]()
        for each in self.step.storages:
            if each.kind is BufferKind.STATISTICS and not (each.given and self.is_training):
                found[each.owner] += each.nbytes
        return found

    def phases(self, layer: Layer) -> tuple[Phase, ...]:
        """The phases of a layer that were captured, in the order in which they run."""
        assert isinstance(layer, CapturedLayer), "a captured workload has captured layers"
        return layer.phases

    def flop(self, layer: Layer, phase: Phase) -> int:
        """FLOPs of all operations of one phase of a layer."""
        return sum(map(_work, self._operations(layer, phase)))

    def bytes_moved(self, layer: Layer, phase: Phase) -> int:
        """Compulsory DRAM traffic of all operations of one phase of a layer."""
        return sum(each.bytes_moved for each in self._operations(layer, phase))

    def _operations(self, layer: Layer, phase: Phase) -> tuple[StepOperation, ...]:
        return self.step.operations_of(layer.index, phase)


def _optimizer(name: str) -> Optimizer:
    """Return which of our optimizers is nearest: profiles state fractions of their names, and of no other's."""
    return _OPTIMIZERS.get(name.partition("_")[0], Optimizer.ADAM)


def _work(operation: StepOperation) -> int:
    return sum(operation.flop.values())
