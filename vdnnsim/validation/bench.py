"""One workload on a device and in the simulator: every policy planned once, executed and replayed."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vdnnsim.engine.simulate import simulate
from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.experiment import Bench
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plan.check import check_plan
from vdnnsim.plan.operations import Compute
from vdnnsim.plan.placement import DoesNotFit, place_plan
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.port import Policy, Setting, TrialPort
from vdnnsim.trace import IterationTrace
from vdnnsim.validation.case import Case
from vdnnsim.validation.method import Method
from vdnnsim.validation.pacing import given_durations
from vdnnsim.validation.port import Executor
from vdnnsim.validation.reading import Peaks, Reading, predicted_peaks, requested_peak
from vdnnsim.validation.row import Outcome, Raw, Row
from vdnnsim.validation.runs import run_plan
from vdnnsim.validation.trials import DeviceTrials


@dataclass(frozen=True, slots=True)
class ValidationBench:
    """A workload, set up on both sides.

    Attributes:
        calibrated: the simulator with the calibrated times.
        given: the simulator with the durations that the device is given; the same where it is given none.
    """

    case: Case
    executor: Executor
    method: Method
    calibrated: Bench
    given: Bench

    @classmethod
    def of(cls, case: Case, server: Server, executor: Executor, method: Method) -> "ValidationBench":
        """Build the cost tables and the limits of a case.

        Raises:
            ProfileError: the machine's times do not cover the workload.
        """
        bench = Bench.of(case.workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)
        if case.memory_share is not None:
            everything = Base().plan(Setting(bench.workload, bench.costs, bench.limits, bench))
            share_bytes = round(case.memory_share * requested_peak(everything))
            bench = replace(bench, limits=replace(bench.limits, device_bytes=share_bytes))
        given = bench
        if method.pacing is not None:
            given = replace(bench, server=method.pacing.server(server), costs=method.pacing.costs(bench.costs))
        return cls(case, executor, method, bench, given)

    def rows(self, policy: Policy) -> Iterator[Row]:
        """Execute and replay a policy.

        One that decides by trials does so by replays and again on the device; where that gives another plan, it is a
        row of its own.
        """
        plan = self._plan(policy, self.given)
        if not plan.passes:
            yield self._row(plan)
            return
        try:
            on_device = self._plan(policy, DeviceTrials(self.executor, self.given.limits, self._durations))
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
        plan = policy.plan(Setting(self.given.workload, self.given.costs, self.given.limits, trials))
        check_plan(plan)
        return plan

    def _row(self, plan: TrainingPlan) -> Row:
        measured = Counter(
            self.given.costs.find(operation.layer, operation.phase, operation.algorithm).origin is Origin.MEASURED
            for operation in plan.operations
            if isinstance(operation, Compute)
        )
        row = Row(
            case=self.case,
            policy=plan.policy,
            outcome=Outcome.RAN,
            algorithms=plan.algorithms,
            kernels=measured.total(),
            unmeasured_kernels=measured[False],
        )
        replayed = _replay(plan, self.given)
        if not isinstance(replayed, DoesNotFit):
            peaks = predicted_peaks(plan, self.given.limits, caching_allocator=self.method.caching_allocator)
            row = replace(row, simulated=Reading.of(replayed, peaks))
        try:
            return self._compared(row, plan, replayed)
        except ExecutionRefused as refusal:
            return replace(row, outcome=Outcome.REFUSED, note=str(refusal))
        except DeviceError as failure:
            return replace(row, outcome=Outcome.OUT_OF_MEMORY, note=str(failure))

    def _compared(self, row: Row, plan: TrainingPlan, replayed: IterationTrace | DoesNotFit) -> Row:
        if isinstance(replayed, DoesNotFit):
            answer = self.executor.execute(plan, self.given.limits)
            if isinstance(answer, DoesNotFit):
                return replace(row, outcome=Outcome.DOES_NOT_FIT, note=answer.explain())
            reading = Reading.of(answer.trace, Peaks.counted(answer.peaks))
            return replace(row, measured=reading, note=f"fits on the device alone; simulated: {replayed.explain()}")
        runs = run_plan(self.executor, plan, self.given.limits, self._durations(plan), replayed, self.method)
        if isinstance(runs, DoesNotFit):
            return replace(row, outcome=Outcome.OUT_OF_MEMORY, note=runs.explain())
        raw = None
        if self.method.pacing is not None:
            calibrated = _replay(plan, self.calibrated)
            assert isinstance(calibrated, IterationTrace), "durations do not decide what fits"
            raw = Raw(runs.free_s, calibrated.iteration_s)
        return replace(row, measured=runs.reading, raw=raw, runs_s=runs.seconds, order_fault=runs.order_fault)

    def _durations(self, plan: TrainingPlan) -> Mapping[int, float] | None:
        if self.method.pacing is None:
            return None
        return given_durations(plan, self.given.costs, self.given.server.link)


def _replay(plan: TrainingPlan, bench: Bench) -> IterationTrace | DoesNotFit:
    placement = place_plan(plan, bench.limits)
    if isinstance(placement, DoesNotFit):
        return placement
    return simulate(plan, bench.costs, bench.server, placement, bench.pinned)
