"""The simulator: plans for a workload on a machine made, checked, placed, replayed and measured, on one GPU or more."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import inf
from typing import TypeVar

from vdnnsim.analysis.metrics import RunMetrics, measure, performance_ratios
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.ranks import has_host_copies
from vdnnsim.cost.table import CostModel, CostTable
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.captured_workload import CapturedWorkload, ranks_of
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution, check_execution
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.errors import PlanError, PolicyError
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory, is_of_plain_loop, is_of_pytorch
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.plans.buckets import bucket_bytes
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients, exchanged, until_one_overflows
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Aggregation
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan, place_unlimited
from vdnnsim.plans.repetition import cublas_bytes, with_cublas_workspaces
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy, Setting, Trial, is_shipped, make_plans
from vdnnsim.policies.pytorch import PyTorch, PyTorchLoop, with_cached_casts

Made = TypeVar("Made")
_KEEPING = (Base(), PyTorch())


@dataclass(frozen=True, slots=True)
class Simulator:
    """A workload on a machine, which runs policies and their trials.

    Attributes:
        limits: the memory of one GPU, and its equal share of the host's.
        gpus: how many GPUs train together, the first of the machine; of a captured rank as many as there are ranks, or
            one, which stands for all. Of a pipeline one for each of its ranks, whose data it stands for.
        gradients: how they add up gradients; None if they do not.
        progress, deadline, steps: as of a `Setting`.
        as_run: changes plans to what is run, if that differs.
        kept_s: as `known_kept_s` of a `Setting`, where it was asked for before.
    """

    workload: Workload
    server: Server
    cost_model: CostModel
    limits: MemoryLimits
    pinned: PinnedMemory
    gpus: int = 1
    gradients: Aggregation | None = None
    execution: Execution = Execution.EAGER
    progress: Callable[[str], object] | None = None
    as_run: Callable[[TrainingPlan], TrainingPlan] | None = None
    deadline: Deadline = NEVER
    steps: float = inf
    known: TrainingPlan | None = None
    kept_s: Callable[[], float] | None = None

    @classmethod
    def of(
        cls,
        workload: Workload,
        server: Server,
        model: MemoryChoice,
        pinned: PinnedMemory,
        *,
        gpus: int = 1,
        gradients: Aggregation | None = None,
        execution: Execution = Execution.EAGER,
        cost_model: CostModel | None = None,
    ) -> "Simulator":
        """Return the simulator of a workload on a machine, with its own cost model if none is given."""
        limits = MemoryLimits.of_server(server, model, max(gpus, _on_a_host(workload, server)))
        return cls(workload, server, cost_model or ServerCosts(server), limits, pinned, gpus, gradients, execution)

    @property
    def costs(self) -> CostTable:
        """Costs of the kernels of the whole workload, before a policy changes what is saved or cuts the batch."""
        return self.cost_model.table(self.workload)

    def setting(self) -> Setting:
        """Return the setting of policies, with limits less buckets of gradients and workspaces of cuBLAS."""
        limits, taken_bytes = self.limits, 0
        if self.gradients is Aggregation.DDP:
            taken_bytes += bucket_bytes(self.workload, limits.granule_bytes)
        if is_of_pytorch(self.limits.model) and isinstance(self.workload, CapturedWorkload):
            taken_bytes += cublas_bytes(self.workload, limits.granule_bytes)
        if taken_bytes:
            limits = replace(limits, device_bytes=max(0, limits.device_bytes - taken_bytes))
        return Setting(
            workload=self.workload,
            cost_model=self.cost_model,
            known_limits=limits,
            known_trials=self,
            gpus=self.gpus,
            groups=self._groups(),
            server_trials=self if self.gpus > 1 else None,
            known_copies=HostCopies(self.server, max(self.gpus, _on_a_host(self.workload, self.server))),
            known_kept_s=self.kept_s or cache(lambda: min(self._unlimited(each).iteration_s for each in _KEEPING)),
            placed=lambda plan: self.place(self.completed((plan,) * self.gpus)[0]),
            progress=self.progress,
            deadline=self.deadline,
            steps=self.steps,
            known=self.known,
        )

    def run(self, policy: Policy, oracle: RunMetrics | None) -> tuple[PolicyResult, ...]:
        """Plan and replay one policy, and return its result on each GPU.

        If the plan of one GPU does not fit, all are replayed in unlimited memory.

        Raises:
            PolicyError: the policy plans for another number of GPUs, needs lifetimes that a trace lacks, or does what
                the way of execution cannot run.
            PlanError: a plan of a shipped policy breaks the contract, or the plans contradict each other.
        """
        return self.outcome(self.planned(policy), oracle)

    def planned(self, policy: Policy) -> "Planned":
        """Plan one policy, and place its plans."""
        return self.placed(self.made(policy))

    def placed(self, plans: tuple[TrainingPlan, ...]) -> "Planned":
        """Place the plans of all GPUs."""
        placements = once(self.place, plans)
        found = [each for each in placements if isinstance(each, Placement)]
        return Planned(plans, placements, found if len(found) == len(plans) else once(self.place_unlimited, plans))

    def outcome(self, planned: "Planned", oracle: RunMetrics | None) -> tuple[PolicyResult, ...]:
        """Replay plans, and return the result on each GPU; without an oracle they are their own."""
        server_trace = self.replay(planned.plans, planned.replayed)
        rows = []
        for gpu, (plan, placement, trace) in enumerate(
            zip(planned.plans, planned.placements, server_trace.gpus, strict=True)
        ):
            metrics = measure(trace, self.workload.batch_size, self.pipeline_s(server_trace))
            ratio, feature_ratio = performance_ratios(oracle or metrics, metrics)
            rows.append(
                PolicyResult(
                    policy=plan.policy,
                    algorithms=plan.algorithms,
                    gpu=gpu,
                    trace=trace,
                    refusal=placement if isinstance(placement, DoesNotFit) else next(iter(planned.refusals), None),
                    metrics=metrics,
                    performance_ratio=ratio,
                    feature_performance_ratio=feature_ratio,
                    server_trace=server_trace if self.gpus > 1 else None,
                )
            )
        return tuple(rows)

    def oracle(self) -> RunMetrics:
        """Return the metrics of base(p) in unlimited memory, of several GPUs of the slowest.

        Buffers of gradients that base(p) reuses wait until they are copied to the host. Where ranks do that, it is
        PyTorch's own loop if that is faster.
        """
        to_host = isinstance(self.workload, CapturedWorkload) and has_host_copies(self.workload.captured)
        return min(map(self._unlimited, _KEEPING if to_host else (Base(),)), key=lambda metrics: metrics.iteration_s)

    def _unlimited(self, policy: Policy) -> RunMetrics:
        server_trace = self._unlimited_replay(self.plans(policy, self.setting()))
        slowest = max(server_trace.gpus, key=lambda trace: trace.iteration_s)
        return measure(slowest, self.workload.batch_size)

    def _unlimited_replay(self, plans: Sequence[TrainingPlan]) -> ServerTrace:
        completed = self.completed(plans)
        return self.replay(completed, once(self.place_unlimited, completed))

    def pipeline_s(self, trace: ServerTrace) -> float | None:
        """Return how long an iteration lasts whose ranks wait for each other; None of others."""
        return trace.iteration_s if self.workload.as_captured else None

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Replay a plan once, of several GPUs on each, and return the slowest trial."""
        return max(self.run_server_trial((plan,) * self.gpus), key=lambda trial: trial.cost_s)

    def run_server_trial(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        """Replay a plan on each GPU once; if one does not fit, the part before memory runs out, for its time."""
        ready = self.ready(plans, plans[0].policy)
        placements = once(self.place, ready)
        refusals = [each for each in placements if isinstance(each, DoesNotFit)]
        if not refusals:
            return tuple(Trial(trace, trace.iteration_s) for trace in self.replay(ready, placements).gpus)
        begun = until_one_overflows(ready, placements)
        traces = self.replay(begun, tuple(self.place_unlimited(plan) for plan in begun)).gpus
        outcomes = (each if isinstance(each, DoesNotFit) else refusals[0] for each in placements)
        return tuple(Trial(outcome, trace.iteration_s) for outcome, trace in zip(outcomes, traces, strict=True))

    def _groups(self) -> tuple[tuple[int, ...], ...]:
        topology = self.server.topology
        if topology is None:
            return ((0,),)
        groups = [tuple(each for each in topology.group(gpu) if each < self.gpus) for gpu in range(self.gpus)]
        return tuple(dict.fromkeys(groups))

    def made(self, policy: Policy) -> tuple[TrainingPlan, ...]:
        """Return the plan of a policy for each GPU, checked; it raises what `run` does."""
        workload = self.workload
        if isinstance(workload, CapturedWorkload) and not workload.captured.lifetimes and not isinstance(policy, Base):
            raise PolicyError(
                f"{policy.label}: {workload.graph.name} was recorded as a trace, which has no lifetimes; expected "
                "base(p), or a step with an execution trace"
            )
        try:
            return self.ready(self.plans(policy, self.setting()), policy.label)
        except PlanError as broken:
            raise broken if is_shipped(type(policy)) else PolicyError(str(broken)) from broken.__cause__

    def plans(self, policy: Policy, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Return the plan of a policy for each GPU as it made them, in a setting of this workload."""
        if not self.workload.as_captured:
            plans = make_plans(policy, setting)
            is_plain = isinstance(policy, PyTorchLoop) and is_of_plain_loop(self.limits.model)
            return once(with_cached_casts, plans) if is_plain else plans
        if not isinstance(policy, Base | PyTorch):
            raise PolicyError(
                f"{policy.label}: plans no micro-batches that overlap or differ, which are replayed as they were "
                "captured; expected pytorch"
            )
        assert isinstance(self.workload, CapturedWorkload), "no other overlaps"
        ranks = (replace(self, workload=each, gpus=1) for each in self.workload.pipeline or (self.workload,))
        return tuple(policy.plan(each.setting()) for each in ranks)

    def ready(self, plans: Sequence[TrainingPlan], policy: str) -> tuple[TrainingPlan, ...]:
        if len(plans) != self.gpus:
            raise PolicyError(f"{policy}: plans: found {len(plans)} plans, expected {self.gpus}, one for each GPU")
        ready = self.completed(plans)
        once(check_plan, ready)
        once(lambda plan: check_execution(plan, self.execution, self.pinned), ready)
        orders = [exchanged(plan) for plan in ready]
        for gpu, order in enumerate(orders):
            if order != orders[0]:
                raise PlanError(
                    f"{policy}: GPU {gpu} writes its weight gradients in another order than GPU 0, expected the same, "
                    "for they are exchanged in this order"
                )
        return ready

    def completed(self, plans: Sequence[TrainingPlan]) -> tuple[TrainingPlan, ...]:
        """Add to plans the workspaces of PyTorch's libraries and the exchange of gradients."""
        gradients = self.gradients
        if self.as_run is not None:
            plans = once(self.as_run, plans)
        held = once(with_cublas_workspaces, plans) if is_of_pytorch(self.limits.model) else tuple(plans)
        return held if gradients is None else once(lambda plan: aggregate_gradients(plan, gradients), held)

    def replay(self, plans: Sequence[TrainingPlan], placements: Sequence[Placement | DoesNotFit]) -> ServerTrace:
        work = list(zip(plans, (each for each in placements if isinstance(each, Placement)), strict=True))
        each = ranks_of(self.workload) // self.gpus
        alike = [range(gpu * each, (gpu + 1) * each) for gpu in range(self.gpus)] if each > 1 else ()
        return simulate_server(work, self.cost_model, self.server, self.pinned, self.execution, alike)

    def place(self, plan: TrainingPlan) -> Placement | DoesNotFit:
        return place_plan(plan, self.limits)

    def place_unlimited(self, plan: TrainingPlan) -> Placement:
        """Place a plan in unlimited memory of GPU and host."""
        return place_unlimited(plan, self.limits)


@dataclass(frozen=True, slots=True)
class Planned:
    """The plans of all GPUs and their placements.

    Attributes:
        placements: within the capacity.
        replayed: of the replay, in unlimited memory if one of the plans does not fit.
    """

    plans: tuple[TrainingPlan, ...]
    placements: tuple[Placement | DoesNotFit, ...]
    replayed: Sequence[Placement]

    @property
    def refusals(self) -> list[DoesNotFit]:
        return [each for each in self.placements if isinstance(each, DoesNotFit)]


def _on_a_host(workload: Workload, server: Server) -> int:
    """Return how many ranks of a workload share a host; those of a captured rank do the same at the same time."""
    return min(ranks_of(workload), server.gpu_count)


def once(function: Callable[[TrainingPlan], Made], plans: Sequence[TrainingPlan]) -> tuple[Made, ...]:
    """Apply a function to each plan, once if several GPUs share it."""
    made = {key: function(plan) for key, plan in {id(plan): plan for plan in plans}.items()}
    return tuple(made[id(plan)] for plan in plans)
