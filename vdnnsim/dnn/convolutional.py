"""Operators of convolutional networks: their output shapes, their work, and what their backward reads.

What backward reads follows cuDNN and the vDNN paper (II-B): CONV and FC read X, POOL reads X and Y, an in-place ACTV
reads only Y (which is the same bytes as its X), concatenation reads nothing, the loss reads its own output. Beyond the
paper, batch normalization reads X and the statistics of its batch, element-wise addition nothing. Autograd differs in
pooling: for a maximum it saves X and the indices, for an average X, for the mean of each channel nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from vdnnsim.dnn.operator import Arithmetic, Autocast, Operator, SavingRule, Statistics, Work
from vdnnsim.dnn.shapes import MapShape, Shapes, Size2, slide


@dataclass(frozen=True, slots=True)
class Convolution(Operator):
    """A convolution, by default with bias; kernel, stride and zero padding as (height, width).

    Attributes:
        groups: into which input and output channels are divided.
        steps: of the kernel in time, padded so that the number of steps stays; with more than one it is of one pixel.
    """

    out_channels: int
    kernel: Size2
    stride: Size2 = (1, 1)
    padding: Size2 = (0, 0)
    bias: bool = True
    groups: int = 1
    steps: int = 1

    name: ClassVar[str] = "conv"
    bare: ClassVar[tuple[str, ...]] = ("out_channels", "kernel")
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "CONV"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT

    def __post_init__(self) -> None:
        if self.steps > 1 and self.kernel != (1, 1):
            raise ValueError(self.kernel)

    def outputs(self, inputs: Shapes) -> Shapes:
        (x,) = inputs
        sizes = slide((x.height, x.width), self.kernel, self.stride, self.padding)
        return (MapShape(self.out_channels, *sizes, steps=x.steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        """Each output is a dot product over one filter, C R S of its group for each step of the kernel in time.

        The three phases are the same products regrouped.
        """
        (y,) = self.outputs(inputs)
        filter_elements = inputs[0].channels // self.groups * self.steps * self.kernel[0] * self.kernel[1]
        return product_work(y, filter_elements, filters=self.out_channels, bias=self.bias)


def product_work(y: MapShape, filter_elements: int, *, filters: int, bias: bool) -> Work:
    """Return the work of a product: a multiply and an add for each weight of the filter of each output."""
    flop = 2 * y.elements * filter_elements
    return Work(
        forward_flop=flop,
        backward_flop=flop,
        weights=filters * (filter_elements + bias),
        biases=filters * bias,
        filter_elements=filter_elements,
        saved_inputs=(0,),
    )


@dataclass(frozen=True, slots=True)
class Pooling(Operator):
    """Maximum pooling, or average pooling if `average`; the last incomplete window is left out, as in Torch.

    Backward of an average needs neither X nor Y, but cuDNN's call takes both and the vDNN paper keeps both for every
    POOL layer; so they count as saved by the paper's rule. Autograd keeps X, and of a maximum an int64 for each element
    of Y (`max_pool2d_with_indices_backward` and `avg_pool2d_backward` in PyTorch's derivatives.yaml); an average over
    all of a map is `mean` there, whose backward reads nothing.

    Attributes:
        steps: of the window in time, and from one window to the next.
    """

    kernel: Size2
    stride: Size2
    padding: Size2 = (0, 0)
    average: bool = False
    steps: int = 1

    kind: ClassVar[str] = "POOL"
    bare: ClassVar[tuple[str, ...]] = ("kernel",)
    spellings: ClassVar[Mapping[str, Mapping[str, bool]]] = {
        "max_pool": {"average": False},
        "average_pool": {"average": True},
    }

    @property
    def name(self) -> str:  # type: ignore[override]  # two words, one operator
        return "average_pool" if self.average else "max_pool"

    def outputs(self, inputs: Shapes) -> Shapes:
        (x,) = inputs
        sizes = slide((x.height, x.width), self.kernel, self.stride, self.padding)
        return (MapShape(x.channels, *sizes, steps=x.steps // self.steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """One operation for each element of each window."""
        (y,) = self.outputs(inputs)
        flop = y.elements * self.kernel[0] * self.kernel[1] * self.steps
        work = Work(forward_flop=flop, backward_flop=flop, saved_inputs=(0,))
        if rule is SavingRule.PAPER:
            return replace(work, saved_outputs=(0,))
        if not self.average:
            return replace(work, statistics=Statistics(y.elements, element_bytes=8))
        (x,) = inputs
        return replace(work, saved_inputs=()) if self.kernel == (x.height, x.width) else work


@dataclass(frozen=True, slots=True)
class Activation(Operator):
    """A rectifier, in place: Y lies over X and dX over dY (vDNN paper, footnote 1)."""

    name: ClassVar[str] = "relu"
    kind: ClassVar[str] = "ACTV"
    in_place: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep Y
        return Work(forward_flop=inputs[0].elements, backward_flop=inputs[0].elements, saved_outputs=(0,))


@dataclass(frozen=True, slots=True)
class FullyConnected(Operator):
    """A matrix product with bias over all elements of X."""

    out_features: int
    bias: bool = field(default=True, init=False)

    name: ClassVar[str] = "fc"
    bare: ClassVar[tuple[str, ...]] = ("out_features",)
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "FC"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT

    def outputs(self, inputs: Shapes) -> Shapes:  # noqa: ARG002 - whatever X
        return (MapShape(self.out_features),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        y = MapShape(self.out_features)
        return product_work(y, inputs[0].elements, filters=self.out_features, bias=self.bias)


@dataclass(frozen=True, slots=True)
class BatchNormalization(Operator):
    """Normalizes each channel over the batch; W is gamma, then beta, one of each per channel.

    Forward saves the mean and the inverse deviation of each channel, in float32. Backward is one kernel, since dX needs
    the same sums over a channel as dW. The sums are needed before the first value, and a channel of a batch is larger
    than a cache: forward reads X twice, backward X and dY.
    Source: Ioffe and Szegedy, Batch Normalization, ICML 2015.
    """

    name: ClassVar[str] = "batch_norm"
    kind: ClassVar[str] = "BN"
    whole_backward: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        """Forward sums x and x x, then scales and shifts; backward sums dy and dy x, and dx is a dy + b x + c."""
        (x,) = inputs
        return Work(
            forward_flop=5 * x.elements,
            backward_flop=7 * x.elements,
            weights=2 * x.channels,
            saved_inputs=(0,),
            statistics=Statistics(2 * x.channels, element_bytes=4, of_batch=True),
            passes=2,
        )


@dataclass(frozen=True, slots=True)
class SoftmaxLoss(Operator):
    """Softmax and cross entropy over the channels; Y holds the probabilities, which is all that backward reads.

    Autograd has two nodes here: the first saves the logarithms of the probabilities, the second the labels, an int64
    for each softmax; backward holds the gradient between them, as large as the logits.
    """

    name: ClassVar[str] = "softmax_loss"
    autocast: ClassVar[Autocast] = Autocast.FLOAT32
    kind: ClassVar[str] = "LOSS"
    is_loss: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """Maximum, difference, exponential, sum and quotient."""
        (x,) = inputs
        work = Work(forward_flop=5 * x.elements, backward_flop=5 * x.elements, saved_outputs=(0,))
        return (
            work if rule is SavingRule.PAPER else replace(work, temporaries=x.elements, labels=x.elements // x.channels)
        )
