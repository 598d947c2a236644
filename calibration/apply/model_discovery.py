"""Finds precision, optimizers and memory of a model that a script trains."""

import gc
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils._pytree import tree_leaves

from calibration.capture.called_models import module_name
from calibration.capture.wrapped import is_sharded, refuse_compiled
from vdnnsim.dnn.training_loops import OPTIMIZERS
from vdnnsim.errors import CaptureError
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import GRANULE_BYTES
from vdnnsim.units import Precision


def finds_gpu() -> bool:
    """Return whether there is a GPU, as NVML counts them: a script may open CUDA in processes that it forks."""
    return torch.cuda.device_count() > 0


def unfollowed() -> str:
    """Return within what a call is whose step a plan cannot follow; empty if it can.

    Tensors of torch.func hold no memory. Hooks of others may end before the step, and then take ours from PyTorch.
    """
    hooks: Any = torch._C._autograd._top_saved_tensors_default_hooks(False)  # noqa: FBT003, SLF001 - no public one
    if torch._C._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001 - as above
        return "a transform of torch.func, as grad or vmap"
    is_of_others = hooks is not None and not str(hooks[0].__module__).startswith(__package__)
    return "hooks of saved tensors, as of torch.utils.checkpoint or save_on_cpu" if is_of_others else ""


def refuse_other_kinds(model: nn.Module, known: Container[int] = ()) -> None:
    """Raise CaptureError where a module is compiled or sharded, or is called where no plan can follow."""
    if within := unfollowed():
        raise CaptureError(
            f"{type(model).__name__}: is called within {within}, expected a call without that; checkpoints within the "
            "model are fine"
        )
    if is_sharded(model):
        raise CaptureError(f"{type(model).__name__}: was sharded by FSDP, expected DDP, or vdnnsim.plan before that")
    refuse_compiled(model, known)


def refuse_replaced(model: nn.Module) -> None:
    """Raise CaptureError where weights are not the model's own in a call that is to be planned."""
    parts = model.named_modules()
    own = ((f"{path}.{name}".lstrip("."), each) for path, part in parts for name, each in part._parameters.items())  # noqa: SLF001
    for name, each in own:
        if not isinstance(each, nn.Parameter | None):
            raise CaptureError(
                f"{module_name(model)}: {name} is a tensor in this call, as within torch.func.functional_call, "
                "expected the model's own parameter"
            )
    if parametrize._cache_enabled:  # noqa: SLF001 - there is no public one
        raise CaptureError(
            f"{module_name(model)}: is called within torch.nn.utils.parametrize.cached(), expected a call without it"
        )


def precision_of(module: nn.Module) -> Precision:
    parameter = next(each for each in module.parameters() if each.requires_grad)
    device = parameter.device.type
    if torch.is_autocast_enabled(device):
        return Precision(f"amp_{str(torch.get_autocast_dtype(device)).removeprefix('torch.')}")
    if parameter.dtype is torch.float32:
        return Precision.TF32 if torch.backends.cuda.matmul.allow_tf32 and device == "cuda" else Precision.FLOAT32
    name = str(parameter.dtype).removeprefix("torch.")
    if name not in (each.value for each in Precision):
        raise CaptureError(f"{type(module).__name__}: its parameters are {name}, expected float32, bfloat16 or float16")
    return Precision(name)


def optimizers_of(model: nn.Module) -> list[torch.optim.Optimizer]:
    own = set(map(id, model.parameters()))
    return [each for each in _optimizers() if not own.isdisjoint(_parameters(each))]


def has_untrained(models: list[nn.Module]) -> bool:
    """Whether an optimizer has trainable parameters of other models, and no state yet."""
    known = {id(parameter) for each in models for parameter in each.parameters()}

    def is_there() -> bool:
        return any(
            not each.state
            and known.isdisjoint(_parameters(each))
            and any(one.requires_grad for one in each.param_groups[0]["params"])
            for each in _optimizers()
        )

    if not is_there():
        return False
    # It may be garbage.
    gc.collect()
    return is_there()


class UpdateWatch:
    """Says once where an optimizer trains a model without a plan, as one that begins after the others were planned.

    `planned` returns the planned models; none while there are more to come.
    """

    def __init__(self, planned: Callable[[], Iterable[nn.Module]], say: Callable[[str], object]) -> None:
        self._planned, self._say = planned, say
        self._seen = weakref.WeakSet[torch.optim.Optimizer]()
        self._has_told = False
        self.leave = register_optimizer_step_post_hook(self._updated).remove

    def _updated(self, optimizer: torch.optim.Optimizer, _: object, __: object) -> None:
        if self._has_told or optimizer in self._seen or not (models := [*self._planned()]):
            return
        self._seen.add(optimizer)
        own = _parameters(optimizer)
        if own.isdisjoint(id(parameter) for each in models for parameter in each.parameters()):
            self._has_told = True
            self._say(
                f"{type(optimizer).__name__} updates {len(own)} parameters of a model that has no plan, for it was not "
                "trained before the first plan was made; its steps run without one"
            )


