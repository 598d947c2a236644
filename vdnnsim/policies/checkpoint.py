"""`checkpoint`: activation checkpointing as PyTorch users have it, `torch.utils.checkpoint.checkpoint_sequential`.

A sequence of modules is cut into segments of equally many modules; the last one has the rest and is not checkpointed.
Every other segment keeps only its input. When backward reaches a segment, its forward is recomputed, until backward has
all that it reads (`early_stop`, the default without reentrance), with the same random numbers (`preserve_rng_state`).
Source: documentation of PyTorch 2, torch.utils.checkpoint, `checkpoint_sequential`; the idea is Chen et al., Training
Deep Nets with Sublinear Memory Cost (2016).

The modules of a network are here its parts between which a single map passes, an in-place activation with the layer
before it; the default number of segments is the square root of the number of modules (Chen et al., section 4.3). A
network without such parts is one segment, without recomputation. Everything else is freed as by autograd, and what is
saved is what autograd saves (`SavingRule.AUTOGRAD`).
"""

from math import isqrt
from typing import ClassVar

from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.iterations.segments import Segment, joined, modules, segmented_steps
from vdnnsim.policies.pytorch import PyTorchLoop


class Checkpoint(PyTorchLoop, frozen=True, kw_only=True):
    """Recompute all segments but the last; 0 segments are the square root of the number of modules."""

    name: ClassVar[str] = "checkpoint"
    summary: ClassVar[str] = "recomputes segments, the last one aside (PyTorch's checkpoint_sequential)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    segments: int = 0

    def __post_init__(self) -> None:
        if self.segments < 0:
            message = f"segments: found {self.segments}, expected a number of segments, or 0 for the square root rule"
            raise ValueError(message)

    def misfit(self, workload: Workload, memory_model: MemoryChoice | None) -> str:
        """Refuse more segments than modules."""
        if self.segments:
            count = len(modules(self.loop(workload)))
            if self.segments > count:
                return (
                    f"segments: found {self.segments}, expected at most {count}, the modules of {workload.graph.name}"
                )
        return super().misfit(workload, memory_model)

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = self.loop(setting.workload)
        parts = modules(workload)
        steps = segmented_steps(workload, equal_segments(parts, self.segments or isqrt(len(parts))))
        return self.lowered(setting, steps, workload=workload)


def equal_segments(parts: list[range], count: int) -> list[Segment]:
    """Return segments of equally many modules, all but the last recomputed; it takes the modules left over."""
    size = len(parts) // count
    starts = range(0, size * (count - 1), size)
    recomputed = [Segment(joined(parts[start : start + size]), recomputed=True) for start in starts]
    return [*recomputed, Segment(joined(parts[size * (count - 1) :]), recomputed=False)]
