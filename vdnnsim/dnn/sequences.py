"""Operators of sequences, whose maps have steps.

Known limitation: cuDNN's reserve of an LSTM has 256 B and paddings beside what backward needs, which is all that counts
here (`calibration.capture.cuda.recurrent` has the rule).
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final

from vdnnsim.dnn.convolutional import product_work
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.dnn.operator import Arithmetic, Autocast, Lookup, Operator, SavingRule, Statistics, Work
from vdnnsim.dnn.shapes import MapShape, Shapes

_FLOAT32_BYTES: Final = 4
"""Of each moment and sum, whatever the element type."""


@dataclass(frozen=True, slots=True)
class Embedding(Operator):
    """Looks up a vector for each token; adds one for its position if there is a table of `positions`.

    X holds the tokens' numbers, one channel; W is the table of the vocabulary, then that of the positions. Backward
    writes the whole of dW, which is dense, as by default in PyTorch.
    """

    vocabulary: int
    features: int
    positions: int = 0

    name: ClassVar[str] = "embedding"
    autocast: ClassVar[Autocast] = Autocast.WEIGHTS
    kind: ClassVar[str] = "EMBEDDING"
    reads_indices: ClassVar[bool] = True

    def outputs(self, inputs: Shapes) -> Shapes:
        return (MapShape(self.features, steps=inputs[0].steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """Forward adds the position, backward dY to the row of each token; autograd keeps the positions as int64."""
        steps = inputs[0].steps
        numbered = rule is SavingRule.AUTOGRAD and self.positions > 0
        return Work(
            forward_flop=self.features * steps if self.positions else 0,
            backward_flop=self.features * steps,
            weights=(self.vocabulary + self.positions) * self.features,
            saved_inputs=(0,),
            lookup=Lookup(self.vocabulary, self.features, steps, min(steps, self.positions)),
            statistics=Statistics(steps, element_bytes=8, of_batch=True) if numbered else None,
        )


@dataclass(frozen=True, slots=True)
class LayerNormalization(Operator):
    """Normalizes the features of each step; W is gamma and beta, or gamma alone if not `centered` (RMSNorm).

    Forward keeps the mean and the inverse deviation of each step, or the latter alone; backward is one kernel, as
    aten::native_layer_norm_backward. Sources: Ba et al., Layer Normalization, arXiv:1607.06450, 2016; Zhang and
    Sennrich, Root Mean Square Layer Normalization, NeurIPS 2019.
    """

    centered: bool = True

    name: ClassVar[str] = "layer_norm"
    autocast: ClassVar[Autocast] = Autocast.FLOAT32
    kind: ClassVar[str] = "LN"
    whole_backward: ClassVar[bool] = True

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        """Forward sums x (if centered) and x x, then scales and shifts: as a batch normalization.

        Backward sums dy and dy x over the features and over the steps, then dx: as a batch normalization, sums twice.
        """
        (x,) = inputs
        moments = 1 + self.centered
        return Work(
            forward_flop=(5 if self.centered else 4) * x.elements,
            backward_flop=(10 if self.centered else 8) * x.elements,
            weights=moments * x.channels,
            saved_inputs=(0,),
            statistics=Statistics(moments * x.steps, _FLOAT32_BYTES),
        )


class Smoothness(Enum):
    """The smooth activations, by the names that PyTorch has for them."""

    GELU = "gelu"
    SILU = "silu"


@dataclass(frozen=True, slots=True)
class SmoothActivation(Operator):
    """GELU or SiLU, into a new map: backward reads X (aten::gelu_backward)."""

    function: Smoothness

    name: ClassVar[str] = "smooth"
    kind: ClassVar[str] = "ACTV"

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        return Work(forward_flop=inputs[0].elements, backward_flop=inputs[0].elements, saved_inputs=(0,))


@dataclass(frozen=True, slots=True)
class Linear(Operator):
    """A matrix product over all elements of each step, with the same W for all of them.

    Attributes:
        first_step: whether it is of the first step alone, a view of X, all of which is kept and has a gradient.
    """

    out_features: int
    bias: bool = True
    first_step: bool = False

    name: ClassVar[str] = "linear"
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "FC"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT

    def outputs(self, inputs: Shapes) -> Shapes:
        return (MapShape(self.out_features, steps=1 if self.first_step else inputs[0].steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep X
        """A row and a bias for each feature; the elements of a step are what each is a product with."""
        filter_elements = inputs[0].elements // inputs[0].steps
        (y,) = self.outputs(inputs)
        return product_work(y, filter_elements, filters=self.out_features, bias=self.bias)


@dataclass(frozen=True, slots=True)
class Attention(Operator):
    """Fused attention over the steps: X holds Q, then K, then V, head by head; Y the heads' outputs.

    Forward keeps the logarithm of the sum of exponentials of each row of the softmax; backward reads Q, K, V, Y and
    these, and recomputes the scores (Dao, FlashAttention-2, arXiv:2307.08691, 2023). A step attends to itself and
    to those before it, or, if `bidirectional`, to all. Scores are never written, so there is nothing that grows with
    the square of the steps. FLOPs are those of the products, as FlashAttention counts them. Rotating Q and K, where a
    network does, is left out.

    Attributes:
        heads: of Q.
        key_value_heads: of K and V; each serves as many heads of Q as there are more of those.
        bidirectional: whether a step attends to those behind it, too.
    """

    heads: int
    key_value_heads: int
    bidirectional: bool = False

    name: ClassVar[str] = "attention"
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "ATTENTION"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT

    def outputs(self, inputs: Shapes) -> Shapes:
        return (MapShape(self.heads * self._width(inputs[0]), steps=inputs[0].steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:  # noqa: ARG002 - both keep Q, K, V and Y
        """Two products for each pair of steps, Q K and P V; in backward five: Q K again, dV, dP, dQ, dK."""
        (x,) = inputs
        parts = self.heads + 2 * self.key_value_heads
        assert x.channels % parts == 0, f"{x.channels} features cannot be shared among {parts} heads"
        pairs = x.steps**2 if self.bidirectional else x.steps * (x.steps + 1) // 2
        product_flop = 2 * self.heads * pairs * self._width(x)
        return Work(
            forward_flop=2 * product_flop,
            backward_flop=5 * product_flop,
            saved_inputs=(0,),
            saved_outputs=(0,),
            statistics=Statistics(self.heads * x.steps, _FLOAT32_BYTES),
        )

    def _width(self, x: MapShape) -> int:
        return x.channels // (self.heads + 2 * self.key_value_heads)


@dataclass(frozen=True, slots=True)
class Lstm(Operator):
    """One layer of long short-term memory over all steps, as cuDNN fuses it; Y holds the output of each step.

    W is four gates' products with X and with the last output, and two biases for each (cudnnRNNMode_t CUDNN_LSTM).
    Backward reads X, Y, the four gates and the cell of each step, which stand in the reserve. It is one kernel here:
    in cuDNN dX comes first, for it leaves in the reserve what dW reads.
    Source: Hochreiter and Schmidhuber, Long Short-Term Memory, Neural Computation 9(8), 1997.
    """

    cells: int

    name: ClassVar[str] = "lstm"
    autocast: ClassVar[Autocast] = Autocast.HALF
    kind: ClassVar[str] = "RNN"
    arithmetic: ClassVar[Arithmetic] = Arithmetic.PRODUCT
    whole_backward: ClassVar[bool] = True

    def outputs(self, inputs: Shapes) -> Shapes:
        return (MapShape(self.cells, steps=inputs[0].steps),)

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """The gates' products at each step, with X and the last output; backward those for dX and those for dW.

        The few operations on each cell are left out. The reserve has four gates and the cell of each step; autograd
        keeps the output and the cell before the first step, too, which the framework fills with zeros.
        """
        (x,) = inputs
        filter_elements = x.elements // x.steps + self.cells
        flop = 8 * self.cells * filter_elements * x.steps
        return Work(
            forward_flop=flop,
            backward_flop=2 * flop,
            weights=4 * self.cells * (filter_elements + 2),
            filter_elements=filter_elements,
            saved_inputs=(0,),
            saved_outputs=(0,),
            statistics=Statistics(5 * self.cells * x.steps + 2 * self.cells * (rule is SavingRule.AUTOGRAD)),
        )

    def recurrent_work(self, x: MapShape, batch_size: int, *, is_backward: bool) -> RecurrentWork:
        return RecurrentWork(
            steps=x.steps,
            rows=batch_size * x.steps,
            input_size=x.elements // x.steps,
            hidden_size=self.cells,
            layers=1,
            gates=4,
            is_backward=is_backward,
            of_weights=is_backward,
        )
