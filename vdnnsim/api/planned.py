"""The request of a plan for a model, and the plan: its predicted cost, and the loop that applies it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdnnsim.api.step_report import StepReporter, described
from vdnnsim.errors import PolicyError

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
    from vdnnsim.memory.requests import Request
    from vdnnsim.plans.live_step import LiveStep
    from vdnnsim.policies.interface import Policy


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for a model, and what it costs by prediction.

    Attributes:
        predicted: the replay of the plan, with its trace.
        loop: what applies it.
    """

    predicted: "PolicyResult"
    loop: "Loop"
    _request: "PlanRequest"
    _reporter: StepReporter

    def apply(self, model: Any) -> "AbstractContextManager[StepLog]":  # noqa: ANN401  # a torch.nn.Module
        """Return the context in which a step of the model runs by the plan: its forward, its loss and its backward.

        A step that is not as it was captured runs as without a plan from there on, with one warning that says where.
        After the third step a line on standard error holds its time and its peak of memory against the plan's; where
        one is off by more than 5 %, the next says what was.
        """
        return self._reporter.apply(model)

    def trace(self, folder: str | Path = "reports/live") -> None:
        """Have the next step timed, and write what happened in it beside what was predicted.

        `trace.json`, for https://ui.perfetto.dev, has both; `snapshot_predicted.pickle` and, on a GPU,
        `snapshot_happened.pickle` are for https://pytorch.org/memory_viz.

        Args:
            folder: where to write; an earlier step of a loop there is replaced.

        Raises:
            OutputError: when the step has ended, the folder cannot be written, or has files of somebody else's.
        """
        self._reporter.record(Path(folder))

    @property
    def has_drifted(self) -> bool:
        """Whether the latest step whose parts were timed was off the plan by more than 5 % in time or memory."""
        return self._reporter.has_drifted

    def refit(self) -> "Planned":
        """Plan again with what this loop measured: the times of its operations and copies, and what memory it took.

        This plan gives its pinned memory back until it is applied again.

        Raises:
            PolicyError: no step was timed yet, or no plan fits in what memory is left.
        """
        step = self._reporter.recorded
        if step is None and not self.is_full_of_gaps:
            raise PolicyError("refit: no step was timed yet, expected one after plan.trace()")
        self.loop.unpin()
        asked = self._request if step is None else self._request.measured(step, self.predicted)
        return asked.with_gaps(self.loop.reservation.beyond_bytes if self.is_full_of_gaps else 0).planned()

    @property
    def is_full_of_gaps(self) -> bool:
        """Whether steps as planned made PyTorch reserve more than it may, for gaps between what it has allocated."""
        return self.loop.reservation.is_full_of_gaps

    def stream(self, optimizer: Any, model: Any) -> None:  # noqa: ANN401  # of torch
        """Keep an optimizer's states on the host, where the plan has them there (`optimal(offload_optimizer=true)`).

        They are prefetched for the update of their parameter and offloaded after it: `step` runs once for each, with
        the same bits.

        Args:
            optimizer: which the plan was made for, as a `torch.optim.Optimizer`; its `step` is replaced, so make what
                wraps it, as a scheduler, afterwards.
            model: whose parameters it updates.

        Raises:
            ExecutionRefused: the plan keeps states on the GPU, or was made for another optimizer.
        """
        self.loop.stream(optimizer, model)

    def __str__(self) -> str:
        return described(self.predicted, self.loop.schedule, self._request.beside_bytes)


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The request of a plan: model, machine, policy, and what was measured.

    Attributes:
        device: of torch, where the model is.
        kernels: those that PyTorch chooses of what is on offer.
        requests: by number of an operation what it asks of memory on this GPU, in order.
        seconds: by operation of the program what it was measured to take.
        beside_bytes: on the GPU, that the loop holds beside what is planned.
        limit_bytes: that the user lets PyTorch reserve; None for as much as there is.
        offer: what is said where a step was not as planned.
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
    offer: str = "plan.refit() plans again with what this loop measured"

    def planned(self) -> Planned:
        """Plan, and make ready what applies the plan."""
        from calibration.apply.expected_plan import as_followed, followed_if_possible
        from calibration.apply.live_constraints import as_repeatable, movable_storages, with_user_references
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
        followed = partial(as_followed, tape=self.tape, free=free, costs=costs, requests=self.requests)
        oracle = simulator.oracle()
        as_run = partial(followed_if_possible, followed=followed)
        (made,) = make_plans(self.policy, replace(simulator, as_run=as_run).setting())
        plan, schedule = followed(made)
        planned = simulator.placed(simulator.ready((plan,), self.policy.label))
        (predicted,) = simulator.outcome(planned, oracle)
        if predicted.refusal is not None:
            raise PolicyError(f"{self.policy.label}: {predicted.refusal.explain()}")
        limits, traced = simulator.limits, predicted.trace.plan
        reservation = reservation_for(traced, limits, self.limit_bytes, self.beside_bytes, self.device)
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

    def measured(self, step: "LiveStep", predicted: "PolicyResult") -> "PlanRequest":
        """Return the same with what a step that followed a plan was measured to take."""
        from vdnnsim.analysis.measured_step import measured_link, measured_operations, operation_seconds

        seconds = {**self.seconds, **measured_operations(step, operation_seconds(predicted.trace))}
        # What was measured of an operation has in it what the host did before it.
        host = replace(self.server.host, dispatch_forward_s=0.0, dispatch_backward_s=0.0, dispatch_library_s=0.0)
        server = replace(self.server, link=measured_link(step, self.server.link), host=host)
        # Whatever a loop takes beyond a plan it takes beyond the next.
        excess = (step.peak_bytes or 0) - predicted.metrics.max_memory_bytes - self.beside_bytes
        return replace(self, server=server, seconds=seconds).beside(max(0, excess))

    def beside(self, nbytes: int) -> "PlanRequest":
        """Return the same with so much less memory, which something else takes."""
        gpu = self.server.gpu
        gpu = replace(gpu, memory_bytes=max(0, gpu.memory_bytes - nbytes))
        return replace(self, server=replace(self.server, gpu=gpu), beside_bytes=self.beside_bytes + nbytes)

    @property
    def free_bytes(self) -> int:
        """What is left of the memory beside all that a step is given: weights, states and its batch."""
        given = sum(each.nbytes for each in self.captured.storages if each.given)
        return max(0, self.server.gpu.memory_bytes - self.server.gpu.context_bytes - given)

    def with_gaps(self, nbytes: int) -> "PlanRequest":
        """Return the same with some bytes of the memory left for fragmentation."""
        gpu = self.server.gpu
        gpu = replace(gpu, memory_bytes=max(0, gpu.memory_bytes - nbytes))
        return replace(self, server=replace(self.server, gpu=gpu))

    def _price(
        self, workload: "Workload", layer: "Layer", phase: "Phase", offered: "tuple[KernelCost, ...]"
    ) -> "tuple[KernelCost, ...]":
        """Return what a phase costs, where it was measured in the place of what was predicted."""
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
