"""`optimal`: the fastest schedule that fits, found by search, with a bound on how much faster any could be.

What leaves and when it comes back, what is computed again, and by which algorithm each kernel runs are decided together
(`vdnnsim.planning`). The plan carries a certificate: no schedule of the same order is faster than its bound.
"""

from typing import ClassVar, Final

from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError, PolicyError
from vdnnsim.planning.offload import WHOLE
from vdnnsim.planning.planner import Planner
from vdnnsim.plans.buffers import gradients_of_update, states_of_update
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.port import Policy, Setting
from vdnnsim.units import Dimension, parse_quantity

AUTO: Final = "auto"
WHOLE_BUFFERS: Final = "whole"


class Optimal(Policy, frozen=True, kw_only=True):
    """Search for the fastest schedule.

    Attributes:
        recompute: whether parts of forward may run again.
        chunk: the most that a copy moves, as `64 MiB`; `auto` cuts where memory is short, which needs a memory model
            that gives back parts of buffers and is `whole` under others; `whole` moves whole buffers.
        offload_optimizer: whether states of the optimizer may be on the host between iterations, and weight gradients
            between backward and update, in pinned memory; as much of them as serves best.
        time_limit: after which the search ends with the best that it has found.
    """

    name: ClassVar[str] = "optimal"
    summary: ClassVar[str] = "the fastest schedule that fits, found by search, with a bound that certifies it"

    recompute: bool = True
    chunk: str = AUTO
    offload_optimizer: bool = False
    time_limit: str = "20 s"

    def __post_init__(self) -> None:
        """Check the size of a chunk and the limit.

        Raises:
            ValueError: one is no quantity, or not above 0; msgspec makes that the refusal of the option.
        """
        if self.chunk not in (AUTO, WHOLE_BUFFERS):
            _positive("chunk", self.chunk, Dimension.BYTES, f", {AUTO} or {WHOLE_BUFFERS}")
        _positive("time_limit", self.time_limit, Dimension.SECONDS, "")

    def plan(self, setting: Setting) -> TrainingPlan:
        """Search for what is fastest in the memory that there is.

        Raises:
            PolicyError: states of the optimizer are to be on the host, and there are none.
        """
        if self.offload_optimizer and not states_of_update(setting.workload.step):
            raise PolicyError(
                f"{self.label}: offload_optimizer: found a workload whose update keeps nothing between iterations, "
                "expected an optimizer with states, as momentum or adam, or offload_optimizer: false"
            )
        sizes = {AUTO: None, WHOLE_BUFFERS: WHOLE}
        return Planner(
            workload=setting.workload,
            costs=setting.costs,
            limits=setting.limits,
            copies=setting.copies,
            place=setting.place,
            replay=lambda plan: setting.trials.run_trial(plan).cost_s,
            chunk_bytes=sizes[self.chunk] if self.chunk in sizes else int(parse_quantity(self.chunk, Dimension.BYTES)),
            recompute=self.recompute and setting.workload.is_training,
            movable=_movable(setting.workload) if self.offload_optimizer else frozenset(),
            time_limit_s=parse_quantity(self.time_limit, Dimension.SECONDS),
            label=self.label,
            tell=setting.tell,
        ).plan()


def _movable(workload: Workload) -> frozenset[int]:
    """Return what may be on the host; gradients to which several micro-batches add stay."""
    gradients = gradients_of_update(workload.step) if workload.rounds == 1 else frozenset()
    return states_of_update(workload.step) | gradients


def _positive(name: str, text: str, dimension: Dimension, others: str) -> None:
    try:
        if parse_quantity(text, dimension) > 0:
            return
        raise ValueError(f"{name}: found {text!r}, expected more than 0{others}")
    except InputError as failure:
        raise ValueError(f"{name}: {failure}{others}") from None
