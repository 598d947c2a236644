"""Prepares a program to be captured: its model on the device and with what is around it, its optimizers and batches."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from calibration.capture.adam8bit import EIGHT_BIT
from calibration.capture.checkpointing import add_checkpoints
from calibration.capture.iteration import Iteration, autocast_of, checked
from calibration.capture.lora import LoraLinear, add_adapters
from calibration.capture.optimizers import make_optimizers, make_states
from calibration.capture.program import Arguments, Program
from vdnnsim.dnn.layout import Layout
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

_IMAGE_DIMENSIONS: Final = 4


def prepare(program: Program, model: nn.Module, device_type: str, *, foreach: bool) -> Iteration:
    """Return an iteration of a program.

    Optimizers work on lists of tensors with `foreach`, as PyTorch's do by default on CUDA.

    Raises:
        CaptureError: the optimizer is unknown, or there is no parameter to train.
    """
    half = program.precision.element_type.nbytes == 2
    dtype = getattr(torch, program.precision.element_type.value) if half else None
    device = torch.device(device_type)

    def place(tensor: torch.Tensor) -> torch.Tensor:
        placed = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
        is_image = program.channels_last and placed.dim() == _IMAGE_DIMENSIONS
        return placed.to(memory_format=torch.channels_last) if is_image else placed

    if not program.is_wrapped:
        if program.lora:
            add_adapters(model, program.lora)
        replace_tensors(model, place, buffers=True)
        for each in model.modules():
            if isinstance(each, LoraLinear):
                for adapter in (each.first, each.second):
                    replace_tensors(adapter, torch.Tensor.float, buffers=False)
    # Parts of a model that trains may not, as frozen batch normalizations.
    if not (model.training and program.mode is Mode.TRAINING):
        model.train(program.mode is Mode.TRAINING)
    autocast, pipeline = program.precision.autocast, None
    batches: tuple[Arguments, ...] = ()
    without_checkpoints = _checkpointed(program, model)
    if layout := program.layout:
        # FSDP is seconds of imports.
        from calibration.capture.parallel.shard import mesh_of, narrow_type_of, spread

        program.check_layout()
        if program.has_pipeline:
            _check_pipeline(program, layout)
            from calibration.capture.parallel.pipeline import pipelined

            autocast = None if layout.is_sharded or narrow_type_of(model) is not None else autocast
            forward_in, batches = partial(autocast_of, device_type, autocast), _batches(program, place)

            def loss(output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever the last stage returns
                with forward_in():
                    return checked(program, program.loss(output))

            pipeline = pipelined(
                model, layout, program.precision, program.checkpointing, device_type, batches, forward_in, loss
            )
            model = pipeline.model
        else:
            model = spread(model, layout, program.precision, mesh_of(layout, device_type), program.checkpointing)
            autocast = None if narrow_type_of(model) is not None else autocast
    optimizers = _make_optimizers(program, model, foreach=foreach) if program.mode is Mode.TRAINING else ()
    scaler = None
    if program.precision is Precision.AMP_FLOAT16 and program.mode is Mode.TRAINING:
        scaler = torch.amp.GradScaler(device_type, init_scale=1.0)  # by default, overflows would skip the first steps
        scaler.scale(torch.zeros((), device=device_type))  # which makes its scale
    # Behind the weights, as a script has them.
    batches = batches or _batches(program, place)
    return Iteration(
        program,
        model,
        optimizers,
        scaler,
        batches,
        device_type,
        foreach,
        place,
        autocast,
        pipeline=pipeline,
        without_checkpoints=without_checkpoints,
    )


def adapted(iteration: Iteration, program: Program, *, keeps_nothing: bool = False) -> Iteration:
    """Return the iteration of a program with the same model, that differs in what is around it alone.

    Args:
        iteration: of the program before.
        program: differs in batches, loss, optimizer or checkpoints.
        keeps_nothing: whether the model keeps no tensors from one iteration to the next.
    """
    before, model, without_checkpoints = iteration.program, iteration.model, iteration.without_checkpoints
    if program.checkpointing != before.checkpointing:
        without_checkpoints()
        without_checkpoints = _checkpointed(program, model)
    optimizers, known = iteration.optimizers, iteration.known_optimizers
    if all(isinstance(each, FakeTensor) for each in model.parameters()):
        known = {**known, _optimizer_of(before): optimizers}
    if _optimizer_of(program) != _optimizer_of(before):
        optimizers = known.get(_optimizer_of(program), ())
        if not optimizers:
            optimizers = _make_optimizers(program, model, foreach=iteration.foreach)
            # Those of 8 bits have tables beside their states.
            is_plain = OPTIMIZERS[program.optimizer][0] not in EIGHT_BIT and program.layout is None
            of_name = (made for (name, *_), made in known.items() if is_plain and name == program.optimizer)
            states = {each: state for other in chain.from_iterable(of_name) for each, state in other.state.items()}
            for each in optimizers:
                parameters = (one for group in each.param_groups for one in group["params"] if one in states)
                each.state.update((one, states[one]) for one in parameters)
            if program.in_backward:
                make_states([each for each in optimizers if not each.state])
    of_warm = ("batch_size", "sample_elements", "loss", "checkpointing")
    is_same = all(getattr(program, each) == getattr(before, each) for each in of_warm)
    return replace(
        iteration,
        program=program,
        optimizers=optimizers,
        batches=_batches(program, iteration.place),
        is_warm=iteration.is_warm and (is_same or (keeps_nothing and program.has_labels)),
        without_checkpoints=without_checkpoints,
        known_optimizers=known,
    )


def _optimizer_of(program: Program) -> tuple[str, bool, int]:
    return program.optimizer, program.in_backward, program.param_groups


def _checkpointed(program: Program, model: nn.Module) -> Callable[[], None]:
    """Checkpoint the blocks of a model on one GPU if its program does; returns a function that makes it what it was."""
    if not program.checkpointing or program.layout is not None:
        return lambda: None
    return add_checkpoints(model, program.checkpointing)


def _check_pipeline(program: Program, layout: Layout) -> None:
    """Refuse a loop that PyTorch's schedules do not run."""
    for is_found, what in (
        (program.mode is Mode.INFERENCE, "inference"),
        (program.in_backward, "updates in backward"),
        (program.precision is Precision.AMP_FLOAT16, "a gradient scaler"),
        (bool(program.lora), "adapters"),
    ):
        if is_found:
            raise CaptureError(f"--parallel: found {layout.text} with {what}, expected one of the two")


