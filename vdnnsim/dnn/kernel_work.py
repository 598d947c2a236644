"""Shapes of convolutions, products and recurrent layers of captured steps, and sectors of others, for their costs."""

from math import prod
from typing import Final

import msgspec


class _Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Plain data, whose keys are all known."""


class Sectors(_Work, frozen=True):
    """Sectors of 32 bytes that threads move where they take elements one at a time.

    Attributes:
        nbytes: of all sectors, as often as blocks of threads touch them; 0 where threads load words, or if not known.
        window_bytes: of those that a kernel touches before it returns to one; 0 where it returns to none.
    """

    nbytes: int = 0
    window_bytes: int = 0


NO_SECTORS: Final = Sectors()


class ConvolutionWork(_Work, frozen=True, tag="convolution", tag_field="kind"):
    """A convolution in one to three dimensions, of whatever phase, in the sizes of its forward.

    Attributes:
        input_size, kernel, stride, padding, dilation: by spatial dimension.
        computes: the gradients that a backward computes, of `input`, `weight`, `bias`; empty in forward.
    """

    batch_size: int
    input_channels: int
    output_channels: int
    input_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False
    bias: bool = False
    channels_last: bool = False
    computes: tuple[str, ...] = ()

    @property
    def output_size(self) -> tuple[int, ...]:
        """Sizes of the output, by spatial dimension."""
        sizes = zip(self.input_size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            return tuple((x - 1) * s - 2 * p + d * (k - 1) + 1 for x, k, s, p, d in sizes)
        return tuple((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d in sizes)

    @property
    def weights(self) -> int:
        """Elements of the filters, bias aside."""
        return self.input_channels * self.output_channels // self.groups * prod(self.kernel)

    @property
    def is_depthwise(self) -> bool:
        """Whether each filter sees one channel."""
        return self.groups == self.input_channels > 1

    @property
    def gradients(self) -> tuple[str, ...]:
        """The gradients of a backward that are products, `input` first."""
        return tuple(each for each in ("input", "weight") if each in self.computes)

    @property
    def flop(self) -> int:
        """FLOPs: each weight at each pixel of the smaller map, for every image and every gradient."""
        places = prod(self.input_size if self.transposed else self.output_size)
        products = len(self.gradients) if self.computes else 1
        return 2 * products * self.batch_size * places * self.weights


class ProductWork(_Work, frozen=True, tag="product", tag_field="kind"):
    """`batch` products of matrices, m x k by k x n."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def flop(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


class RecurrentWork(_Work, frozen=True, tag="recurrent", tag_field="kind"):
    """Layers of recurrent cells over the steps of sequences, forward or backward.

    Attributes:
        steps: of the longest sequence.
        rows: steps of all sequences; fewer than `steps` x batch where they are packed.
        input_size: features of a step of the input of the first layer.
        hidden_size: of a cell.
        gates: products of a cell, as cuDNN has them: 4 of an LSTM, 3 of a GRU, else 1.
        directions: 2 where each layer also runs from the last step to the first.
        projected: features to which a layer projects what it hands on; 0 if it does not.
        is_backward: whether it computes gradients.
        of_weights: whether those of weights are among them.
    """

    steps: int
    rows: int
    input_size: int
    hidden_size: int
    layers: int
    gates: int
    directions: int = 1
    projected: int = 0
    is_backward: bool = False
    of_weights: bool = False

    @property
    def state_size(self) -> int:
        """Features of a step that a direction of a layer hands on."""
        return self.projected or self.hidden_size