def _optimizers() -> list[torch.optim.Optimizer]:
    # Proxies may run code when asked for their class.
    return [each for each in gc.get_objects() if issubclass(type(each), torch.optim.Optimizer)]


def _parameters(optimizer: torch.optim.Optimizer) -> set[int]:
    return {id(each) for group in optimizer.param_groups for each in group["params"]}


def name_of(optimizer: torch.optim.Optimizer) -> str:
    """Return the name that captures have for an optimizer, which may be none that they know."""
    group, kind = optimizer.param_groups[0], type(optimizer).__name__
    name = kind.lower()
    if kind == "SGD" and group.get("momentum"):
        name = "momentum_decay" if group.get("weight_decay") else "momentum"
    return f"{name}_fused" if group.get("fused") else f"{name}_for_loop" if group.get("foreach") is False else name


def planned_name(optimizers: list[torch.optim.Optimizer], say: Callable[[str], object]) -> str:
    """Return the name of the optimizer that a plan is made for, and say so where it is another."""
    for each in optimizers:
        if name_of(each) in OPTIMIZERS:
            return name_of(each)
    if not optimizers:
        return "none"
    say(f"{type(optimizers[0]).__name__} is not known; the plan is made as for adamw")
    return "adamw"


def is_updated_in_backward(model: nn.Module) -> bool:
    """Return whether each trained parameter has an optimizer of its own and a hook on its gradient."""
    parameters = [each for each in model.parameters() if each.requires_grad]
    hooks = [each._post_accumulate_grad_hooks for each in parameters]  # noqa: SLF001 - there is no public way
    return all(hooks) and len(optimizers_of(model)) == len(parameters)


def kept_for(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield weights, gradients, buffers and optimizer states of a model."""
    for each in model.parameters():
        yield each
        if each.grad is not None:
            yield each.grad
    yield from model.buffers()
    for optimizer in optimizers_of(model):
        for state in optimizer.state.values():
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def beside_bytes(known: list[Any]) -> int:
    """Return the bytes that PyTorch has allocated on a GPU beside known tensors."""
    tensors = [each for each in known if isinstance(each, torch.Tensor) and each.is_cuda]
    if not tensors:
        return 0
    # They are planned, and allocated again on use.
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
    rounded = (round_up(nbytes, GRANULE_BYTES) for nbytes in _storages(tensors).values())
    return max(0, torch.cuda.memory_allocated(tensors[0].device) - sum(rounded))


def requested_beside_bytes(device: torch.device, known: Iterable[torch.Tensor]) -> int:
    """Return the bytes of a GPU that were requested from PyTorch beside known tensors, workspaces of cuBLAS included.

    Less than is allocated: a block may be up to 1 MiB larger than its request.
    """
    requested: int = torch.cuda.memory_stats(device)["requested_bytes.all.current"]
    return max(0, requested - sum(_storages(each for each in known if each.device == device).values()))


def _storages(tensors: Iterable[torch.Tensor]) -> dict[int, int]:
    """Return bytes by storage."""
    return {each.untyped_storage()._cdata: each.untyped_storage().nbytes() for each in tensors}  # noqa: SLF001


class LossGraph(NamedTuple):
    """What autograd would reach from a loss: identities of parameters, and sequence numbers of its nodes."""

    parameters: set[int]
    nodes: set[int]

    @classmethod
    def of(cls, loss: torch.Tensor) -> "LossGraph":
        found, seen = cls(set(), set()), set[Any]()
        wanted = [loss.grad_fn]
        while wanted:
            node = wanted.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None:
                found.parameters.add(id(variable))
            found.nodes.add(node._sequence_nr())  # noqa: SLF001 - there is no public one
            wanted.extend(each for each, _ in node.next_functions)
        return found


def nodes_of(result: object) -> frozenset[int]:
    """Return the sequence numbers of the nodes that made tensors."""
    tensors = (each for each in tree_leaves(result) if isinstance(each, torch.Tensor))
    return frozenset(each.grad_fn._sequence_nr() for each in tensors if each.grad_fn)  # noqa: SLF001 - as above
