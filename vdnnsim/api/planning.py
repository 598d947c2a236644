"""`vdnnsim.plan`: what a model's training step should keep, move and compute again on a machine, to be applied live."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from vdnnsim.api.planned import Planned
from vdnnsim.api.step_report import Telling
from vdnnsim.errors import CaptureError, PolicyError

if TYPE_CHECKING:
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

__all__ = ["Asked", "Planned", "asked_for", "plan"]


def plan(  # noqa: PLR0913  # the words of `capture`, and of a scenario
    model: Any,  # noqa: ANN401  # a torch.nn.Module
    inputs: Any,  # noqa: ANN401
    *,
    hardware: str = "auto",
    memory: str | None = None,
    policy: str = "optimal",
    loss: Callable[[Any], Any] | None = None,
    batch: int | None = None,
    precision: str = "float32",
    optimizer: str = "adamw",
    memory_model: str = "pytorch",
    real: bool = False,
) -> Planned:
    """Capture a model, plan its training step within a memory, and make ready what applies the plan in a live loop.

    Args:
        model: which will be trained, on the device where it will be.
        inputs: of its forward, as `vdnnsim.capture` takes them; their values do not matter.
        hardware: a profile by name; `auto` for that of the current GPU.
        memory: that PyTorch may take, as `20 GiB`; by default all that there is.
        policy: as a scenario names it.
        loss: as the loop computes it, from what the model returns.
        batch: samples; by default the first size of the first tensor.
        precision: as `vdnnsim.capture` takes it; `amp_bfloat16` where the loop runs forward under autocast.
        optimizer: as of `vdnnsim.capture`.
        memory_model: as of `vdnnsim.simulate`.
        real: whether to capture with real tensors, on the device of the model and with the values of these inputs, for
            a forward that looks into values. The plan is of the way that it took; a step that takes another leaves it.
            Beside the model that takes the memory of two steps without a plan, once.

    Raises:
        CaptureError: the model cannot be captured.
        DeviceError: there is no profile of the current GPU.
        PolicyError: the policy has no plan, or none that fits; the message says what did not.
        ExecutionRefused: the plan cannot be followed live.
    """
    return asked_for(
        *(model, inputs),
        hardware=hardware,
        memory=memory,
        policy=policy,
        loss=loss,
        batch=batch,
        precision=precision,
        optimizer=optimizer,
        memory_model=memory_model,
        real=real,
    ).planned()


def asked_for(  # noqa: PLR0913  # those of `plan`
    model: Any,  # noqa: ANN401
    inputs: Any,  # noqa: ANN401
    *,
    hardware: str,
    memory: str | None,
    policy: str,
    loss: Callable[[Any], Any] | None,
    batch: int | None = None,
    precision: str,
    optimizer: str,
    memory_model: str = "pytorch",
    real: bool = False,
) -> "Asked":
    """Capture a model, and return what `plan` asks for of it."""
    from calibration.availability import require_torch

    require_torch()
    from calibration.apply.capture_in_place import untouched
    from calibration.apply.copy_stream import card_of
    from calibration.apply.reservation import in_one_piece
    from calibration.apply.workspaces import chosen_here
    from calibration.capture.capture import CaptureDevice
    from calibration.capture.objects import captured_object
    from vdnnsim.api.scenarios import chosen_memory_model, profile_of, with_memory
    from vdnnsim.dnn.captured_check import check_captured_step
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.files.value import Entry
    from vdnnsim.hardware.profile import is_of_card
    from vdnnsim.policies.registry import known_policies, resolve_policy
    from vdnnsim.units import Precision

    device = next((each.device for each in model.parameters()), None)
    if device is None:
        raise CaptureError("model: has no parameter, expected one to train")
    card, capability = card_of(device)
    profile = profile_of(hardware, card, is_gpu=capability is not None)
    with untouched(device) if real else nullcontext():
        captured, tape = captured_object(
            model,
            inputs,
            loss=loss,
            batch_size=batch,
            mode=Mode.TRAINING,
            precision=Entry("", "precision", precision, CaptureError).choice(Precision, "a precision"),
            optimizer=optimizer,
            accumulate=1,
            channels_last=False,
            device=CaptureDevice(real=real, compute_capability=capability, device_type=device.type if real else "cpu"),
        )
    check_captured_step(captured, captured.model)
    chosen = resolve_policy(policy, known_policies())
    server = with_memory(profile, memory)
    is_timed = is_of_card(server, card)
    kernels, requests, elsewhere = chosen_here(captured, tape.calls, device, is_timed=is_timed)
    model = chosen_memory_model(memory_model)
    limit_bytes = None
    if memory is not None:
        model = in_one_piece(model)
        limit_bytes = server.gpu.memory_bytes - server.gpu.context_bytes
    return Asked(
        captured, tape.without(elsewhere), device, server, chosen, model, kernels, requests, limit_bytes=limit_bytes
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan is asked for.

    Attributes:
        device: of torch, where the model is.
        kernels: those that PyTorch chooses of what is on offer.
        requests: by identity of a captured operation what it asks of memory on this GPU, in order.
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
        from calibration.apply.determinism import as_repeatable
        from calibration.apply.expected_timeline import as_tried, lived
        from calibration.apply.loop import Loop
        from calibration.apply.reservation import room_of
        from calibration.apply.user_references import as_held, movable
        from vdnnsim.analysis.results import ScenarioResult
        from vdnnsim.cost.model import ServerCosts
        from vdnnsim.cost.table import AdjustedCosts
        from vdnnsim.dnn.captured_workload import CapturedWorkload
        from vdnnsim.memory.choices import PinnedMemory
        from vdnnsim.policies.interface import make_plans
        from vdnnsim.scenario.simulator import Simulator

        costs = AdjustedCosts(ServerCosts(self.server), self._price)
        workload = as_repeatable(CapturedWorkload.of(self.captured), self.device.type, self.tape.aside)
        free = movable(workload, self.tape)
        held, model, pinned = as_held(workload, free), self.memory_model, PinnedMemory.ARENA
        simulator = Simulator.of(held, self.server, model, pinned, cost_model=costs)
        followed = partial(lived, tape=self.tape, free=free, costs=costs, asked=self.requests)
        oracle = simulator.oracle()
        (made,) = make_plans(self.policy, replace(simulator, as_run=partial(as_tried, followed=followed)).setting())
        plan, agenda = followed(made)
        planned = simulator.placed(simulator.ready((plan,), self.policy.label))
        (predicted,) = simulator.outcome(planned, oracle)
        if predicted.refusal is not None:
            raise PolicyError(f"{self.policy.label}: {predicted.refusal.explain()}")
        limits, traced = simulator.limits, predicted.trace.plan
        room = room_of(traced, limits, self.limit_bytes, self.beside_bytes, self.device)
        loop = Loop(self.captured, agenda, self.device, room)
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
        telling = Telling(loop, scenario, self.beside_bytes, self.offer, is_measured=bool(self.seconds))
        return Planned(predicted, loop, self, telling)

    def measured(self, step: "LiveStep", predicted: "PolicyResult") -> "Asked":
        """Return the same with what a step that followed a plan was measured to take."""
        from vdnnsim.analysis.live import measured_link, measured_operations, operation_seconds

        seconds = {**self.seconds, **measured_operations(step, operation_seconds(predicted.trace))}
        # What was measured of an operation has in it what the host did before it.
        host = replace(self.server.host, dispatch_forward_s=0.0, dispatch_backward_s=0.0, dispatch_library_s=0.0)
        server = replace(self.server, link=measured_link(step, self.server.link), host=host)
        # Whatever a loop takes beyond a plan it takes beyond the next.
        excess = (step.peak_bytes or 0) - predicted.metrics.max_memory_bytes - self.beside_bytes
        return replace(self, server=server, seconds=seconds).beside(max(0, excess))

    def beside(self, nbytes: int) -> "Asked":
        """Return the same within what some bytes of something else leave of the memory."""
        gpu = self.server.gpu
        gpu = replace(gpu, memory_bytes=max(0, gpu.memory_bytes - nbytes))
        return replace(self, server=replace(self.server, gpu=gpu), beside_bytes=self.beside_bytes + nbytes)

    @property
    def free_bytes(self) -> int:
        """What is left of the memory beside all that a step is given: weights, states and its batch."""
        given = sum(each.nbytes for each in self.captured.storages if each.given)
        return max(0, self.server.gpu.memory_bytes - self.server.gpu.context_bytes - given)

    def with_gaps(self, nbytes: int) -> "Asked":
        """Return the same with some bytes of the memory left for gaps between what is allocated."""
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
