"""Operators that join, add, multiply or copy maps element by element, and have no weights."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from vdnnsim.dnn.operator import Operator, SavingRule, Work
from vdnnsim.dnn.shapes import Shapes
from vdnnsim.element_type import ElementType


@dataclass(frozen=True, slots=True)
class Concat(Operator):
    """Joins its inputs along the channels by copying them, as Torch's Concat does."""

    name: ClassVar[str] = "concat"
    kind: ClassVar[str] = "CONCAT"

    def outputs(self, inputs: Shapes) -> Shapes:
        """The channels of all."""
        assert len({replace(shape, channels=1) for shape in inputs}) == 1, f"{inputs} cannot be joined"
        return (replace(inputs[0], channels=sum(shape.channels for shape in inputs)),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is computed or kept
        """Copies."""
        return Work(forward_flop=0, backward_flop=0)


@dataclass(frozen=True, slots=True)
class ElementwiseAdd(Operator):
    """Y = A + B, into a map of its own: the shortcut of a residual network (He et al., CVPR 2016)."""

    name: ClassVar[str] = "add"
    kind: ClassVar[str] = "ADD"
    passes_gradient: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is kept
        """One an element; the gradient goes to both inputs as it is."""
        return Work(forward_flop=inputs[0].elements, backward_flop=0)


@dataclass(frozen=True, slots=True)
class ElementwiseProduct(Operator):
    """Y = A B, element by element, as gated layers have it; backward reads both."""

    name: ClassVar[str] = "multiply"
    kind: ClassVar[str] = "PRODUCT"

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep A and B
        """Backward is two: dA = dY B, dB = dY A."""
        elements = inputs[0].elements
        return Work(forward_flop=elements, backward_flop=2 * elements, saved_inputs=tuple(range(len(inputs))))


@dataclass(frozen=True, slots=True)
class Cast(Operator):
    """Copies a map into another element type, as PyTorch's autocast does before an operator; nothing is kept.

    Attributes:
        to: the type of Y; that of X is the map's.
        first_step: whether it copies that alone.
    """

    to: ElementType
    first_step: bool = False

    name: ClassVar[str] = "cast"
    kind: ClassVar[str] = "CAST"

    def output_type(self, inputs: Sequence[ElementType], half: ElementType) -> ElementType:  # noqa: ARG002 - as told
        """As it says."""
        return self.to

    def outputs(self, inputs: Shapes) -> Shapes:
        """One like X, or a step of it."""
        (x,) = inputs
        return (replace(x, steps=1) if self.first_step else x,)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is computed or kept
        """Copies."""
        return Work(forward_flop=0, backward_flop=0)
