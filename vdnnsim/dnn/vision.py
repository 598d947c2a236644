"""Operators of U-Net, MobileNetV2 and vision transformers.

Sources: Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021, and `vit_b_16` of torchvision
(github.com/pytorch/vision, torchvision/models/vision_transformer.py); of the others PyTorch's derivatives.yaml.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

from vdnnsim.dnn.operator import Arithmetic, Autocast, Operator, SavingRule, Work
from vdnnsim.dnn.shapes import MapShape, Shapes, Size2


@dataclass(frozen=True, slots=True)
class TransposedConvolution(Operator):
    """The data gradient of a convolution as a layer, without padding (`torch.nn.ConvTranspose2d`)."""

    out_channels: int
    kernel: Size2
    stride: Size2 = (1, 1)
    bias: bool = True

    name: ClassVar[str] = "transposed_conv"
    bare: ClassVar[tuple[str, ...]] = ("out_channels", "kernel")
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "CONV"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT

    def outputs(self, inputs: Shapes) -> Shapes:
        """Windows of the kernel's size, as far apart as the stride says."""
        (x,) = inputs
        height, width = ((n - 1) * stride for n, stride in zip((x.height, x.width), self.stride, strict=True))
        return (MapShape(self.out_channels, height + self.kernel[0], width + self.kernel[1], x.steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        """Each element of X is multiplied with K R S weights; of Y each with those of C that fall on it at most."""
        (x,) = inputs
        window = self.kernel[0] * self.kernel[1]
        flop = 2 * x.elements * self.out_channels * window
        overlapping = -(-self.kernel[0] // self.stride[0]) * -(-self.kernel[1] // self.stride[1])
        return Work(
            forward_flop=flop,
            backward_flop=flop,
            weights=self.out_channels * (x.channels * window + self.bias),
            biases=self.out_channels * self.bias,
            filter_elements=x.channels * overlapping,
            saved_inputs=(0,),
        )


@dataclass(frozen=True, slots=True)
class Relu6(Operator):
    """A rectifier that clamps above 6, too, whose backward needs Y alone.

    PyTorch's reads X (`hardtanh_backward` in derivatives.yaml), so `hardtanh_` saves a copy before it overwrites it if
    a gradient is asked for.
    """

    over_input: bool = True

    name: ClassVar[str] = "relu6"
    kind: ClassVar[str] = "ACTV"

    @property
    def in_place(self) -> bool:  # type: ignore[override]  # an option here
        return self.over_input

    def under(self, rule: SavingRule) -> "Relu6":
        """With autograd's copy, Y is a new map."""
        return Relu6(over_input=rule is SavingRule.PAPER)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """One an element."""
        work = Work(forward_flop=inputs[0].elements, backward_flop=inputs[0].elements)
        if rule is SavingRule.PAPER:
            return replace(work, saved_outputs=(0,))
        return replace(work, saved_inputs=(0,), copies=1)


@dataclass(frozen=True, slots=True)
class ClassToken(Operator):
    """Prepends a learned vector, W, to the pixels of X as steps, row by row.

    Forward copies (`torch.cat` of the vector, expanded over the batch, and of X, whose pixels as steps are a view).
    """

    name: ClassVar[str] = "class_token"
    kind: ClassVar[str] = "CONCAT"
    autocast: ClassVar[Autocast] = Autocast.WEIGHTS

    def outputs(self, inputs: Shapes) -> Shapes:
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
        elements = inputs[0].elements
        return Work(forward_flop=elements, backward_flop=elements, weights=elements)
