"""`accumulate`: gradient accumulation over micro-batches, which needs no other memory management.

The batch is cut into parts of equal size. Forward and backward run over one part after the other and accumulate weight
gradients, and the weights are updated once, after the last; in PyTorch `loss.backward()` several times before one
`optimizer.step()`, in Caffe `iter_size`. Within a part everything is freed after its last reader. An iteration is that
of the whole batch, so its images per second compare with those of every other policy. Kernels cost what they cost for
the smaller batch.

All parts after the second need the same memory, so the number of parts that fit is found with plans of two of them;
only the result is planned and placed in full. A plan has at most `MOST_PARTS`; more would take minutes to plan.

Assumptions: dW is accumulated by the kernel that computes it, as by cuDNN with beta = 1, in no more time; the next part
of the input is allocated in the place of the last. Batch normalization normalizes over a part, which changes results.
"""

from dataclasses import replace
from typing import ClassVar, Final

from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.schedule import backward, forward, update
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting

MOST_PARTS: Final = 512
_UNLIKE = 2
"""Parts that may differ in memory; all others need what the last of these does."""


class Accumulate(ByRule, frozen=True, kw_only=True):
    """Train a batch in parts.

    Attributes:
        steps: how many; 0 for the fewest with which the network fits, or one image each where it does not fit at all.
    """

    name: ClassVar[str] = "accumulate"
    summary: ClassVar[str] = (
        "runs smaller batches and accumulates their gradients; changes what batch normalization computes"
    )

    steps: int = 0

    def __post_init__(self) -> None:
        if self.steps < 0:
            message = f"steps: found {self.steps}, expected a number of steps, or 0 for the fewest that fit"
            raise ValueError(message)

    @property
    def decided_by(self) -> DecidedBy:
        """Memory decides the fewest parts that fit."""
        return DecidedBy.COSTS if self.steps else DecidedBy.MEMORY

    @property
    def batch_multiple(self) -> int:
        return max(1, self.steps)

    @property
    def of_a_part(self) -> "Accumulate | None":
        """A part that runs as a whole, unless the number of parts is given."""
        return None if self.steps else Accumulate(algorithms=self.algorithms, steps=1)

    def misfit(self, workload: Workload, memory_model: MemoryChoice | None) -> str:
        """Refuse a batch that cannot be cut into so many equal parts."""
        possible = _divisors(workload.batch_size)
        if self.steps and self.steps not in possible:
            divisors = ", ".join(map(str, possible))
            return f"steps: found {self.steps}, expected a divisor of the batch, {MOST_PARTS} at most: {divisors}"
        return super().misfit(workload, memory_model)

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels of one rule; at the deadline with the next number of parts.

        Raises:
            PolicyError: it fits only in more than `MOST_PARTS`.
        """
        batch_size = setting.workload.batch_size
        if self.steps:
            return self._plan_in(self.steps, setting)
        possible = _divisors(batch_size)
        for steps in possible:
            if setting.deadline.is_over:
                return self._plan_in(steps, setting)
            if not self._fits(self._plan_in(steps, setting, planned=_UNLIKE), setting):
                continue
            plan = self._plan_in(steps, setting)
            if steps <= _UNLIKE or self._fits(plan, setting):
                return plan
        if possible[-1] < batch_size and self._fits(self._plan_in(batch_size, setting, planned=_UNLIKE), setting):
            raise PolicyError(
                f"{self.label}: found a batch of {batch_size} that fits only in more than {MOST_PARTS} equal parts, "
                "expected a smaller batch or one with more divisors"
            )
        return self._plan_in(possible[-1], setting)

    @staticmethod
    def _fits(plan: TrainingPlan, setting: Setting) -> bool:
        return isinstance(place_plan(plan, setting.limits), Placement)

    def _plan_in(self, steps: int, setting: Setting, planned: int = MOST_PARTS) -> TrainingPlan:
        """Plan so many parts, or of more of them the first `planned`."""
        workload = replace(setting.workload, parts=steps)
        parts = range(1, min(steps, planned) + 1) if min(steps, planned) > 1 else (0,)
        kernels = forward(workload) + backward(workload)
        schedule = [replace(run, part=part) for part in parts for run in kernels]
        return self.lowered(setting, [*schedule, *update(workload)], workload=workload)


def _divisors(batch_size: int) -> list[int]:
    return [steps for steps in range(1, min(batch_size, MOST_PARTS) + 1) if batch_size % steps == 0]
