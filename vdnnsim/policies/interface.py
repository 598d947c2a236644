"""The interface of policies: their options and `plan`, and the `Setting` with workload, costs, memory and trials.

A policy is a frozen msgspec Struct: its fields are its options, and `plan` is a pure function of them and of its
`Setting`. Trials of a dynamic policy run on the simulator or on a real GPU.

Plans are made by `make_plan` and `make_plans`, which hide what a policy does not declare to be decided by, so that a
study can share plans between points, and turn any failure of a user's policy into one line that names it.
"""

import traceback
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import ClassVar, Protocol

import msgspec

from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PolicyError, VdnnsimError
from vdnnsim.files.messages import describe, describe_exception
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a trial iteration, and its time; of a plan that does not fit, of the part before it failed."""

    outcome: IterationTrace | Placement | DoesNotFit
    cost_s: float

    @property
    def fits(self) -> bool:
        return not isinstance(self.outcome, DoesNotFit)


class TrialPort(Protocol):
    """Runs one iteration of a plan."""

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Run a plan once."""


class ServerTrialPort(Protocol):
    """Runs one iteration of all GPUs of a server."""

    def run_server_trial(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        """Run a plan on each GPU, begun together."""


class DecidedBy(Enum):
    """What decides a plan besides the options of its policy; each includes those before it.

    The workload, its costs and the number of GPUs; the memory of the machine; and trials on the whole machine.
    """

    COSTS = "costs"
    MEMORY = "memory"
    TRIALS = "trials"


@dataclass(frozen=True, slots=True)
class Setting:
    """The inputs of a policy.

    Attributes:
        known_limits, known_trials: None where they are hidden from the policy, which reads `limits` and `trials`.
        server_trials: for trials of all GPUs; None for one GPU.
        known_copies: times of copies to and from the host; None where they are hidden or unknown.
        known_kept_s: returns how long a plan that keeps all takes in unlimited memory; None where that is unknown.
        placed: places a plan beside other memory that policies do not know; None for `place_plan`.
        deadline: of a search, which then returns the best plan so far.
        steps: of a search that counts its own, at most.
        known: a plan for less memory, with which a search begins.
    """

    workload: Workload
    cost_model: CostModel
    known_limits: MemoryLimits | None
    known_trials: TrialPort | None
    gpus: int = 1
    groups: tuple[tuple[int, ...], ...] = ((0,),)
    server_trials: ServerTrialPort | None = None
    known_copies: HostCopies | None = None
    known_kept_s: Callable[[], float] | None = None
    placed: Callable[[TrainingPlan], Placement | DoesNotFit] | None = None
    progress: Callable[[str], object] | None = None
    deadline: Deadline = NEVER
    steps: float = inf
    known: TrainingPlan | None = None

    @property
    def costs(self) -> CostTable:
        """Costs of the workload; with another saving rule or in parts `costs_of` it."""
        return self.costs_of(self.workload)

    def costs_of(self, workload: Workload) -> CostTable:
        return self.cost_model.table(workload)

    @property
    def limits(self) -> MemoryLimits:
        """The memory of one GPU, and its share of host memory.

        Raises:
            PolicyError: the policy does not declare that memory decides its plans.
        """
        if self.known_limits is None:
            raise _undeclared("limits", DecidedBy.MEMORY)
        return self.known_limits

    @property
    def trials(self) -> TrialPort:
        """The port for trials of one GPU.

        Raises:
            PolicyError: the policy does not declare that trials decide its plans.
        """
        if self.known_trials is None:
            raise _undeclared("trials", DecidedBy.TRIALS)
        return self.known_trials

    @property
    def copies(self) -> HostCopies:
        """Times of copies between the host and one GPU, beside those of the others.

        Raises:
            PolicyError: the policy does not declare that trials decide its plans.
        """
        if self.known_copies is None:
            raise _undeclared("copies", DecidedBy.TRIALS)
        return self.known_copies

    def place(self, plan: TrainingPlan) -> Placement | DoesNotFit:
        return place_plan(plan, self.limits) if self.placed is None else self.placed(plan)

    def run_on_all_gpus(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        if self.server_trials is not None:
            return self.server_trials.run_server_trial(plans)
        return tuple(self.trials.run_trial(plan) for plan in plans)

    def of(self, decided_by: DecidedBy) -> "Setting":
        """Return a setting without what a policy does not declare."""
        if decided_by is DecidedBy.TRIALS:
            return self
        limits = self.known_limits if decided_by is DecidedBy.MEMORY else None
        return replace(
            self,
            known_limits=limits,
            known_trials=None,
            server_trials=None,
            known_copies=None,
            known_kept_s=None,
            placed=None,
            known=None,
        )


def _undeclared(name: str, decided_by: DecidedBy) -> PolicyError:
    return PolicyError(
        f"found a look at setting.{name}, expected of a policy that takes it: decided_by: ClassVar[DecidedBy] = "
        f"DecidedBy.{decided_by.name}"
    )


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One memory-management policy with its options; subclasses add fields for options and implement `plan`.

    Attributes:
        summary: one sentence for `vdnnsim list policies`.
        only_built: why it is undefined for captured models; empty if it is defined.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    only_built: ClassVar[str] = ""

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
    def decided_by(self) -> DecidedBy:
        """What decides its plans; by default everything."""
        return DecidedBy.TRIALS

    @property
    def batch_multiple(self) -> int:
        """A divisor of every batch that it can run."""
        return 1

    @property
    def of_a_part(self) -> "Policy | None":
        """The policy of each part, if it cuts a batch of any size into parts that fit."""
        return None

    def misfit(self, workload: Workload, memory_model: MemoryChoice | None) -> str:  # noqa: ARG002 - for subclasses
        """Return why it cannot plan a workload, if that is known without planning; else an empty text.

        The memory model is None where it is hidden from the policy.
        """
        if self.only_built and isinstance(workload, CapturedWorkload):
            return (
                f"{self.only_built}, which {workload.graph.name} has not, for it was captured; expected another "
                "policy, or a network of `vdnnsim list networks`"
            )
        return ""

    @abstractmethod
    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan one iteration of one GPU."""

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Plan one iteration of every GPU of the server; by default the same for all."""
        return (make_plan(self, setting),) * setting.gpus


def make_plan(policy: Policy, setting: Setting) -> TrainingPlan:
    """Plan one iteration of one GPU.

    Raises:
        PolicyError: the policy refuses, reads what it does not declare, or fails or returns no plan.
    """
    _refuse_misfit(policy, setting)
    with _failures_named(policy, "plan"):
        return _checked_plan(policy.plan(setting.of(policy.decided_by)))


def make_plans(policy: Policy, setting: Setting) -> tuple[TrainingPlan, ...]:
    """Plan one iteration of every GPU of a server.

    Raises:
        PolicyError: as `make_plan`; or the plans are not one for each GPU.
    """
    _refuse_misfit(policy, setting)
    with _failures_named(policy, "plans"):
        made: object = policy.plans(setting.of(policy.decided_by))
        if not isinstance(made, tuple):
            raise PolicyError(f"found {describe(made)}, expected a tuple of TrainingPlans")
        if len(made) != setting.gpus:
            raise PolicyError(f"found {len(made)} plans, expected {setting.gpus}, one for each GPU")
        return tuple(_checked_plan(plan) for plan in made)


def is_shipped(policy: type[Policy]) -> bool:
    return policy.__module__.partition(".")[0] == "vdnnsim"


def is_search(policy: Policy) -> bool:
    """Whether a policy searches, within a `time_limit` of its own."""
    return hasattr(policy, "time_limit")


def _refuse_misfit(policy: Policy, setting: Setting) -> None:
    limits = setting.known_limits
    if why := policy.misfit(setting.workload, None if limits is None else limits.model):
        raise PolicyError(f"{policy.label}: {why}")


def _checked_plan(made: object) -> TrainingPlan:
    if not isinstance(made, TrainingPlan):
        raise PolicyError(f"found {describe(made)}, expected a TrainingPlan")
    return made


@contextmanager
def _failures_named(policy: Policy, member: str) -> Iterator[None]:
    """Prefix exceptions of a user's policy with its label, and add the traceback as a note."""
    try:
        yield
    except Exception as error:
        ours = isinstance(error, VdnnsimError)
        if is_shipped(type(policy)) or (ours and str(error).startswith(f"{policy.label}: ")):
            raise
        failure = PolicyError(f"{policy.label}: {member}: {error if ours else describe_exception(error)}")
        if not ours:
            failure.add_note(traceback.format_exc())
        raise failure from error
