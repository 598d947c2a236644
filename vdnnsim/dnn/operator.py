"""What every operator states of itself; the rest of `vdnnsim.dnn` asks nothing else of it but its parameters.

Beside maps, backward of some reads what forward kept for it alone: the moments of a normalization, the mask of a
dropout, the sums of a softmax, the gates of an LSTM. These are its statistics.
"""

from typing import ClassVar

from vdnnsim.dnn.shapes import MapShape


class Operator:
    """What an operator is asked; X is its first input, sizes and FLOPs are those of one image or sequence.

    Attributes:
        saves_inputs, saves_output: whether backward reads X, Y.
        whole_backward: whether one kernel computes dX and dW.
    """

    __slots__ = ()

    saves_inputs: ClassVar[bool] = False
    saves_output: ClassVar[bool] = False
    whole_backward: ClassVar[bool] = False

    @property
    def in_place(self) -> bool:
        """Whether Y lies over X; not unless an operator says so."""
        return False

    def output_shape(self, x: MapShape) -> MapShape:
        """Shape of Y; that of X unless an operator says otherwise."""
        return x

    def weights(self, x: MapShape) -> int:  # noqa: ARG002 - for those that have weights
        """Elements of W, bias included."""
        return 0

    def filter_elements(self, x: MapShape) -> int:  # noqa: ARG002 - as above
        """Number of weights that one element of Y is a dot product with; 0 where it is none."""
        return 0

    def statistics_bytes(self, x: MapShape, element_bytes: int) -> int:  # noqa: ARG002 - as above
        """Bytes that forward keeps for backward beside the maps."""
        return 0

    def forward_flop(self, x: MapShape) -> int:
        """FLOPs of forward; one an element of X unless an operator says otherwise."""
        return x.elements

    def backward_flop(self, x: MapShape) -> int:
        """FLOPs of each kernel of backward; those of forward unless an operator says otherwise."""
        return self.forward_flop(x)
