"""Plans of one workload, executed on a device and replayed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from vdnnsim.cost.table import AdjustedCosts, CostModel, KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.errors import DeviceError, ExecutionRefused, PolicyError
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.placement import DoesNotFit, needed_bytes, place_plan
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy, Setting, Trial, TrialPort, make_plan
from vdnnsim.policies.vdnn import VdnnDyn
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.validation.executor import Executor
from vdnnsim.validation.method import Method, Pacing, Task, given_durations
from vdnnsim.validation.row import Outcome, Raw, Row, Side, predicted_peaks
from vdnnsim.validation.run.runs import Given, Runs, run_free, run_paced


@dataclass(frozen=True, slots=True)
class Comparison:
    """A workload on both sides; plans are made with calibrated times."""

    task: Task
    executor: Executor
    method: Method
    simulator: Simulator

    @classmethod
    def of(cls, task: Task, server: Server, executor: Executor, method: Method) -> "Comparison":
        """Build the cost tables and the limits of a task.

        Raises:
            ProfileError: the machine's times do not cover the workload.
            ExecutionRefused: the device cannot compute a layer of it.
        """
        simulator = Simulator.of(task.workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)
        simulator = replace(simulator, cost_model=stated_workspaces(simulator.cost_model, executor))
        simulator.cost_model.table(simulator.workload)
        if task.memory_share is not None:
            everything = Base().plan(Setting(simulator.workload, simulator.cost_model, simulator.limits, simulator))
            share_bytes = round(task.memory_share * needed_bytes(everything))
            simulator = replace(simulator, limits=replace(simulator.limits, device_bytes=share_bytes))
        return cls(task, executor, method, simulator)

    def rows(self, policy: Policy) -> Iterator[Row]:
        """Execute and replay a policy; vdnn_dyn also with trials on the device, as a second row if its plan differs."""
        try:
            plan = self._plan(policy, self.simulator)
        except PolicyError as refusal:
            yield Row(self.task, policy.label, Outcome.REFUSED, note=str(refusal))
            return
        if not isinstance(policy, VdnnDyn):
            yield self._row(plan)
            return
        try:
            on_device = self._plan(policy, DeviceTrials(self.executor, self.simulator.limits))
        except (DeviceError, ExecutionRefused) as failure:
            yield replace(self._row(plan), decision=f"no trials on the device: {failure}")
            return
        if on_device.operations == plan.operations:
            yield replace(self._row(plan), decision=f"same: {plan.algorithms}")
            return
        decision = f"{on_device.algorithms} on the device, {plan.algorithms} in the simulator"
        yield replace(self._row(plan), decision=decision)
        yield replace(self._row(on_device), decision=decision, profiled_on_device=True)

    def _plan(self, policy: Policy, trials: TrialPort) -> TrainingPlan:
        plan = make_plan(policy, replace(self.simulator.setting(), known_trials=trials))
        check_plan(plan)
        return plan

    def _row(self, plan: TrainingPlan) -> Row:
        table = self.simulator.cost_model.table(plan.workload)
        costs = [
            table.find(operation.layer, operation.phase, operation.algorithm, operation.operation)
            for operation in plan.operations
            if isinstance(operation, Compute)
        ]
        predicted = [cost for cost in costs if cost.origin is not Origin.MEASURED]
        row = Row(
            task=self.task,
            policy=plan.policy,
            outcome=Outcome.RAN,
            algorithms=plan.algorithms,
            kernels=len(costs),
            unmeasured_kernels=len(predicted),
            predicted_share=sum(cost.seconds for cost in predicted) / sum(cost.seconds for cost in costs),
        )
        replayed = _replay(plan, self.simulator)
        if not isinstance(replayed, DoesNotFit):
            row = replace(row, simulated=self._simulated(replayed, times=1))
        try:
            return self._compared(row, plan, replayed)
        except ExecutionRefused as refusal:
            return replace(row, outcome=Outcome.REFUSED, note=str(refusal), simulated=None)
        except DeviceError as failure:
            return replace(row, outcome=Outcome.OUT_OF_MEMORY, note=str(failure))

    def _compared(self, row: Row, plan: TrainingPlan, replayed: IterationTrace | DoesNotFit) -> Row:
        if isinstance(replayed, DoesNotFit):
            answer = self.executor.execute(plan, self.simulator.limits)
            if isinstance(answer, DoesNotFit):
                return replace(row, outcome=Outcome.DOES_NOT_FIT, note=answer.explain())
            side = Side.of(answer.trace, answer.peaks)
            return replace(row, measured=side, note=f"fits on the device alone; simulated: {replayed.explain()}")
        method, limits = self.method, self.simulator.limits
        runs = run_free(self.executor, plan, limits, replayed, method.free_runs, method.free_s, method.tolerance)
        raw = None
        if method.pacing is not None and isinstance(runs, Runs):
            raw = Raw(runs.measured.iteration_s, replayed.iteration_s)
            given, stretches = partial(self._given, plan, method.pacing), method.pacing.stretches
            runs = run_paced(self.executor, plan, limits, given, stretches, method.tolerance)
        if isinstance(runs, DoesNotFit):
            return replace(row, outcome=Outcome.OUT_OF_MEMORY, note=runs.explain())
        return replace(
            row,
            measured=runs.measured,
            simulated=self._simulated(runs.replay, times=runs.executions),
            raw=raw,
            runs_s=runs.seconds,
            order_fault=runs.order_fault,
        )

    def _simulated(self, replay: IterationTrace, *, times: int) -> Side:
        # Limits of a task do not apply to the allocator of the device.
        gpu, caching = self.simulator.server.gpu, self.method.caching_allocator
        found = replace(self.simulator.limits, device_bytes=gpu.memory_bytes - gpu.context_bytes)
        return Side.of(replay, predicted_peaks(replay.plan, found, caching_allocator=caching, times=times))

    def _given(self, plan: TrainingPlan, pacing: Pacing, stretch: float) -> Given:
        slower = pacing.times(stretch)
        paced = replace(
            self.simulator,
            server=slower.server(self.simulator.server),
            cost_model=slower.costs(self.simulator.cost_model),
        )
        replay = _replay(plan, paced)
        assert isinstance(replay, IterationTrace), "durations do not decide what fits"
        return Given(given_durations(plan, paced.cost_model, paced.server.link), replay)


def _replay(plan: TrainingPlan, simulator: Simulator) -> IterationTrace | DoesNotFit:
    placement = place_plan(plan, simulator.limits)
    if isinstance(placement, DoesNotFit):
        return placement
    return simulate(plan, simulator.cost_model, simulator.server, placement, simulator.pinned)


@dataclass(frozen=True, slots=True)
class DeviceTrials:
    """Trials on a device: one iteration each after a warm-up."""

    executor: Executor
    limits: MemoryLimits

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Execute a plan; one that does not fit costs nothing."""
        check_plan(plan)
        _, execution = (self.executor.execute(plan, self.limits) for _ in range(2))
        if isinstance(execution, DoesNotFit):
            return Trial(execution, 0.0)
        return Trial(execution.trace, execution.trace.iteration_s)


def stated_workspaces(model: CostModel, executor: Executor) -> CostModel:
    """Return costs with the algorithms and workspaces that the device states for unmeasured kernels.

    A plan with a workspace that is a byte too small cannot be executed. Where the device has none of the algorithms
    they are kept, for the executor to raise ExecutionRefused.
    """

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, options: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        if all(option.origin is Origin.MEASURED for option in options):
            return options
        stated = executor.workspaces(workload, layer, phase)
        return (
            tuple(
                option
                if option.origin is Origin.MEASURED
                else replace(option, workspace_bytes=stated[option.algorithm])
                for option in options
                if option.algorithm in stated
            )
            or options
        )

    return AdjustedCosts(model, adjust)
