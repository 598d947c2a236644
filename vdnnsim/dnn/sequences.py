"""Operators of sequences, whose maps have steps.

Known limitation: the statistics of an LSTM are what its backward cannot do without. cuDNN does not say how large its
reserve is (cudnnGetRNNTempSpaceSizes tells it at run time), and it may be larger.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.shapes import MapShape

_FLOAT32_BYTES: Final = 4
"""Of each moment and sum, whatever the element type."""


@dataclass(frozen=True, slots=True)
class Embedding(Operator):
    """Looks up a vector for each token; adds one for its position if there is a table of `positions`.

    X holds the tokens' numbers, one channel; W is the table of the vocabulary, then that of the positions. Backward
    writes the whole of dW, which is dense as PyTorch has it unless told otherwise.
    """

    vocabulary: int
    features: int
    positions: int = 0

    saves_inputs: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """A vector for each step."""
        return MapShape(self.features, steps=x.steps)

    def weights(self, x: MapShape) -> int:  # noqa: ARG002 - a table is as long as it is
        """Both tables."""
        return (self.vocabulary + self.positions) * self.features

    def forward_flop(self, x: MapShape) -> int:
        """Add the position."""
        return self.features * x.steps if self.positions else 0

    def backward_flop(self, x: MapShape) -> int:
        """Add dY to the row of each token."""
        return self.features * x.steps

    def rows(self, x: MapShape, batch_size: int) -> int:
        """Rows of both tables that a batch looks up, were all its tokens different."""
        return min(batch_size * x.steps, self.vocabulary) + min(x.steps, self.positions)


@dataclass(frozen=True, slots=True)
class LayerNormalization(Operator):
    """Normalizes the features of each step; W is gamma and beta, or gamma alone if not `centered` (RMSNorm).

    Forward keeps the mean and the inverse deviation of each step, or the latter alone; backward is one kernel, as
    aten::native_layer_norm_backward. Sources: Ba et al., Layer Normalization, arXiv:1607.06450, 2016; Zhang and
    Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019.
    """

    centered: bool = True

    saves_inputs: ClassVar[bool] = True
    whole_backward: ClassVar[bool] = True

    def weights(self, x: MapShape) -> int:
        """Gamma and beta."""
        return (1 + self.centered) * x.channels

    def statistics_bytes(self, x: MapShape, element_bytes: int) -> int:  # noqa: ARG002 - float32 always
        """Bytes of the moments of each step."""
        return (1 + self.centered) * _FLOAT32_BYTES * x.steps

    def forward_flop(self, x: MapShape) -> int:
        """Sum x (if centered) and x x, then scale and shift: as a batch normalization."""
        return (5 if self.centered else 4) * x.elements

    def backward_flop(self, x: MapShape) -> int:
        """Sum dy and dy x over the features and over the steps, then dx: as a batch normalization, and sums twice."""
        return (10 if self.centered else 8) * x.elements


class Smoothness(Enum):
    """The smooth activations, by the names that PyTorch has for them."""

    GELU = "gelu"
    SILU = "silu"


@dataclass(frozen=True, slots=True)
class SmoothActivation(Operator):
    """GELU or SiLU, into a map of its own: backward reads X, which Y does not tell (aten::gelu_backward)."""

    function: Smoothness

    saves_inputs: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class ElementwiseProduct(Operator):
    """Y = A B, element by element, as gated layers have it; backward reads both."""

    saves_inputs: ClassVar[bool] = True

    def backward_flop(self, x: MapShape) -> int:
        """Two: dA = dY B, dB = dY A."""
        return 2 * x.elements


@dataclass(frozen=True, slots=True)
class Linear(Operator):
    """A matrix product over all elements of each step, with the same W for all of them."""

    out_features: int
    bias: bool = True

    saves_inputs: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """Features for each step."""
        return MapShape(self.out_features, steps=x.steps)

    def weights(self, x: MapShape) -> int:
        """A row and a bias for each feature."""
        return self.out_features * (self.filter_elements(x) + self.bias)

    def filter_elements(self, x: MapShape) -> int:
        """Elements of a step."""
        return x.elements // x.steps

    def forward_flop(self, x: MapShape) -> int:
        """A multiply and an add for each weight and step."""
        return 2 * self.out_features * x.elements


@dataclass(frozen=True, slots=True)
class Attention(Operator):
    """Fused attention over the steps: X holds Q, then K, then V, head by head; Y the heads' outputs.

    Forward keeps the logarithm of the sum of exponentials of each row of the softmax; backward reads Q, K, V, Y and
    these, and computes the scores again (Dao, FlashAttention-2, arXiv:2307.08691, 2023). A step attends to itself and
    to those before it. Scores are never written, so there is nothing that grows with the square of the steps. FLOPs
    are those of the products, as FlashAttention counts them. Rotating Q and K, where a network does, is left out.

    Attributes:
        heads: of Q.
        key_value_heads: of K and V; each serves as many heads of Q as there are more of those.
    """

    heads: int
    key_value_heads: int

    saves_inputs: ClassVar[bool] = True
    saves_output: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """As wide as Q."""
        return MapShape(self.heads * self._width(x), steps=x.steps)

    def statistics_bytes(self, x: MapShape, element_bytes: int) -> int:  # noqa: ARG002 - float32 always
        """Bytes of a logarithm for each head and step."""
        return _FLOAT32_BYTES * self.heads * x.steps

    def forward_flop(self, x: MapShape) -> int:
        """Two products for each pair of steps: Q K and P V."""
        return 2 * self._product_flop(x)

    def backward_flop(self, x: MapShape) -> int:
        """Five: Q K again, dV, dP, dQ, dK."""
        return 5 * self._product_flop(x)

    def _width(self, x: MapShape) -> int:
        return x.channels // (self.heads + 2 * self.key_value_heads)

    def _product_flop(self, x: MapShape) -> int:
        pairs = x.steps * (x.steps + 1) // 2
        return 2 * self.heads * pairs * self._width(x)


@dataclass(frozen=True, slots=True)
class Lstm(Operator):
    """One layer of long short-term memory over all steps, as cuDNN fuses it; Y holds the output of each step.

    W is four gates' products with X and with the last output, and two biases for each (cudnnRNNMode_t CUDNN_LSTM).
    Backward reads X, Y, the four gates and the cell of each step, which stand in the reserve. It is one kernel here:
    in cuDNN dX comes first, for it leaves in the reserve what dW reads.
    Source: Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997.
    """

    cells: int

    saves_inputs: ClassVar[bool] = True
    saves_output: ClassVar[bool] = True
    whole_backward: ClassVar[bool] = True

    def output_shape(self, x: MapShape) -> MapShape:
        """The cells' output at each step."""
        return MapShape(self.cells, steps=x.steps)

    def weights(self, x: MapShape) -> int:
        """Four gates for each cell."""
        return 4 * self.cells * (self.filter_elements(x) + 2)

    def filter_elements(self, x: MapShape) -> int:
        """Of one gate: the elements of a step of X and the last output."""
        return x.elements // x.steps + self.cells

    def statistics_bytes(self, x: MapShape, element_bytes: int) -> int:
        """Bytes of the reserve: four gates and the cell of each step."""
        return 5 * self.cells * x.steps * element_bytes

    def forward_flop(self, x: MapShape) -> int:
        """The gates' products at each step; the few operations on each cell are left out."""
        return 8 * self.cells * self.filter_elements(x) * x.steps

    def backward_flop(self, x: MapShape) -> int:
        """The products for dX and those for dW."""
        return 2 * self.forward_flop(x)
