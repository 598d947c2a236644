"""Plans for drawn models: those of policies, and drawn ones, by which each storage is offloaded or recomputed."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import ClassVar, Final

from torch import nn

from calibration.apply.live_constraints import as_repeatable, movable_storages, with_user_references
from calibration.apply.loop import Loop
from calibration.apply.reservation import PlannedMemory, Reservation
from calibration.apply.scheduling import schedule_of
from calibration.capture.program import Arguments
from tests.apply.generated.trees import batch_of
from tests.apply.models import loss
from vdnnsim.api.named import chosen_memory_model
from vdnnsim.api.planning import PlanRequest, request_plan
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.memory.choices import preallocated
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import Offload, Prefetch, Run, ScheduleStep, Wait, iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.registry import known_policies, resolve_policy

POLICIES: Final = ("save_on_cpu", "checkpoint")
OPTIMAL: Final = "optimal(time_limit=0.3 s)"
WITH_STATES: Final = "optimal(offload_optimizer=true, time_limit=0.3 s)"
SAMPLES: Final = 4
MANY_SAMPLES: Final = 32768
"""So many that tensors are in PyTorch's large pool, of which a plan within a limit has private ones."""


@dataclass
class Captured:
    """A model that is captured where it is, in training with a plain loop, and of which plans are made."""

    model: nn.Module
    narrow: bool
    samples: int = SAMPLES

    @cached_property
    def asked(self) -> PlanRequest:
        return self._asked("sgd")

    @cached_property
    def _asked_with_states(self) -> PlanRequest:
        return self._asked("momentum")

    def _asked(self, optimizer: str) -> PlanRequest:
        device = next(self.model.parameters()).device
        batch: Arguments = (batch_of(self.samples).to(device),), {}
        return request_plan(
            *(self.model, batch),
            hardware="rtx_4090",
            policy="pytorch",
            memory=None,
            loss=loss,
            precision="amp_bfloat16" if self.narrow else "float32",
            optimizer=optimizer,
            memory_model="ideal",
        )

    def by_policy(self, policy: str, share: float) -> Loop:
        """Return a loop that follows the plan of a policy, in a share of the memory that it takes without a plan.

        Of many samples that is a limit of what PyTorch reserves.
        """
        asked = self._asked_with_states if policy == WITH_STATES else self.asked
        if self.samples == MANY_SAMPLES:
            model = chosen_memory_model("pytorch")
            nbytes = _within(share, replace(asked, memory_model=model))
            asked = replace(asked, memory_model=preallocated(model), limit_bytes=nbytes)
        elif share < 1:
            nbytes = _within(share, asked)
        if share < 1:
            gpu = asked.server.gpu
            gpu = replace(gpu, memory_bytes=gpu.context_bytes + nbytes)
            asked = replace(asked, server=replace(asked.server, gpu=gpu))
        return replace(asked, policy=resolve_policy(policy, known_policies())).planned().loop

    @cached_property
    def _workload(self) -> CapturedWorkload:
        workload, device = CapturedWorkload.of(self.asked.captured), self.asked.device.type
        # On the CPU a lot may ask for more than a planner does, for what a loop refuses to recompute.
        return workload if device == "cpu" else as_repeatable(workload, device, self.asked.tape.aside)

    @cached_property
    def _free(self) -> dict[int, range]:
        return movable_storages(self._workload, self.asked.tape)

    @cached_property
    def _held(self) -> CapturedWorkload:
        return with_user_references(self._workload, self._free)

    @cached_property
    def _costs(self) -> CostTable:
        return ServerCosts(self.asked.server).table(self._held)

    @cached_property
    def _recomputation(self) -> Recomputation:
        return Recomputation(iteration(self._held), self._held, self._costs)

    @cached_property
    def _buffers(self) -> IterationBuffers:
        return IterationBuffers(self._held)

    @property
    def runs(self) -> list[Run]:
        return self._recomputation.runs

    def by_lot(self, draw: Random) -> Loop:
        """Return a loop that follows a drawn plan."""
        return self.by_steps(_drawn_steps(draw, self._recomputation, self._buffers))

    def by_steps(self, steps: Iterable[ScheduleStep]) -> Loop:
        """Return a loop that follows a schedule."""
        kernels = {where: options[0] for where, options in self._costs.kernels.items()}
        plan = lower(list(steps), self._held, kernels, label="by hand", algorithms="p")
        schedule, device = schedule_of(plan, self.asked.tape, self._free), self.asked.device
        # A step that leaves its plan saves on the host what is beyond a limit.
        limit_bytes = 1 if self.samples == MANY_SAMPLES else None
        return Loop(schedule, device, Reservation(device, limit_bytes, PlannedMemory()))


class Lot(Policy, frozen=True, kw_only=True):
    """Offloads and recomputes what is drawn by a seed."""

    name: ClassVar[str] = "lot"
    summary: ClassVar[str] = "offloads and recomputes what is drawn"
    seed: int

    def plan(self, setting: Setting) -> TrainingPlan:
        workload, draw = setting.workload, Random(f"lot {self.seed}")  # noqa: S311  # equal draws each time
        recomputation = Recomputation(iteration(workload), workload, setting.costs)
        steps = [*_drawn_steps(draw, recomputation, IterationBuffers(workload))]
        kernels = choose_kernels(workload, setting.costs, Algorithms.PERFORMANCE_OPTIMAL)
        return lower(steps, workload, kernels, label=self.label, algorithms="p")


def _drawn_steps(draw: Random, recomputation: Recomputation, buffers: IterationBuffers) -> Iterator[ScheduleStep]:
    """Yield an iteration of which drawn shares of what backward reads are recomputed, and of the rest move."""
    share_again, share_moved = (draw.choice((0.0, 0.3, 0.7, 1.0)) for _ in range(2))
    runs = recomputation.order([each for each in recomputation.droppable if draw.random() < share_again])
    touched = [buffers.touched(each) for each in runs]
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for at, (run, (reads, writes)) in enumerate(zip(runs, touched, strict=True)):
        if run.phase is Phase.FORWARD and not run.repeat:
            last.update(dict.fromkeys((*reads, *writes), at))
        else:
            for each in reads:
                first.setdefault(each, at)
    remade = {each for run, (_, writes) in zip(runs, touched, strict=True) if run.repeat for each in writes}
    maps = [(each, buffers.buffers[each]) for each in sorted(last.keys() & first.keys() - remade)]
    leaving = [
        number
        for number, each in maps
        if each.kind is BufferKind.FEATURE_MAP and each.nbytes > 1 and not each.given and draw.random() < share_moved
    ]
    whole = {each: draw.random() < 0.8 for each in leaving}
    ends = {each: draw.randint(last[each], first[each] - 1) for each in leaving}
    begins = {each: draw.randint(ends[each] + 1, first[each]) for each in leaving}

    def extents(each: int) -> list[range | None]:
        nbytes = buffers.nbytes(each)
        return [None] if whole[each] else [range(nbytes // 2), range(nbytes // 2, nbytes)]

    for at, run in enumerate(runs):
        for each in (each for each in leaving if begins[each] == at):
            for extent in extents(each):
                yield Prefetch((each,), run.layer, run.phase, on_demand=begins[each] == first[each], extent=extent)
        yield run
        for each in (each for each in leaving if last[each] == at):
            for extent in extents(each):
                yield Offload((each,), run.layer, run.phase, extent=extent)
        for each in (each for each in leaving if ends[each] == at):
            for extent in extents(each):
                yield Wait((each,), extent=extent)


def _within(share: float, asked: PlanRequest) -> int:
    return int(share * asked.planned().predicted.metrics.allocated_bytes)
