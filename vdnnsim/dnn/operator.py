"""What an operator is asked: what it makes of its inputs, and its `Work`, by one of two rules of what forward keeps.

Beside maps, backward of some reads what forward kept for it alone: the moments of a normalization, the mask of a
dropout, the sums of a softmax, the gates of an LSTM, the indices of a pooling. These are its statistics.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from vdnnsim.dnn.shapes import Shapes
from vdnnsim.units import ElementType


class SavingRule(Enum):
    """Who says what forward keeps: cuDNN's calls and the vDNN paper, or PyTorch's autograd."""

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
    """What the FLOPs of a kernel are, which decides at what rate a GPU computes them."""

    PRODUCT = "matrix product"
    ELEMENTWISE = "element by element"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What forward keeps for backward beside maps.

    Attributes:
        elements: how many, for each image or for the whole batch.
        element_bytes: of each; None where they are stored as the maps are.
        of_batch: whether they are those of the batch; such exist in inference, too, as training left them.
    """

    elements: int
    element_bytes: int | None = None
    of_batch: bool = False


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows of tables that forward reads, where it does not read all of W.

    Attributes:
        rows, row_elements: of the table that each image looks up in, `by_image` of them.
        shared_rows: of another table, read once whatever the batch.
    """

    rows: int
    row_elements: int
    by_image: int
    shared_rows: int

    def elements(self, batch_size: int) -> int:
        """Return how many elements of W a batch reads, were all that it looks up different."""
        return (min(batch_size * self.by_image, self.rows) + self.shared_rows) * self.row_elements


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of an operator on one image or sequence.

    Attributes:
        forward_flop, backward_flop: FLOPs of forward and of each kernel of backward by the direct method, a multiply
            and an add being two.
        weights: elements of W, bias included.
        biases: how many of them are no factor of a product.
        filter_elements: number of weights that one element of Y is a dot product with; 0 where it is none.
        saved_inputs, saved_outputs: positions of the inputs and outputs that backward reads.
        passes: how often forward reads X, and a whole backward what it reads, because sums must be known first.
        lookup: the part of W that forward reads; None for all of it.
        random: whether it draws random numbers.
        temporaries: elements that backward takes for what it computes on the way.
        labels: numbers of classes that a loss reads, and keeps.
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
    lookup: Lookup | None = None
    random: bool = False
    temporaries: int = 0
    labels: int = 0


class Operator:
    """An operator with its parameters; a subclass states its traits and answers `outputs` and `work`.

    Attributes:
        name: the word for it in tables of kernels, `conv`.
        bare: fields that stand there as their value alone.
        spellings: its words where it has several, each with the fields that it tells.
        kind: the word for layers of it, a value of `LayerKind`.
        arithmetic: of its kernels, an update aside.
        whole_backward: whether one kernel computes dX and dW.
        is_loss: whether it ends a network: its output is what is minimized, and has no gradient.
        reads_indices: whether its input holds numbers of rows, which PyTorch stores as int64.
        passes_gradient: whether the gradient of its output is that of each input as it stands.
        autocast: what mixed precision makes of it.
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

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X; not unless an operator says so."""
        return False

    @property
    def reads_first_step(self) -> bool:
        """Whether it reads the first step of its input alone, which autocast then copies; not unless it says so."""
        return False

    def under(self, rule: SavingRule) -> "Operator":  # noqa: ARG002 - for those that autograd would refuse
        """Return what it is where forward keeps what a rule says; itself unless an operator says otherwise."""
        return self

    def output_type(self, inputs: Sequence[ElementType], half: ElementType) -> ElementType:
        """Return what it writes under autocast to a narrow type, from inputs of these types."""
        match self.autocast:
            case Autocast.HALF:
                return half
            case Autocast.WIDEST:
                return max(inputs, key=lambda each: each.nbytes)
            case _:
                return ElementType.FLOAT32

    def outputs(self, inputs: Shapes) -> Shapes:
        """Return the shapes of what it writes: one like its inputs, which are alike, if an operator says no other."""
        assert len(set(inputs)) == 1, f"{self.name} of {' and '.join(map(str, inputs))}, expected equal shapes"
        return inputs[:1]

    def work(self, inputs: Shapes, rule: SavingRule) -> Work:
        """Return its work on inputs of these shapes, one image each, where forward keeps what a rule says."""
        raise NotImplementedError
