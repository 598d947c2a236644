"""A plan for a model, as `vdnnsim.plan` returns it, with its prediction and its loop; and the request that makes it."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdnnsim.api.step_report import StepReporter, described
from vdnnsim.errors import PolicyError
from vdnnsim.report.result_table import Shown
from vdnnsim.units import MIB, format_bytes

if TYPE_CHECKING:
    from calibration.apply.loop import Loop
    from calibration.apply.loop_state import StepLog
    from calibration.capture.tape import Tape
    from vdnnsim.analysis.results import PolicyResult
    from vdnnsim.cost.table import AdjustKernels, KernelCost
    from vdnnsim.dnn.captured_step import CapturedStep
    from vdnnsim.dnn.layers import Layer, Phase
    from vdnnsim.dnn.workload import Workload
    from vdnnsim.hardware.server import Server
    from vdnnsim.memory.choices import MemoryChoice
    from vdnnsim.memory.live_segments import LiveSegments
    from vdnnsim.memory.requests import Request
    from vdnnsim.plans.live_step import LiveStep
    from vdnnsim.plans.memory_limits import MemoryLimits
    from vdnnsim.plans.placement import DoesNotFit
    from vdnnsim.plans.trace import IterationTrace
    from vdnnsim.policies.interface import Policy


@dataclass(frozen=True, slots=True, repr=False)
class Planned(Shown):
    """A plan for a model.

    Attributes:
        predicted: the replay of the plan, with its metrics (seconds and bytes) and its trace.
        loop: applies the plan to steps.
    """

    predicted: "PolicyResult"
    loop: "Loop"
    _request: "PlanRequest"
    _reporter: StepReporter

    def apply(self, model: Any) -> "AbstractContextManager[StepLog]":  # noqa: ANN401  # a torch.nn.Module
        """Return the context of a step of the model: forward, loss and backward.

        Where a step differs from the captured one, its rest runs without the plan, with one warning. A plan that
        offloads and recomputes nothing has hooks that see it only on a GPU under a limit of memory. After the third
        step a line on standard error compares its time and peak memory to the plan's; if one is off by more than 5 %,
        the next step says in which parts.

        Raises:
            ExecutionRefused: on entering, optimizer states are on the host but `stream` was not called, or FSDP shards
                a model that the plan would recompute.
        """
        return self._reporter.apply(model)

    def trace(self, folder: str | Path = "reports/live") -> None:
        """Time the next step, and write its trace beside the prediction.

        `trace.json`, for https://ui.perfetto.dev, has both; `snapshot_predicted.pickle` and, on a GPU,
        `snapshot_happened.pickle` are for https://pytorch.org/memory_viz.

        Args:
            folder: to write to; an earlier step there is replaced.

        Raises:
            OutputError: at the end of the step, the folder cannot be written, or has other files.
        """
        self._reporter.record(Path(folder))

    @property
    def has_drifted(self) -> bool:
        """Whether the latest step with timed parts was off the plan by more than 5 % in time or memory."""
        return self._reporter.has_drifted

    def refit(self) -> "Planned":
        """Plan again with measured times of operations and copies, and measured memory.

        This plan's memory is unpinned until it is applied again.

        Raises:
            PolicyError: no step was timed yet, or no plan fits in the memory that is left.
        """
        step = self._reporter.recorded
        if step is None and not self.is_full_of_gaps:
            raise PolicyError("refit: no step was timed yet, expected one after plan.trace()")
        self.loop.unpin()
        asked = self._request if step is None else self._request.measured(step, self.predicted)
        return asked.with_gaps(self.loop.reservation.beyond_bytes if self.is_full_of_gaps else 0).planned()

    @property
    def is_full_of_gaps(self) -> bool:
        """Whether steps that followed the plan exceeded the memory limit by fragmentation."""
        return self.loop.reservation.is_full_of_gaps

    def stream(self, optimizer: Any, model: Any) -> None:  # noqa: ANN401  # of torch
        """Keep optimizer states on the host, for a plan that has them there (`optimal(offload_optimizer=true)`).

        They are prefetched for the update of their parameter and offloaded after it, with the same bits.

        Args:
            optimizer: a `torch.optim.Optimizer`, as planned; its `step` is replaced, so make schedulers afterwards.
            model: with its parameters.

        Raises:
            ExecutionRefused: the plan keeps states on the GPU, or was made for another optimizer.
        """
        self.loop.stream(optimizer, model)

    def __str__(self) -> str:
        asked, schedule = self._request, self.loop.schedule
        # As on the GPU, also where this loop is on a CPU.
        has_hooks = not schedule.is_idle or asked.limit_bytes is not None
        is_cpu, host = asked.device.type == "cpu", asked.server.host
        where = ", for the operators of this CPU" if is_cpu else ""
        text = described(self.predicted, schedule, host, asked.beside_bytes, has_hooks=has_hooks, where=where)
        if is_cpu:
            gpu = asked.server.gpu.name
            text += (
                "\na CPU has no workspaces of cuBLAS and updates parameters one by one; memory and time on "
                f"{gpu}: vdnnsim.simulate"
            )
        return text


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The request of a plan: model, machine, policy, and measurements.

    Attributes:
        device: of the model, in torch.
        kernels: PyTorch's choice of kernels.
        requests: of memory by number of an operation, in order, measured on this GPU.
        seconds: measured time by operation.
        beside_bytes: on the GPU, beside the plan.
        limit_bytes: of reserved memory, by the user; None for all.
        live: segments of PyTorch among which the loop begins.
        offer: printed where a step was not as planned.
    """

    captured: "CapturedStep"
    tape: "Tape"
    device: Any
    server: "Server"
    policy: "Policy"
    memory_model: "MemoryChoice"
    kernels: "AdjustKernels"
    requests: "Mapping[int, Sequence[Request]]"
    seconds: Mapping[int, float] = field(default_factory=dict)
    beside_bytes: int = 0
    limit_bytes: int | None = None
    live: "LiveSegments | None" = None
    offer: str = "plan.refit() plans again with what this loop measured"

    def planned(self) -> Planned:
        """Make the plan and its loop."""
        from calibration.apply.expected_plan import as_followed, followed_if_possible
        from calibration.apply.live_constraints import (
            as_repeatable,
            movable_storages,
            pool_boundaries,
            with_user_references,
        )
        from calibration.apply.loop import Loop
        from calibration.apply.reservation import reservation_for
        from vdnnsim.analysis.results import ScenarioResult
        from vdnnsim.cost.model import ServerCosts
        from vdnnsim.cost.table import AdjustedCosts
        from vdnnsim.dnn.captured_workload import CapturedWorkload
        from vdnnsim.memory.choices import PinnedMemory
        from vdnnsim.policies.interface import make_plans
        from vdnnsim.scenario.simulator import Simulator

        costs = AdjustedCosts(ServerCosts(self.server), self._price)
        workload = as_repeatable(CapturedWorkload.of(self.captured), self.device.type, self.tape.aside)
        free = movable_storages(workload, self.tape)
        held, model, pinned = with_user_references(workload, free), self.memory_model, PinnedMemory.ARENA
        simulator = Simulator.of(held, self.server, model, pinned, cost_model=costs)
        limits = replace(simulator.limits, boundaries=pool_boundaries(workload, self.tape), live=self.live)
        simulator = replace(simulator, limits=limits)
        followed = partial(as_followed, tape=self.tape, free=free, costs=costs, requests=self.requests)
        oracle = simulator.oracle()
        as_run = partial(followed_if_possible, followed=followed)
        (made,) = make_plans(self.policy, replace(simulator, as_run=as_run).setting())
        plan, schedule = followed(made)
        planned = simulator.placed(simulator.ready((plan,), self.policy.label))
        (predicted,) = simulator.outcome(planned, oracle)
        if predicted.refusal is not None:
            enough = _enough(predicted.trace, simulator.limits, self.beside_bytes)
            raise PolicyError(f"{self.policy.label}: {self._shortage(predicted.refusal)}{enough}")
        (placement,) = planned.replayed
        reservation = reservation_for(predicted.trace.plan, placement, self.limit_bytes, self.beside_bytes, self.device)
        if placement.reserved is not None:
            schedule = replace(schedule, pools=placement.reserved.pools)
        loop = Loop(schedule, self.device, reservation)
        scenario = ScenarioResult(
            name=self.captured.model,
            workload=held,
            server=self.server,
            memory_model=model,
            pinned_memory=pinned,
            oracle=oracle,
            algorithm_profiling_s=0.0,
            results=(predicted,),
        )
        reporter = StepReporter(loop, scenario, self.beside_bytes, self.offer, is_measured=bool(self.seconds))
        return Planned(predicted, loop, self, reporter)

    def _shortage(self, refusal: "DoesNotFit") -> str:
        from vdnnsim.memory.choices import is_of_pytorch
        from vdnnsim.memory.segments import SMALL_SEGMENT_BYTES

        limit_bytes = self.limit_bytes
        if limit_bytes is None or limit_bytes >= SMALL_SEGMENT_BYTES or not is_of_pytorch(self.memory_model):
            return refusal.explain()
        least = format_bytes(SMALL_SEGMENT_BYTES)
        return (
            f"found memory of {format_bytes(limit_bytes)}, expected at least the {least} that PyTorch reserves at once"
        )

    def measured(self, step: "LiveStep", predicted: "PolicyResult") -> "PlanRequest":
        """Return the request with the measurements of a step that followed a plan."""
        from vdnnsim.analysis.measured_step import measured_link, measured_operations, operation_seconds

        seconds = {**self.seconds, **measured_operations(step, operation_seconds(predicted.trace))}
        # Measured operations include host time.
        host = replace(self.server.host, dispatch_forward_s=0.0, dispatch_backward_s=0.0, dispatch_library_s=0.0)
        server = replace(self.server, link=measured_link(step, self.server.link), host=host)
        # The next plan will be exceeded by as much.
        excess = (step.peak_bytes or 0) - predicted.metrics.allocated_bytes - self.beside_bytes
        return replace(self, server=server, seconds=seconds).beside(max(0, excess))

    def without_inputs_in_backward(self) -> "PlanRequest":
        """Return the request of a program that drops its inputs when forward returns."""
        from calibration.apply.live_constraints import freeing_inputs

        return replace(self, captured=freeing_inputs(self.captured, self.tape))

    def beside(self, nbytes: int) -> "PlanRequest":
        """Return the request with less memory, taken by something else."""
        return replace(self.with_gaps(nbytes), beside_bytes=self.beside_bytes + nbytes)

    @property
    def free_bytes(self) -> int:
        """Memory left beside weights, states and the batch."""
        given = sum(each.nbytes for each in self.captured.storages if each.given)
        return max(0, self.server.gpu.memory_bytes - self.server.gpu.context_bytes - given)

    def with_gaps(self, nbytes: int) -> "PlanRequest":
        """Return the request with some memory left for fragmentation."""
        gpu = self.server.gpu
        gpu = replace(gpu, memory_bytes=max(0, gpu.memory_bytes - nbytes))
        return replace(self, server=replace(self.server, gpu=gpu))

    def _price(
        self, workload: "Workload", layer: "Layer", phase: "Phase", offered: "tuple[KernelCost, ...]"
    ) -> "tuple[KernelCost, ...]":
        """Return the cost of a phase, measured where it was."""
        from vdnnsim.cost.table import KernelCost
        from vdnnsim.hardware.server import Origin

        (chosen,) = self.kernels(workload, layer, phase, offered)
        if not self.seconds:
            return (chosen,)
        parts = []
        for at, number in enumerate(workload.step.numbers_of(layer.index, phase)):
            seconds = self.seconds.get(number)
            part = chosen.of(at)
            parts.append(part if seconds is None else replace(part, seconds=seconds, origin=Origin.MEASURED))
        return (KernelCost.joined(parts),)


def _enough(trace: "IterationTrace", limits: "MemoryLimits", beside_bytes: int) -> str:
    """Return in which memory, in whole MiB, a plan that does not fit can be placed; empty where the host lacks some."""
    from vdnnsim.memory.requests import round_up
    from vdnnsim.plans.placement import Placement, place_plan

    sizes = range(limits.device_bytes // MIB, trace.pool_bytes // MIB + 2)

    def fits(size: int) -> bool:
        return isinstance(place_plan(trace.plan, replace(limits, device_bytes=size * MIB)), Placement)

    found = bisect_left(sizes, x=True, key=fits)
    if found == len(sizes):
        return ""
    mib = round_up(sizes[found] * MIB + beside_bytes, MIB) // MIB
    return f"; with its segments the smallest plan that was found needs memory='{mib} MiB'"
