"""The interface of operators: output shapes and `Work`, under one of two rules for what forward saves.

Statistics are what forward saves for backward beside maps: moments of a normalization, the mask of a dropout, sums of a
softmax, gates of an LSTM, indices of a pooling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.shapes import Shapes
from vdnnsim.units import ElementType


class SavingRule(Enum):
    """What forward saves for backward: as cuDNN's calls and the vDNN paper have it, or as PyTorch's autograd."""

    PAPER = "paper"
    AUTOGRAD = "autograd"


class Autocast(Enum):
    """In which element type an operator computes under PyTorch's autocast, whose lists these are for CUDA.

    `half`: its inputs and weights are cast to the narrow type, in which it computes and writes. `float32`: its inputs
    are cast to float32. `widest`: as the widest of its inputs. `weights`: as its weights, which are float32.
    """

    HALF = "half"
    FLOAT32 = "float32"
    WIDEST = "widest"
    WEIGHTS = "weights"


class Arithmetic(Enum):
    """Kinds of FLOPs, which a GPU computes at different rates."""

    PRODUCT = "matrix product"
    ELEMENTWISE = "element by element"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What forward saves beside maps.

    Attributes:
        elements: for each image or for the whole batch.
        element_bytes: None if they have the type of the maps.
        of_batch: whether they are of the whole batch; inference reads those that training left.
    """

    elements: int
    element_bytes: int | None = None
    of_batch: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of tables that forward reads, where it does not read all of W.

    Attributes:
        rows, row_elements: of the table in which each image looks up `by_image` rows.
        shared_rows: of another table, read once whatever the batch.
    """

    rows: int
    row_elements: int
    by_image: int
    shared_rows: int

    def elements(self, batch_size: int) -> int:
        """Return how many elements of W a batch reads if all rows that it looks up are different."""
        return (min(batch_size * self.by_image, self.rows) + self.shared_rows) * self.row_elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of an operator on one image or sequence.

    Attributes:
        forward_flop, backward_flop: FLOPs of forward and of each kernel of backward by the direct method, a multiply
            and an add being two.
        weights: elements of W, bias included.
        biases: how many of them are biases.
        filter_elements: number of weights that one element of Y is a dot product with; 0 where it is none.
        saved_inputs, saved_outputs: positions of the inputs and outputs that backward reads.
        passes: how often forward reads X, and a whole backward its operands, because sums are needed first.
        copies: how often training copies X, which backward reads, before Y overwrites it.
        lookup: the part of W that forward reads; None for all of it.
        temporaries: elements of intermediate results of backward.
        labels: class indices that a loss reads and saves.
    """

    forward_flop: int
    backward_flop: int
    weights: int = 0
    biases: int = 0
    filter_elements: int = 0
    saved_inputs: tuple[int, ...] = ()
    saved_outputs: tuple[int, ...] = ()
    statistics: Statistics | None = None
    passes: int = 1
    copies: int = 0
    lookup: Lookup | None = None
    random: bool = False
    temporaries: int = 0
    labels: int = 0


class Operator:
    """An operator with its parameters; a subclass sets its traits and implements `outputs` and `work`.

    Attributes:
        name: in tables of kernels, `conv`.
        bare: fields that are written there without their name.
        spellings: its names where it has several, each with the fields that it implies.
        kind: of its layers, a value of `LayerKind`.
        arithmetic: of its kernels, an update aside.
        whole_backward: whether one kernel computes dX and dW.
        is_loss: whether it ends a network: its output is what is minimized, and has no gradient.
        reads_indices: whether its input holds row indices, which PyTorch stores as int64.
        passes_gradient: whether the gradient of each input is that of its output.
        autocast: what mixed precision makes of it.
        in_place: whether Y overwrites X.
    """

    __slots__ = ()

    name: ClassVar[str]
    bare: ClassVar[tuple[str, ...]] = ()
    spellings: ClassVar[Mapping[str, Mapping[str, bool]]] = {}
    kind: ClassVar[str]
    arithmetic: ClassVar[Arithmetic] = Arithmetic.ELEMENTWISE
    whole_backward: ClassVar[bool] = False
    is_loss: ClassVar[bool] = False
    reads_indices: ClassVar[bool] = False
    passes_gradient: ClassVar[bool] = False
    autocast: ClassVar[Autocast] = Autocast.WIDEST
    in_place: ClassVar[bool] = False

    def under(self, rule: SavingRule) -> "Operator":  # noqa: ARG002 - for subclasses
        return self

    def output_type(self, inputs: Sequence[ElementType], half: ElementType) -> ElementType:
        """Return the output type under autocast to `half`, for inputs of these types."""
        match self.autocast:
            case Autocast.HALF:
                return half
            case Autocast.WIDEST:
                return max(inputs, key=lambda each: each.nbytes)
            case _:
                return ElementType.FLOAT32

    def outputs(self, inputs: Shapes) -> Shapes:
        """Return the shapes of its outputs; by default one, equal to its inputs."""
        assert len(set(inputs)) == 1, f"{self.name} of {' and '.join(map(str, inputs))}, expected equal shapes"
        return inputs[:1]

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """Return its work on one image, for inputs of these shapes, under a saving rule."""
        raise NotImplementedError
