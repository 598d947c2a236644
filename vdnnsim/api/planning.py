"""`vdnnsim.plan`: a plan for a model's training step, to be applied in a live loop."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vdnnsim.api.model_plan import Planned, PlanRequest
from vdnnsim.errors import CaptureError

__all__ = ["PlanRequest", "Planned", "plan", "request_plan"]

if TYPE_CHECKING:
    from vdnnsim.api.named import PolicyName


def plan(  # noqa: PLR0913  # the words of `capture`, and of a scenario
    model: Any,  # noqa: ANN401  # a torch.nn.Module
    inputs: Any = None,  # noqa: ANN401
    *,
    hardware: str = "auto",
    memory: str | None = None,
    policy: "PolicyName" = "optimal",
    loss: Callable[[Any], Any] | None = None,
    batch: int | None = None,
    precision: str = "float32",
    optimizer: str | type = "adamw",
    in_backward: bool = False,
    memory_model: str = "pytorch",
    real: bool = False,
) -> Planned:
    """Capture a model and plan its training step within a memory limit.

    Args:
        model: to train, on its device.
        inputs: of its forward, as of `vdnnsim.capture`; their values do not matter.
        hardware: a profile by name; `auto` for that of the current GPU.
        memory: limit of what PyTorch reserves, as `20 GiB`; by default all of the GPU.
        policy: by its name in a scenario, or an object of your own `Policy`.
        loss: of the loop, a function of the output.
        batch: samples; by default the first size of the first tensor.
        precision: as of `vdnnsim.capture`; `amp_bfloat16` if the loop runs forward under autocast.
        optimizer: as of `vdnnsim.capture`.
        in_backward: whether hooks of the loop update each parameter in backward and free its gradient.
        memory_model: as of `vdnnsim.simulate`.
        real: whether to capture with real tensors, on the device of the model and with the values of these inputs, for
            a forward that reads values. A step that takes another branch leaves the plan. The capture needs the memory
            of two steps without a plan beside the model, once.

    Returns:
        the plan, to `apply` to each step; prints its time, its memory and what it offloads and recomputes.

    Raises:
        CaptureError: the model cannot be captured, or an argument has no such value.
        DeviceError: PyTorch is missing, or there is no profile of the current GPU.
        ProfileError: there is no profile of this name.
        PolicyError: the policy has no plan, or none that fits.
        ExecutionRefused: the plan cannot be followed live.
    """
    try:
        request = request_plan(
            model,
            inputs,
            hardware=hardware,
            memory=memory,
            policy=policy,
            loss=loss,
            batch=batch,
            precision=precision,
            optimizer=optimizer,
            in_backward=in_backward,
            memory_model=memory_model,
            real=real,
        )
    except CaptureError as failure:
        # Frames of ours say nothing to a user.
        raise failure.with_traceback(None) from failure.__cause__
    from vdnnsim.report.progress import SearchLine

    beside_bytes = 0 if request.live is None else request.live.other_bytes
    with SearchLine() as line:
        line.show(f"a plan of {len(request.captured.operations)} operations under {policy}")
        return request.beside(beside_bytes).planned()


def request_plan(  # noqa: PLR0913  # those of `plan`
    model: Any,  # noqa: ANN401
    inputs: Any,  # noqa: ANN401
    *,
    hardware: str,
    memory: str | None,
    policy: "PolicyName",
    loss: Callable[[Any], Any] | None,
    batch: int | None = None,
    precision: str,
    optimizer: str | type,
    in_backward: bool = False,
    memory_model: str = "pytorch",
    real: bool = False,
    known: Sequence[Any] = (),
) -> PlanRequest:
    """Capture a model, and return the request of a plan for it.

    Tensors that are `known` are of the batch, as labels, or dropped before the step.
    """
    from calibration.availability import require_torch

    require_torch("a plan")
    from calibration.apply.copy_stream import card_of
    from calibration.apply.live_memory import live_segments
    from calibration.apply.operation_measurement import measured_here
    from calibration.apply.reservation import cublaslt_bytes
    from calibration.apply.user_state import protecting_user_tensors
    from calibration.capture.object_capture import captured_object
    from calibration.capture.program import CaptureDevice
    from calibration.capture.user_code import article
    from calibration.capture.wrapped import refuse_compiled, unwrapped, was_made_by_compile
    from vdnnsim.api.named import OWN_POLICY, chosen_memory_model, precision_named, profile_of, with_memory
    from vdnnsim.dnn.captured_accumulation import with_gradients
    from vdnnsim.dnn.captured_check import check_captured_step
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.hardware.profile import is_of_card
    from vdnnsim.memory.choices import preallocated
    from vdnnsim.policies.registry import known_policies, resolve_policy

    if isinstance(model, type) or not callable(getattr(model, "parameters", None)):
        raise CaptureError(
            f"model: found {article(model)}, expected the torch.nn.Module that the loop trains, and its inputs; a "
            "name, or a function that makes one, is for `vdnnsim.capture`, a captured step for `vdnnsim.simulate`"
        )
    refuse_compiled(model)
    model = unwrapped(model) if was_made_by_compile(model) else model
    device = next((each.device for each in model.parameters()), None)
    if device is None:
        raise CaptureError("model: has no parameter, expected one to train")
    card, capability = card_of(device)
    profile = profile_of(hardware, card, is_gpu=capability is not None)
    with protecting_user_tensors(device) if real else nullcontext():
        captured, tape = captured_object(
            model,
            inputs,
            loss=loss,
            batch_size=batch,
            mode=Mode.TRAINING,
            precision=precision_named(precision),
            optimizer=optimizer,
            accumulate=1,
            in_backward=in_backward,
            channels_last=False,
            device=CaptureDevice(real=real, compute_capability=capability, device_type=device.type if real else "cpu"),
        )
    if any(each.grad is not None for each in model.parameters()):
        # A loop that accumulates gradients, or keeps them until backward.
        captured = with_gradients(captured)
    check_captured_step(captured, captured.model)
    chosen = resolve_policy(policy, known_policies(), advice=OWN_POLICY)
    server = with_memory(profile, memory)
    is_timed = is_of_card(server, card)
    memory_choice = chosen_memory_model(memory_model)
    limit_bytes = None
    if memory is not None:
        memory_choice = preallocated(memory_choice)
        limit_bytes = server.gpu.memory_bytes - server.gpu.context_bytes
    kernels, requests, elsewhere = measured_here(
        captured, tape.calls, device, is_timed=is_timed, limit_bytes=limit_bytes
    )
    request = PlanRequest(
        captured,
        tape.without(elsewhere),
        device,
        server,
        chosen,
        memory_choice,
        kernels,
        requests,
        limit_bytes=limit_bytes,
    )
    if memory is None:
        return request
    request = request.beside(cublaslt_bytes(device))
    return replace(request, live=live_segments(model, (inputs, known), device))
