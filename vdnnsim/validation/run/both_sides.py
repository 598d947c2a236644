"""One workload on a device and in the simulator: every policy planned once, executed and replayed."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from vdnnsim.engine.simulate import simulate
from vdnnsim.errors import DeviceError, ExecutionRefused, PolicyError
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.operations import Compute
from vdnnsim.plan.placement import DoesNotFit, needed_bytes, place_plan
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.port import Policy, Setting, TrialPort, make_plan
from vdnnsim.policies.vdnn_dyn import VdnnDyn
from vdnnsim.simulator import Simulator
from vdnnsim.trace import IterationTrace
from vdnnsim.validation.method import Method
from vdnnsim.validation.pacing import Pacing, given_durations
from vdnnsim.validation.port import Executor
from vdnnsim.validation.row import Outcome, Raw, Row
from vdnnsim.validation.run.device import DeviceTrials, stated_workspaces
from vdnnsim.validation.run.runs import Given, Runs, run_free, run_paced
from vdnnsim.validation.run.side import Peaks, Side, predicted_peaks
from vdnnsim.validation.subjects import Subject


@dataclass(frozen=True, slots=True)
class BothSides:
    """A workload, set up on both sides.

    Attributes:
        bench: the simulator, with the calibrated times; plans are made with these.
    """

    subject: Subject
    executor: Executor
    method: Method
    bench: Simulator

    @classmethod
    def of(cls, subject: Subject, server: Server, executor: Executor, method: Method) -> "BothSides":
        """Build the cost tables and the limits of a subject.

        Raises:
            ProfileError: the machine's times do not cover the workload.
            ExecutionRefused: the device cannot compute a layer of it.
        """
        bench = Simulator.of(subject.workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)
        bench = replace(bench, cost_model=stated_workspaces(bench.cost_model, executor))
        bench.cost_model.table(bench.workload)
        if subject.memory_share is not None:
            everything = Base().plan(Setting(bench.workload, bench.cost_model, bench.limits, bench))
            share_bytes = round(subject.memory_share * needed_bytes(everything))
            bench = replace(bench, limits=replace(bench.limits, device_bytes=share_bytes))
        return cls(subject, executor, method, bench)

    def rows(self, policy: Policy) -> Iterator[Row]:
        """Execute and replay a policy.

        vdnn_dyn, whose trials need only fit, decides by replays and again on the device; where that gives another plan,
        it is a row of its own.
        """
        try:
            plan = self._plan(policy, self.bench)
        except PolicyError as refusal:
            yield Row(self.subject, policy.label, Outcome.REFUSED, note=str(refusal))
            return
        if not isinstance(policy, VdnnDyn):
            yield self._row(plan)
            return
        try:
            on_device = self._plan(policy, DeviceTrials(self.executor, self.bench.limits))
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
        plan = make_plan(policy, Setting(self.bench.workload, self.bench.cost_model, self.bench.limits, trials))
        check_plan(plan)
        return plan

    def _row(self, plan: TrainingPlan) -> Row:
        table = self.bench.cost_model.table(plan.workload)
        costs = [
            table.find(operation.layer, operation.phase, operation.algorithm)
            for operation in plan.operations
            if isinstance(operation, Compute)
        ]
        predicted = [cost for cost in costs if cost.origin is not Origin.MEASURED]
        row = Row(
            subject=self.subject,
            policy=plan.policy,
            outcome=Outcome.RAN,
            algorithms=plan.algorithms,
            kernels=len(costs),
            unmeasured_kernels=len(predicted),
            predicted_share=sum(cost.seconds for cost in predicted) / sum(cost.seconds for cost in costs),
        )
        replayed = _replay(plan, self.bench)
        if not isinstance(replayed, DoesNotFit):
            row = replace(row, simulated=self._simulated(replayed))
        try:
            return self._compared(row, plan, replayed)
        except ExecutionRefused as refusal:
            return replace(row, outcome=Outcome.REFUSED, note=str(refusal), simulated=None)
        except DeviceError as failure:
            return replace(row, outcome=Outcome.OUT_OF_MEMORY, note=str(failure))

    def _compared(self, row: Row, plan: TrainingPlan, replayed: IterationTrace | DoesNotFit) -> Row:
        if isinstance(replayed, DoesNotFit):
            answer = self.executor.execute(plan, self.bench.limits)
            if isinstance(answer, DoesNotFit):
                return replace(row, outcome=Outcome.DOES_NOT_FIT, note=answer.explain())
            side = Side.of(answer.trace, Peaks.counted(answer.peaks))
            return replace(row, measured=side, note=f"fits on the device alone; simulated: {replayed.explain()}")
        method, limits = self.method, self.bench.limits
        runs = run_free(self.executor, plan, limits, replayed, method.free_runs, method.tolerance)
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
            simulated=self._simulated(runs.replay),
            raw=raw,
            runs_s=runs.seconds,
            order_fault=runs.order_fault,
        )

    def _simulated(self, replay: IterationTrace) -> Side:
        caching = self.method.caching_allocator
        return Side.of(replay, predicted_peaks(replay.plan, self.bench.limits, caching_allocator=caching))

    def _given(self, plan: TrainingPlan, pacing: Pacing, stretch: float) -> Given:
        slower = pacing.times(stretch)
        paced = replace(
            self.bench, server=slower.server(self.bench.server), cost_model=slower.costs(self.bench.cost_model)
        )
        replay = _replay(plan, paced)
        assert isinstance(replay, IterationTrace), "durations do not decide what fits"
        return Given(given_durations(plan, paced.cost_model, paced.server.link), replay)


def _replay(plan: TrainingPlan, bench: Simulator) -> IterationTrace | DoesNotFit:
    placement = place_plan(plan, bench.limits)
    if isinstance(placement, DoesNotFit):
        return placement
    return simulate(plan, bench.cost_model, bench.server, placement, bench.pinned)
