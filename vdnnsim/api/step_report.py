"""Reports of steps of a planned loop: a line after the third, and a folder for each traced one."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from vdnnsim.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from calibration.apply.live_schedule import LiveSchedule
    from calibration.apply.loop import Loop
    from calibration.apply.loop_state import StepLog
    from vdnnsim.analysis.measured_step import Difference
    from vdnnsim.analysis.results import PolicyResult, ScenarioResult
    from vdnnsim.hardware.server import Host
    from vdnnsim.plans.live_step import LiveStep
    from vdnnsim.plans.trace import IterationTrace

REPORTED: Final = 3
"""The first steps allocate states and workspaces, and choose algorithms."""
_DRIFT: Final = 0.05
_NAMED: Final = 3
_FILES: Final = ("step.json", "trace.json")
_HOOKED: Final = 1.3
_RECOMPUTING: Final = 4.4
"""Host time of a step under a plan over that of the plain one: where nothing moves, and what it adds to recompute all
of forward. Of twelve blocks of a transformer, 152 of 240 operations recomputed, it is 4.1 in all: measured on a CPU by
`tests/benchmarks/test_apply.py`, torch 2.13.
"""
_NO_PEAK: Final = "no peak, which PyTorch measures on GPUs alone"


class StepReporter:
    """Times the reported steps of a loop.

    Args:
        loop: that follows the plan.
        scenario: of the plan, with its one result.
        beside_bytes: on the GPU, beside the plan.
        offer: printed where a step was not as planned.
        is_measured: whether the plan has times measured in this loop.

    Attributes:
        has_drifted: whether the latest step with timed parts was not as planned.
        recorded: that step.
    """

    def __init__(
        self, loop: "Loop", scenario: "ScenarioResult", beside_bytes: int, offer: str, *, is_measured: bool
    ) -> None:
        self._loop, self._scenario, self._beside_bytes, self._is_measured = loop, scenario, beside_bytes, is_measured
        self._offer = offer
        self.has_drifted = False
        self._begun = 0
        self._is_reported = False
        self._explains = False
        self._folder: Path | None = None
        self.recorded: LiveStep | None = None

    def record(self, folder: Path) -> None:
        """Time the parts of the next step, and write them to a folder."""
        self._folder = folder

    def apply(self, model: Any) -> "AbstractContextManager[StepLog]":  # noqa: ANN401  # a torch.nn.Module
        """Return the context of a step of the model."""
        if self._is_reported and not self._explains and self._folder is None:
            return self._loop.apply(model)
        return self._watched(model)

    @contextmanager
    def _watched(self, model: Any) -> "Iterator[StepLog]":  # noqa: ANN401
        from calibration.apply.timed_step import forget_peak, timed

        self._begun += 1
        is_to_report = self._begun >= REPORTED and not self._is_reported
        is_due = is_to_report and self._is_whole_before
        if self._begun == REPORTED - 1 or (is_to_report and not is_due):
            # The peak of the next step includes the update before it.
            forget_peak(self._loop.device)
        folder, closely = self._folder, self._explains or self._folder is not None
        if not (closely or is_due):
            with self._loop.apply(model) as log:
                yield log
            return
        with timed(self._loop, model, self._begun, closely=closely, snapshot=folder is not None) as found:
            yield found.log
        step = found.step
        if step is None:
            return
        has_drifted = bool(self._drifted(step))
        if is_due:
            self._is_reported = True
            _say(self._line(step))
        if closely:
            self.recorded = step
            self.has_drifted = has_drifted
            if self._explains or has_drifted:
                _say(*self._explained(step))
        self._explains = has_drifted and not closely
        if folder is not None:
            self._folder = None
            _say(self._write(step, folder))

    @property
    def _is_whole_before(self) -> bool:
        """Whether the step before followed the plan."""
        return bool(self._loop.steps) and not self._loop.steps[-1].departure

    @property
    def _predicted(self) -> "PolicyResult":
        return self._scenario.results[0]

    def _line(self, step: "LiveStep") -> str:
        from vdnnsim.hardware.profile import is_of_card

        took = f"step {step.number}: forward and backward took "
        planned = self._compared(step)
        if not planned:
            moved = f"{format_bytes(step.offloaded_bytes)} offloaded and {format_bytes(step.fetched_bytes)} prefetched"
            return (
                f"{took}{format_seconds(step.seconds)} on the CPU, which a plan for the "
                f"{self._scenario.server.gpu.name} does not predict; {moved}, "
                f"{format_bytes(self._loop.schedule.offloaded_bytes)} planned; {_NO_PEAK}"
            )
        text = f"{took}{_beside(planned[0], format_seconds)}"
        if len(planned) > 1:
            text += f"; peak {_beside(planned[1], format_bytes)}"
        else:
            text += f"; {_NO_PEAK}"
        if not self._is_measured and not is_of_card(self._scenario.server, step.device):
            text += f"; planned for another card, {self._scenario.server.gpu.name}"
        return text

    def _compared(self, step: "LiveStep") -> "tuple[Difference, ...]":
        """Return the differences to the plan: time, and peak if there is one."""
        from vdnnsim.analysis.measured_step import Difference, planned_s

        if step.peak_bytes is None and not self._is_measured:
            return ()
        trace = self._predicted.trace
        hooked_s, _ = host_seconds(trace, self._loop.schedule, self._scenario.server.host)
        time = Difference("time", step.seconds, max(planned_s(trace), hooked_s))
        if step.peak_bytes is None:
            return (time,)
        return time, Difference("peak", step.peak_bytes, self._predicted.metrics.allocated_bytes + self._beside_bytes)

    def _drifted(self, step: "LiveStep") -> frozenset[str]:
        """Return which of `time` and `peak` were not as planned."""
        return frozenset(each.what for each in self._compared(step) if abs(each.excess) > _DRIFT * each.planned)

    def _explained(self, step: "LiveStep") -> Iterator[str]:
        from vdnnsim.analysis.measured_step import larger, slower

        trace, drifted = self._predicted.trace, self._drifted(step)
        if not drifted:
            yield f"step {step.number}: as planned, within {_DRIFT:.0%}"
            return
        parts: list[tuple[str, str, list[Difference], Callable[[float], str]]] = [
            ("time", "off in time by most", slower(step, trace), format_seconds),
            ("peak", "most over in memory", larger(step, trace, self._beside_bytes), format_bytes),
        ]
        for what, words, found, text in parts:
            off = "; ".join(f"{each.what} {_beside(each, text)}" for each in found[:_NAMED])
            if off and what in drifted:
                yield f"step {step.number}, {words}: {off}"
        if self._offer:
            yield self._offer

    def _write(self, step: "LiveStep", folder: Path) -> str:
        from vdnnsim.memory.choices import is_of_pytorch
        from vdnnsim.report.folder import Writer, write_folder
        from vdnnsim.report.run.perfetto import live_events, perfetto_text
        from vdnnsim.report.run.snapshot import snapshot_pickle

        rows = (self._predicted,)
        beside = live_events(step, self._predicted.trace.plan)
        files: dict[str, str | bytes] = {"trace.json": perfetto_text(self._scenario, rows, beside)}
        if is_of_pytorch(self._scenario.memory_model):
            files["snapshot_predicted.pickle"] = snapshot_pickle(self._scenario, rows)
        if step.snapshot is not None:
            files["snapshot_happened.pickle"] = step.snapshot
        said = {
            "report": self._line(step),
            "step": {each: value for each, value in asdict(step).items() if not isinstance(value, tuple | bytes)},
        }
        writer = Writer.of("step of a loop", _FILES, "step", "files", others=r"snapshot_(predicted|happened)\.pickle")
        write_folder(folder, writer.with_manifest(self._scenario.sources, said, files), writer)
        return f"wrote {', '.join(sorted(files))} to {folder}/; https://ui.perfetto.dev opens the trace"


def host_seconds(trace: "IterationTrace", schedule: "LiveSchedule", host: "Host") -> tuple[float, float]:
    """Return the seconds that the host needs for forward and backward with hooks in Python, and for all of a step.

    They are 0 for a machine whose dispatch times are not known, or are in measured times of operations.
    """
    from vdnnsim.dnn.layers import Phase
    from vdnnsim.plans.operations import Compute

    if not host.dispatch_forward_s:
        return 0.0, 0.0
    kernels = [each for each in trace.plan.operations if isinstance(each, Compute)]
    each_s = trace.host_issue_s / len(kernels)
    updates = sum(each.phase is Phase.UPDATE for each in kernels)
    plain = len(kernels) - updates - sum(each.repeat > 0 for each in kernels)
    recomputed = len(schedule.recomputed_operations) / len(schedule.tape.of_model)
    hooked_s = each_s * plain * (_HOOKED + _RECOMPUTING * recomputed)
    return hooked_s, hooked_s + each_s * updates


def described(
    predicted: "PolicyResult", schedule: "LiveSchedule", host: "Host", beside_bytes: int, *, has_hooks: bool, where: str
) -> str:
    """Return a few lines about a plan; `beside_bytes` on the GPU are beside it. The larger time counts, host or GPU.

    `where` says for which operators it is, where they are not those of the machine.
    """
    from vdnnsim.report.certificates import bound_text

    metrics, plan = predicted.metrics, predicted.trace.plan
    storages = plan.workload.step.storages
    again = [*dict.fromkeys(storages[each].name for each in sorted(schedule.recomputed))]
    more = len(again) - _NAMED
    host_s = host_seconds(predicted.trace, schedule, host)[1] if has_hooks else 0.0
    step_s = max(metrics.iteration_s, host_s)
    peak, step = format_bytes(metrics.allocated_bytes), format_seconds(step_s)
    others = f"; {format_bytes(beside_bytes)} of the GPU's are of others" if beside_bytes else ""
    count, pinned = len(schedule.offloaded), format_bytes(schedule.pinned_bytes)
    moved = f"{format_bytes(schedule.offloaded_bytes)} of {count} storage{'s' * (count > 1)}; pinned memory {pinned}"
    unlimited_s = predicted.performance_ratio * metrics.iteration_s
    speed = f"{unlimited_s / step_s:.1%} of the speed with unlimited memory (predicted)"
    lines = [
        f"{plan.policy}{where}: at most {peak} allocated, {step} a step, {speed}",
        f"to the host: {moved if count else 'nothing'}{others}",
        f"recomputes: {', '.join(again[:_NAMED]) or 'nothing'}{f' and {more} more' if more > 0 else ''}",
    ]
    if schedule.states:
        states = format_bytes(sum(map(len, schedule.states.values())))
        lines.append(f"the optimizer's states on the host: {states}, by plan.stream(optimizer, model)")
    if host_s > metrics.iteration_s:
        lines.append(
            f"the host decides: without hooks in Python a step takes {format_seconds(metrics.iteration_s)}, with them "
            f"the host needs {step}, by a ratio that was measured on another host"
        )
    if plan.certificate is not None:
        # A bound is of what the GPU does, as is the step with unlimited memory.
        of_gpu = "without hooks: " if host_s > metrics.iteration_s else ""
        lines.append(f"{of_gpu}{bound_text(plan.certificate, metrics.iteration_s, unlimited_s)}")
    return "\n".join(lines)


def _beside(difference: "Difference", text: Callable[[float], str]) -> str:
    """Return measured and planned, as `12 ms, 10 ms planned, +20.0%`."""
    share = f", {difference.excess / difference.planned:+.1%}" if difference.planned else ""
    return f"{text(difference.measured)}, {text(difference.planned)} planned{share}"


def _say(*lines: str) -> None:
    for line in lines:
        sys.stderr.write(f"vdnnsim: {line}\n")
