"""Operators that make a sequence of a picture, as vision transformers have them.

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, and `vit_b_16` of torchvision
(github.com/pytorch/vision, torchvision/models/vision_transformer.py).
"""

from dataclasses import dataclass
from typing import ClassVar

from vdnnsim.dnn.operator import Autocast, Operator, SavingRule, Work
from vdnnsim.dnn.shapes import MapShape, Shapes


@dataclass(frozen=True, slots=True)
class ClassToken(Operator):
    """Joins a learned vector, W, and the pixels of X along the steps: Y begins with the vector, then row by row.

    Forward copies (`torch.cat` of the vector, expanded over the batch, and of X, whose pixels as steps are a view).
    """

    name: ClassVar[str] = "class_token"
    kind: ClassVar[str] = "CONCAT"
    autocast: ClassVar[Autocast] = Autocast.WEIGHTS

    def outputs(self, inputs: Shapes) -> Shapes:
        """A step for each pixel, and one."""
        (x,) = inputs
        return (MapShape(x.channels, steps=x.height * x.width * x.steps + 1),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is kept
        """Copies; dW is the sum over the batch of the first step of dY."""
        channels = inputs[0].channels
        return Work(forward_flop=0, backward_flop=channels, weights=channels)


@dataclass(frozen=True, slots=True)
class LearnedPositions(Operator):
    """Y = X + W, into a map of its own: W is as large as X, and the same for all of a batch."""

    name: ClassVar[str] = "positions"
    kind: ClassVar[str] = "ADD"
    passes_gradient: ClassVar[bool] = True
    autocast: ClassVar[Autocast] = Autocast.WEIGHTS

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - nothing is kept
        """One an element; dX is dY as it is, dW its sum over the batch."""
        elements = inputs[0].elements
        return Work(forward_flop=elements, backward_flop=elements, weights=elements)
