"""A workload: a network with batch size, element type, optimizer and mode, and its iteration as a step."""

from dataclasses import dataclass, replace
from functools import cached_property

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layer_step import step_of
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.step import Step
from vdnnsim.dnn.variants import saved_by, under_autocast
from vdnnsim.dnn.workload_sizes import Mode, Optimizer, WorkloadSizes
from vdnnsim.units import Precision

__all__ = ["Mode", "Optimizer", "Workload"]


@dataclass(frozen=True)
class Workload(WorkloadSizes):
    """What one GPU does in one iteration."""

    @classmethod
    def in_precision(
        cls,
        graph: LayerGraph,
        batch_size: int,
        precision: Precision,
        optimizer: Optimizer = Optimizer.NONE,
        mode: Mode = Mode.TRAINING,
    ) -> "Workload":
        """Return the workload of a network in a precision; mixed precision puts casts into the network."""
        run = under_autocast(graph, precision.autocast) if precision.autocast else graph
        return cls(run, batch_size, precision.element_type, optimizer, mode)

    @property
    def precision(self) -> Precision:
        """The precision in which it computes."""
        half = self.graph.autocast
        return Precision(f"amp_{half.value}" if half else self.element_type.value)

    def saved_by(self, rule: SavingRule) -> "Workload":
        """Return the workload under a saving rule."""
        return self if rule is self.graph.saving else replace(self, graph=saved_by(self.graph, rule))

    @cached_property
    def step(self) -> Step:
        """One iteration, of a batch in parts that of one part."""
        return step_of(self)

    @property
    def rounds(self) -> int:
        """How often forward and backward of `step` run before the update; captured steps may have micro-batches."""
        return 1

    def flop(self, layer: Layer, phase: Phase) -> int:
        """FLOPs of one phase of a layer by the direct method, for a part of the batch."""
        return sum(each.all_flop for each in self.step.operations_of(layer.index, phase))

    def bytes_moved(self, layer: Layer, phase: Phase) -> int:
        """Compulsory DRAM traffic of one phase of a layer."""
        return sum(each.bytes_moved for each in self.step.operations_of(layer.index, phase))
