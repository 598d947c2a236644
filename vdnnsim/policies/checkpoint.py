"""`checkpoint`: activation checkpointing as PyTorch users have it, `torch.utils.checkpoint.checkpoint_sequential`.

A sequence of modules is cut into as many segments as the option says, each of as many modules as the others; the last
one takes what is left over, and it alone runs as ever, for its backward follows its forward at once. Of every other
segment only its input stays. When backward reaches a segment, its forward runs again, and stops when backward has all
that it reads (`early_stop`, the default without reentrance). Random numbers are drawn again as they were drawn first
(`preserve_rng_state`). Source: documentation of PyTorch 2, torch.utils.checkpoint, and its function
`checkpoint_sequential`; the idea is Chen et al., Training Deep Nets with Sublinear Memory Cost (2016).

What the documentation leaves to the user and what is read here: the modules of a network are its parts between which a
single map passes, an in-place activation with the layer that it follows; the number of segments, where it is not given,
is the square root of the number of modules, after Chen et al. (section 4.3). Maps that several segments read, as in a
network without such parts, cannot be cut by `checkpoint_sequential`; such a network is one segment and nothing runs
again. Everything else is freed as soon as nobody needs it, as autograd does, and what is saved
is what autograd saves (`SavingRule.AUTOGRAD`).
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
    """Recompute all segments but the last.

    Attributes:
        segments: how many; 0 for the square root of the number of modules.
    """

    name: ClassVar[str] = "checkpoint"
    summary: ClassVar[str] = "recomputes segments, the last one aside (PyTorch's checkpoint_sequential)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    segments: int = 0

    def __post_init__(self) -> None:
        """Refuse fewer segments than none."""
        if self.segments < 0:
            message = f"segments: found {self.segments}, expected a number of segments, or 0 for the square root rule"
            raise ValueError(message)

    def misfit(self, workload: Workload, memory_model: MemoryChoice | None) -> str:
        """Say that there are more segments than modules."""
        if self.segments:
            count = len(modules(self.loop(workload)))
            if self.segments > count:
                return (
                    f"segments: found {self.segments}, expected at most {count}, the modules of {workload.graph.name}"
                )
        return super().misfit(workload, memory_model)

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule."""
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
