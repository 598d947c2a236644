"""Operators without weights: concatenation, sums, products, casts, dropout, local response normalization."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from vdnnsim.dnn.operator import Autocast, Operator, SavingRule, Statistics, Work
from vdnnsim.dnn.shapes import Shapes
from vdnnsim.units import ElementType


@dataclass(frozen=True, slots=True)
class Concat(Operator):
    """Joins its inputs along the channels by copying them, as Torch's Concat does."""

    name: ClassVar[str] = "concat"
    kind: ClassVar[str] = "CONCAT"

    def outputs(self, inputs: Shapes) -> Shapes:
        assert len({replace(shape, channels=1) for shape in inputs}) == 1, f"{inputs} cannot be joined"
        return (replace(inputs[0], channels=sum(shape.channels for shape in inputs)),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is computed or kept
        return Work(forward_flop=0, backward_flop=0)


@dataclass(frozen=True, slots=True)
class ElementwiseAdd(Operator):
    """Y = A + B, into a map of its own: the shortcut of a residual network (He et al., CVPR 2016)."""

    name: ClassVar[str] = "add"
    kind: ClassVar[str] = "ADD"
    passes_gradient: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is kept
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
    """Copies a map into another element type, as PyTorch's autocast does before an operator.

    Nothing is kept but of logits: `log_softmax` keeps its narrow result for backward, and `nll_loss` the wide copy of
    it (autocast casts the latter alone, for `cross_entropy` asks the former for the type of the logits).

    Attributes:
        to: the type of Y.
        first_step: whether it copies the first step alone.
        of_logits: whether a loss reads Y.
    """

    to: ElementType
    first_step: bool = False
    of_logits: bool = False

    name: ClassVar[str] = "cast"
    kind: ClassVar[str] = "CAST"

    def output_type(self, inputs: Sequence[ElementType], half: ElementType) -> ElementType:  # noqa: ARG002 - as told
        return self.to

    def outputs(self, inputs: Shapes) -> Shapes:
        (x,) = inputs
        return (replace(x, steps=1) if self.first_step else x,)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - of any shape
        keeps = self.of_logits and rule is SavingRule.AUTOGRAD
        return Work(forward_flop=0, backward_flop=0, saved_inputs=(0,) if keeps else ())


@dataclass(frozen=True, slots=True)
class Dropout(Operator):
    """Clears elements at random and scales the others; backward multiplies dY with the mask that forward drew.

    Attributes:
        mask_bytes: of each element in the mask: 4 in Caffe, an unsigned int (dropout_layer.cpp, `rand_vec_`); 1 in
            PyTorch, a bool (aten::native_dropout).
        over_input: whether it works in place, as Caffe's networks have it (top and bottom are one blob).
    """

    mask_bytes: int
    over_input: bool

    name: ClassVar[str] = "dropout"
    kind: ClassVar[str] = "DROPOUT"

    @property
    def in_place(self) -> bool:  # type: ignore[override]  # an option here
        return self.over_input

    def under(self, rule: SavingRule) -> "Dropout":
        """For autograd, which refuses to overwrite what a rectifier saved: Y is a new map, the mask of bools."""
        return self if rule is SavingRule.PAPER else Dropout(mask_bytes=1, over_input=False)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep the mask
        elements = inputs[0].elements
        return Work(
            forward_flop=elements,
            backward_flop=elements,
            statistics=Statistics(elements, element_bytes=self.mask_bytes),
            random=True,
        )


@dataclass(frozen=True, slots=True)
class LocalResponseNormalization(Operator):
    """Divides each element by a power of the sum of squares over `window` neighbouring channels.

    Backward reads X, Y and dY, and nothing else is kept: cudnnLRNCrossChannelBackward takes these three, and Caffe with
    cuDNN calls it for windows up to 16 (layer_factory.cpp). Caffe without cuDNN would keep the sums as well. PyTorch
    composes it of others, of which autograd keeps X, the squares padded by the window, the scaled sums and their power
    (torch.nn.functional.local_response_norm); backward holds three more maps as temporaries.
    Source: Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, NIPS 2012.
    """

    window: int

    name: ClassVar[str] = "lrn"
    autocast: ClassVar[Autocast] = Autocast.FLOAT32
    kind: ClassVar[str] = "LRN"

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """A multiply and an add for each neighbour, then scale, shift, power and product.

        Backward as forward, with dY Y over the sum of squares for the squares, and the sum of two terms.
        """
        elements, channels = inputs[0].elements, inputs[0].channels
        work = Work(
            forward_flop=(2 * self.window + 4) * elements,
            backward_flop=(2 * self.window + 8) * elements,
            saved_inputs=(0,),
        )
        if rule is SavingRule.PAPER:
            return replace(work, saved_outputs=(0,))
        padded = elements // channels * (channels + self.window - 1)
        return replace(work, statistics=Statistics(padded + 2 * elements), temporaries=3 * elements)