def _batches(program: Program, place: Callable[[torch.Tensor], torch.Tensor]) -> tuple[Arguments, ...]:
    return tuple(map_tensors(place, program.make_inputs()) for _ in range(program.accumulate))


def _make_optimizers(program: Program, model: nn.Module, *, foreach: bool) -> tuple[torch.optim.Optimizer, ...]:
    if program.optimizer not in OPTIMIZERS:
        known = ", ".join(OPTIMIZERS)
        raise CaptureError(f"{program.name}: optimizer {program.optimizer!r} is unknown, expected one of {known}")
    parameters = [each for each in model.parameters() if each.requires_grad]
    if not parameters:
        raise CaptureError(f"{program.name}: no parameter requires a gradient, expected one; `--mode inference`?")
    optimizers = make_optimizers(
        program.optimizer,
        parameters,
        foreach=foreach,
        param_groups=program.param_groups,
        in_backward=program.in_backward,
    )
    if program.layout is None or program.layout.data != "zero1":
        return optimizers
    from calibration.capture.parallel.shard import partitioned

    return tuple(partitioned(each, model) for each in optimizers)


def replace_tensors(model: nn.Module, replace: Callable[[torch.Tensor], torch.Tensor], *, buffers: bool) -> None:
    """Replace the parameters of a model, shared ones by shared ones.

    `nn.Module.to` cannot change the element type of fake tensors. `replace` may return its argument.
    """
    made: dict[int, torch.Tensor] = {}
    for module in model.modules():
        named: list[tuple[str, torch.Tensor]] = list(module.named_parameters(recurse=False, remove_duplicate=False))
        if buffers:
            named += module.named_buffers(recurse=False, remove_duplicate=False)
        for name, tensor in named:
            if id(tensor) not in made:
                new = replace(tensor.detach() if isinstance(tensor, nn.Parameter) else tensor)
                if isinstance(tensor, nn.Parameter):
                    new = nn.Parameter(new, requires_grad=tensor.requires_grad)
                made[id(tensor)] = new
            setattr(module, name, made[id(tensor)])


def map_tensors(function: Callable[[torch.Tensor], torch.Tensor], arguments: Arguments) -> Arguments:
    """Return arguments with a function applied to their tensors."""
    mapped: Arguments = tree_map_only(torch.Tensor, function, arguments)
    return mapped
