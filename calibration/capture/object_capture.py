"""Captures of a model that is a Python object, or of a function that makes it, with its inputs."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import torch
from msgspec import structs
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves, tree_map_only

from calibration.capture.called_models import module_name
from calibration.capture.capture import capture_with_tape
from calibration.capture.layouts import copied
from calibration.capture.libraries import library_version
from calibration.capture.lora import NOTE
from calibration.capture.losses import AssumedLoss
from calibration.capture.outside_tensors import refusing_gradients
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.program_text import text_of_call
from calibration.capture.request import LIBRARIES, LoopOptions
from calibration.capture.request_capture import with_loss
from calibration.capture.tape import Tape
from calibration.capture.user_code import arguments_of, article, sample_of
from calibration.capture.wrapped import EAGER, as_module, refuse_spread
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.training_loops import optimizer_named
from vdnnsim.errors import CaptureError

_UNNAMED: Final = frozenset({"make", "model", "<lambda>"})
"""Names of functions that say nothing of the model; it is called as its class."""


def captured_object(
    model: Any,  # noqa: ANN401 - whatever a user gives
    inputs: Any,  # noqa: ANN401
    *,
    loss: Callable[[Any], torch.Tensor] | None,
    batch_size: int | None,
    device: CaptureDevice,
    optimizer: str | type,
    parallel: str = "",
    position: int = 0,
    **loop: Any,  # noqa: ANN401
) -> tuple[CapturedStep, Tape]:
    """Return one iteration of a copy of a model, and its tape.

    Args:
        model: a module, or a function without arguments that returns one.
        inputs: its arguments, as `arguments_of` takes them.
        loss: a scalar from what the model returns; None for its own or one that fits its output.
        batch_size: samples; None for the first size of the first tensor of the inputs.
        device: of the capture.
        optimizer: a key of `OPTIMIZERS`, or a class of `torch.optim`.
        parallel: layout over several GPUs, as `fsdp=8`; empty for one.
        position: of the captured rank in a pipeline.
        loop: others of `LoopOptions`.

    Raises:
        CaptureError: it cannot be captured, or gives gradients to other tensors than its parameters.
    """
    name = _name(model)
    options = LoopOptions(optimizer=optimizer_named(optimizer), **loop)
    options.check_loop()
    layout = replace(parse_layout(parallel, "parallel"), position=position) if parallel else None
    if layout is not None and device.real:
        raise CaptureError("parallel: found with real=True, expected fake tensors: the other ranks are not there")
    if layout is not None and device.compiled:
        layout.check_compiled("parallel")
    if inputs is None:
        raise CaptureError("inputs are missing, expected a tensor, a tuple of arguments, a dictionary by name, or both")
    given = arguments_of(inputs, "inputs: found")
    samples = next((len(each) for each in tree_leaves(given) if isinstance(each, torch.Tensor) and each.dim()), 1)
    if samples < 1 or (batch_size is not None and batch_size < 1):
        raise CaptureError(f"inputs: found a batch of {min(samples, batch_size or 0)}, expected one sample or more")
    sample, elements = sample_of(given)
    assumed = AssumedLoss(name, options.accumulate)
    program = Program(
        **options.loop,
        name=name,
        make_model=_maker(model, real=device.real),
        make_inputs=lambda: copied(given, values=device.real),
        loss=assumed if loss is None else loss,
        batch_size=samples if batch_size is None else batch_size,
        labels=assumed.labels,
        layout=layout,
        sample=sample,
        sample_elements=elements,
        versions=", ".join([library_version("torch"), *_versions(model)]),
        notes=(
            *([NOTE.format(options.lora)] if options.lora else ()),
            *([EAGER] if _is_compiled_in_place(model) and not device.compiled else ()),
        ),
    )
    try:
        with refusing_gradients(model):
            step, tape = capture_with_tape(program, device)
    except CaptureError as failure:
        leaves = tree_leaves(given)
        if leaves and all(isinstance(each, int) for each in leaves):
            sizes = ", ".join(map(str, leaves))
            right = f"the inputs themselves, as torch.zeros({sizes})"
            raise CaptureError(
                f"inputs: found ({sizes}), which may be a shape; expected {right}"
            ) from failure.__cause__
        raise
    if name in _UNNAMED:
        step = structs.replace(step, model=step.modules[0].kind.rpartition(".")[2])
    return with_loss(step, assumed, text_of_call(given, assumed)), tape


def resized(inputs: Any, batch_size: int) -> Any:  # noqa: ANN401
    """Return inputs of another batch size, without values: tensors of as many samples as the first, with its strides.

    Tensors that share memory share it again; others are returned as they are.
    """
    tensors = [each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor)]
    samples = next((len(each) for each in tensors if each.dim()), 0)
    batched = {id(each): each for each in tensors if each.dim() and len(each) == samples}
    sizes: dict[int, int] = {}
    for each in batched.values():
        last = sum(
            (size - 1) * stride for size, stride in zip((batch_size, *each.shape[1:]), each.stride(), strict=True)
        )
        key = each.untyped_storage()._cdata  # noqa: SLF001 - its identity
        sizes[key] = max(sizes.get(key, 0), (each.storage_offset() + last + 1) * each.itemsize)
    storages = {key: torch.zeros(nbytes, dtype=torch.uint8) for key, nbytes in sizes.items()}

    def new(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in batched:
            return tensor
        elements = storages[tensor.untyped_storage()._cdata].view(tensor.dtype)  # noqa: SLF001
        return elements.as_strided((batch_size, *tensor.shape[1:]), tensor.stride(), tensor.storage_offset())

    return tree_map_only(torch.Tensor, new, inputs)


def _name(model: object) -> str:
    if isinstance(model, nn.Module):
        if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
            raise CaptureError("model: has lazy modules, expected one of which forward has run, as model(inputs), once")
        return module_name(model)
    if not callable(model):
        raise CaptureError(
            f"model: found {article(model)}, expected a torch.nn.Module, a function that makes one, or a name"
        )
    try:
        inspect.signature(model).bind()
    except TypeError as failure:
        raise CaptureError(f"model: {failure}, expected a function without arguments, or a torch.nn.Module") from None
    except ValueError:  # of some functions in C
        pass
    return str(getattr(model, "__name__", type(model).__name__))


def _is_compiled_in_place(model: object) -> bool:
    """Return whether a module or a part of it is compiled, which its copy is not."""
    return isinstance(model, nn.Module) and any(each._compiled_call_impl for each in model.modules())  # noqa: SLF001


def _versions(model: object) -> list[str]:
    # A function made by exec has no module.
    source = ((type(model) if isinstance(model, nn.Module) else model).__module__ or "").partition(".")[0]
    return [library_version(source)] if source in LIBRARIES else []


def _maker(model: Any, *, real: bool) -> Callable[[], nn.Module]:  # noqa: ANN401
    def make() -> nn.Module:
        if isinstance(model, nn.Module):
            refuse_spread(model)
            known: dict[int, Any] = {} if real else dict(_without_memory(model))
            return copy.deepcopy(model, known | _out_of_graphs(model))
        made = as_module(model())
        if not isinstance(made, nn.Module):
            raise CaptureError(f"model: {_name(model)} returns {article(made)}, expected a torch.nn.Module")
        return made

    return make


def _out_of_graphs(model: nn.Module) -> dict[int, torch.Tensor]:
    """Return copies of results that modules keep of their latest forward, which PyTorch does not copy, by identity."""
    kept = (each for module in model.modules() for each in tree_leaves(vars(module)))
    return {id(each): each.detach().clone() for each in kept if isinstance(each, torch.Tensor) and each.grad_fn}


def _without_memory(model: nn.Module) -> dict[int, nn.Parameter]:
    """Return new parameters by the identity of the old ones; those that share a storage share one again."""
    pieces: dict[int, torch.Tensor] = {}
    found: dict[int, nn.Parameter] = {}
    for each in model.parameters():
        storage = each.untyped_storage()
        identity = storage._cdata  # noqa: SLF001 - its identity
        if identity not in pieces:
            pieces[identity] = torch.empty(storage.nbytes() // each.itemsize, dtype=each.dtype, device="cpu")
        new = pieces[identity].view(each.dtype).as_strided(each.shape, each.stride(), each.storage_offset())
        found[id(each)] = nn.Parameter(new, requires_grad=each.requires_grad)
    return found
