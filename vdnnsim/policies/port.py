"""What a policy is given: the workload, its costs, the memory it may use, and a port through which it may run trials.

A policy is a frozen msgspec Struct: its fields are its options, read from a scenario with unknown ones refused, and
`plan` is a pure function of them and of its `Setting`. The trials of a dynamic policy run wherever the caller plugs
the port in: on the simulator, or on a real GPU.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol

import msgspec

from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.placement import DoesNotFit, MemoryLimits, Placement
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.trace import IterationTrace


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of one trial iteration, and what it took: of a plan that does not fit, the part before it failed.

    Attributes:
        outcome: the iteration; where it is only asked what fits, the placement of the plan instead.
    """

    outcome: IterationTrace | Placement | DoesNotFit
    cost_s: float

    @property
    def fits(self) -> bool:
        """Whether the iteration ran to its end."""
        return not isinstance(self.outcome, DoesNotFit)


class TrialPort(Protocol):
    """Runs one iteration of a plan."""

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Run a plan once and say how it went."""


class ServerTrialPort(Protocol):
    """Runs one iteration of all GPUs of a server."""

    def run_server_trial(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        """Run a plan on each GPU, begun together, and say how each went."""


@dataclass(frozen=True, slots=True)
class Setting:
    """All that a policy may know.

    Attributes:
        cost_model: what the kernels of any workload cost on the machine.
        limits: the memory of one GPU, and its part of that of the host.
        gpus: how many GPUs train together.
        groups: their numbers by the switch on which they hang.
        server_trials: the port for trials of all of them; None for one GPU alone.
    """

    workload: Workload
    cost_model: CostModel
    limits: MemoryLimits
    trials: TrialPort
    gpus: int = 1
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    server_trials: ServerTrialPort | None = None

    @property
    def costs(self) -> CostTable:
        """What the kernels of the workload cost as it stands; of another rule or in parts they cost `costs_of` it."""
        return self.costs_of(self.workload)

    def costs_of(self, workload: Workload) -> CostTable:
        """Return what the kernels of a workload cost."""
        return self.cost_model.table(workload)

    def run_together(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        """Run a trial iteration of all GPUs."""
        if self.server_trials is not None:
            return self.server_trials.run_server_trial(plans)
        return tuple(self.trials.run_trial(plan) for plan in plans)


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One memory-management policy with its options; subclasses add fields for options and implement `plan`.

    Attributes:
        name: the policy's name in scenarios.
        summary: one sentence for `vdnnsim list policies`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @property
    def label(self) -> str:
        """Name and options as results show them: `vdnn_all(m)`, `vdnn_all(m, prefetch_search=fig10_without_pool)`."""
        shown = []
        for field in msgspec.structs.fields(self):
            value = getattr(self, field.name)
            text = str(value.value) if isinstance(value, Enum) else str(value)
            if field.name == "algorithms":
                shown.append(text)
            elif value != field.default:
                shown.append(f"{field.name}={text}")
        return f"{self.name}({', '.join(shown)})" if shown else self.name

    @property
    def batch_multiple(self) -> int:
        """Of what a batch must be a multiple."""
        return 1

    @property
    def of_a_part(self) -> "Policy | None":
        """The policy of each part, where a batch of any size is cut into parts that fit; None elsewhere."""
        return None

    @abstractmethod
    def plan(self, setting: Setting) -> TrainingPlan:
        """Decide one iteration of one GPU."""

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Decide one iteration of every GPU of the server; all do the same unless a policy says otherwise."""
        return (self.plan(setting),) * setting.gpus
