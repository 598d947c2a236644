"""Layers of a captured model: what they are is said by what was captured of them, and not by a formula."""

from dataclasses import dataclass

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic, Operator


@dataclass(frozen=True, kw_only=True)
class CapturedOperator(Operator):
    """The operator that most of the work of a captured layer is in.

    Attributes:
        name: as the framework calls it, `convolution`.
    """

    # Of other operators the class says this, of a captured one what was captured.
    name: str  # type: ignore[misc]
    kind: str  # type: ignore[misc]
    arithmetic: Arithmetic  # type: ignore[misc]
    whole_backward: bool  # type: ignore[misc]
    is_loss: bool  # type: ignore[misc]
    rewrites: bool

    @property
    def in_place(self) -> bool:
        """Whether all that it writes lies over what it reads."""
        return self.rewrites


@dataclass(frozen=True, slots=True)
class CapturedLayer(Layer):
    """A layer of a captured model.

    Attributes:
        phases: those that it has, in order; UPDATE alone for the layer of the optimizer.
        saved: indices of the feature maps that its backward reads, its own inputs and outputs or not: what is computed
            again starts from others.
    """

    phases: tuple[Phase, ...] = ()
    saved: tuple[int, ...] = ()

    @property
    def saved_maps(self) -> tuple[int, ...]:
        """Indices of the feature maps that backward of this layer reads."""
        return self.saved

    @property
    def training_phases(self) -> tuple[Phase, ...]:
        """Forward and backward, where it has them."""
        return tuple(phase for phase in self.phases if phase is not Phase.UPDATE)

    @property
    def backward_phases(self) -> tuple[Phase, ...]:
        """The whole of backward; nothing where it has none."""
        return tuple(phase for phase in self.phases if phase.is_backward)


@dataclass(frozen=True)
class CapturedGraph(LayerGraph):
    """The layers of a captured model.

    Attributes:
        weights: how many weights it has, each once, whichever layers work with them.
    """

    weights: int = 0

    __hash__ = LayerGraph.__hash__

    @property
    def parameters(self) -> int:
        """Number of weights of the whole model."""
        return self.weights
