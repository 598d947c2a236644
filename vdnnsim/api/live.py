"""`vdnnsim.plan`: what a model's training step should keep, move and compute again on a machine, to be applied live."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdnnsim.errors import CaptureError, DeviceError, PolicyError

if TYPE_CHECKING:
    from calibration.apply.following import StepLog
    from calibration.apply.loop import Loop
    from vdnnsim.analysis.results import PolicyResult
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.hardware.server import Server


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for a model, and what it costs by prediction.

    Attributes:
        predicted: what came of the plan in the simulator, with its trace.
        loop: what applies it.
    """

    predicted: "PolicyResult"
    loop: "Loop"

    def apply(self, model: Any) -> "AbstractContextManager[StepLog]":  # noqa: ANN401  # a torch.nn.Module
        """Return the context in which a step of the model runs by the plan: its forward, its loss and its backward.

        A step that is not as it was captured runs as without a plan from there on, with one warning that says where.
        """
        return self.loop.apply(model)

    def stream(self, optimizer: Any, model: Any) -> None:  # noqa: ANN401  # of torch
        """Keep an optimizer's states on the host, where the plan has them there (`optimal(offload_optimizer=true)`).

        They come for the update of their parameter and leave after it: its `step` runs once for each parameter, with
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
        from vdnnsim.report.certificates import certified
        from vdnnsim.units import format_bytes, format_seconds

        metrics, plan, agenda = self.predicted.metrics, self.predicted.trace.plan, self.loop.agenda
        storages = plan.workload.step.storages
        again = dict.fromkeys(storages[each].name for each in sorted(agenda.remade))
        peak, step = format_bytes(metrics.max_memory_bytes), format_seconds(metrics.iteration_s)
        moved, pinned = format_bytes(agenda.offloaded_bytes), format_bytes(agenda.pinned_bytes)
        ratio = self.predicted.performance_ratio
        lines = [
            f"{plan.policy}: {peak} at most, {step} a step, {ratio:.1%} of the speed with unlimited memory (predicted)",
            f"to the host {moved} of {len(agenda.moved)} storages; pinned memory {pinned}",
            f"computes again: {', '.join(again) if again else 'nothing'}",
        ]
        if agenda.states:
            states = format_bytes(sum(map(len, agenda.states.values())))
            lines.append(f"the optimizer's states on the host: {states}, by plan.stream(optimizer, model)")
        if plan.certificate is not None:
            lines.append(certified(plan.certificate, metrics.iteration_s))
        return "\n".join(lines)


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

    Raises:
        CaptureError: the model cannot be captured.
        DeviceError: there is no profile of the current GPU.
        PolicyError: the policy has no plan, or none that fits; the message says what did not.
        ExecutionRefused: the plan cannot be followed live.
    """
    from calibration.availability import require_torch

    require_torch()
    from calibration.apply.agenda import agenda_of
    from calibration.apply.holding import as_held, movable
    from calibration.apply.lane import card_of
    from calibration.apply.loop import Loop
    from calibration.capture.capture import CaptureDevice
    from calibration.capture.objects import captured_object
    from vdnnsim.api.captured import member_of
    from vdnnsim.api.question import chosen_memory_model
    from vdnnsim.cost.model import ServerCosts
    from vdnnsim.cost.table import AdjustedCosts
    from vdnnsim.dnn.captured_check import check_captured_step
    from vdnnsim.dnn.captured_workload import CapturedWorkload
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.element_type import Precision
    from vdnnsim.memory.choices import PinnedMemory
    from vdnnsim.policies.registry import known_policies, resolve_policy
    from vdnnsim.simulator import Simulator

    device = next((each.device for each in model.parameters()), None)
    if device is None:
        raise CaptureError("model: has no parameter, expected one to train")
    card, capability = card_of(device)
    profile = _profile(hardware, card, is_gpu=capability is not None)
    captured, tape = captured_object(
        model,
        inputs,
        loss=loss,
        batch_size=batch,
        mode=Mode.TRAINING,
        precision=member_of(Precision, "precision", precision),
        optimizer=optimizer,
        accumulate=1,
        channels_last=False,
        device=CaptureDevice(compute_capability=capability),
    )
    check_captured_step(captured, captured.model)
    workload = CapturedWorkload.of(captured)
    server = _with_memory(profile, memory)
    # A schedule can move what a loop keeps, but PyTorch chooses its kernels: the fastest, whatever workspace they take.
    costs = AdjustedCosts(ServerCosts(server), lambda _, __, ___, offered: offered[:1])
    model_of_memory = chosen_memory_model(memory_model)
    simulator = Simulator.of(as_held(workload, tape), server, model_of_memory, PinnedMemory.ARENA, cost_model=costs)
    chosen = resolve_policy(policy, known_policies())
    predicted = simulator.run(chosen, simulator.oracle())[0]
    if predicted.refusal is not None:
        raise PolicyError(f"{chosen.label}: {predicted.refusal.explain()}")
    agenda = agenda_of(predicted.trace.plan, tape, frozenset(movable(workload, tape)))
    return Planned(predicted, Loop(captured, agenda, device))


def _with_memory(profile: "Profile", memory: str | None) -> "Server":
    from vdnnsim.units import Dimension, parse_quantity

    server = profile.server
    if memory is None:
        return server
    nbytes = int(parse_quantity(memory, Dimension.BYTES)) + server.gpu.context_bytes
    return replace(server, gpu=replace(server.gpu, memory_bytes=nbytes))


def _profile(hardware: str, card: str, *, is_gpu: bool) -> "Profile":
    from vdnnsim.hardware.profile import find_profile, load_profile, shipped_profiles

    if hardware != "auto":
        return load_profile(find_profile(hardware, Path()))
    known = {each.server.gpu.name: each for each in shipped_profiles()}
    if card in known:
        return known[card]
    names = ", ".join(sorted(each.server.name for each in known.values()))
    if not is_gpu:
        raise DeviceError(f"hardware: the model is on the {card}, expected the name of a profile: {names}")
    raise DeviceError(f"hardware: there is no profile of {card}; expected one of {names}")
