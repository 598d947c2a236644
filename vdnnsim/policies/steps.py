"""What an iteration does, step by step: kernels, some of which run again, and copies of what leaves and comes back."""

from dataclasses import dataclass

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class Run:
    """A kernel; `repeat` and `part` as in `vdnnsim.plan.operations.Compute`."""

    layer: Layer
    phase: Phase
    repeat: int = 0
    part: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """What backward finds again: the map with an index, or the statistics of the layer with that index."""

    index: int
    is_map: bool = True


@dataclass(frozen=True, slots=True)
class Leave:
    """Something begins to be copied to the host after the kernels so far, on behalf of a layer.

    Attributes:
        copy: its number, where there are several of the same.
    """

    what: Saved
    layer: Layer
    phase: Phase = Phase.FORWARD
    copy: int = 0


@dataclass(frozen=True, slots=True)
class Await:
    """The compute stream waits until what leaves or comes has been copied; without a reader to come it is released."""

    what: Saved


@dataclass(frozen=True, slots=True)
class Fetch:
    """A copy begins to come back after the kernels so far, for a layer; the first kernel that reads it waits."""

    what: Saved
    layer: Layer
    phase: Phase
    on_demand: bool
    copy: int = 0


Step = Run | Leave | Fetch | Await


def forward_runs(workload: Workload) -> list[Step]:
    """Return forward of all layers."""
    return [Run(layer, Phase.FORWARD) for layer in workload.graph.layers]


def backward_runs(layer: Layer) -> list[Step]:
    """Return backward of a layer."""
    return [Run(layer, phase) for phase in layer.backward_phases]


def update_runs(workload: Workload) -> list[Step]:
    """Return the update of all weights at the end of an iteration."""
    return [Run(layer, Phase.UPDATE) for layer in workload.updated_layers]
