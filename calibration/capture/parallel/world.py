"""The fake process group of a captured rank, and what FSDP does without an operator: it resizes storages and copies."""

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, Protocol

import torch
from torch import distributed
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy
from torch.distributed.fsdp._fully_shard import _fsdp_param
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam, ShardedState
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.debug import _clear_sharding_prop_cache
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import distributed as data_parallel
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import _disable_current_modes

from calibration.capture.fake_tensors import FakeTensors, replaced
from calibration.capture.schemas import OperatorMode
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.errors import CaptureError

_OPENED: Final = frozenset({DTensor, AsyncCollectiveTensor})
_WAITS: Final = frozenset(
    {torch.ops._c10d_functional.wait_tensor.default, torch.ops._c10d_functional._wrap_tensor_autograd.default}  # noqa: SLF001
)
"""Wait for the result of a collective, which stays where it is."""


class Listener(Protocol):
    """Gets what FSDP does without an operator: storages that it allocates and frees, and copies to and from the host.

    Without a GPU such a copy is none.
    """

    def allocated(self, tensor: torch.Tensor) -> None:
        """A tensor without memory has some now."""

    def freed(self, tensor: torch.Tensor) -> None:
        """A tensor has no memory any more."""

    def exchanged(self, kind: CollectiveKind, on_gpu: torch.Tensor, on_host: torch.Tensor) -> None:
        """A shard was copied from the host, or its gradient to it."""


@contextmanager
def rank_of(ranks: int, device_type: str | None = None, rank: int = 0) -> Iterator[None]:
    """Be one rank of so many, whose collectives end at once and leave arbitrary results.

    Operators within `DTensor`s are dispatched, not those on them. The loss of logits that are split by class is
    computed on these parts. Code within that makes a mesh gets one of a device type, if one is given, and on a CPU no
    pinned shards.

    Raises:
        CaptureError: this process has a process group of another size.
    """
    own, excepthook = not distributed.is_initialized(), sys.excepthook
    if own:
        distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=ranks)
    elif distributed.get_world_size() != ranks:
        found = distributed.get_world_size()
        raise CaptureError(f"--parallel: found {ranks} ranks, but this process is one of {found}; expected {found}")
    try:
        with ExitStack() as stack:
            stack.enter_context(replaced(OperatorMode, "opened", _OPENED))
            stack.enter_context(replaced(FakeTensors, "in_place", _WAITS))
            stack.enter_context(replaced(ShardingPropagator, "_propagate_tensor_meta_non_cached", _shapes_unseen))
            # Both read memory, to see that all ranks have the same.
            for name in ("_verify_param_shape_across_processes", "_sync_module_states"):
                stack.enter_context(replaced(data_parallel, name, lambda *_, **__: None))
            if device_type is not None:
                stack.enter_context(replaced(DeviceMesh, "__init__", _on(device_type)))
            if device_type == "cpu":
                stack.enter_context(replaced(FSDPParam, "__init__", _unpinned))
            split_loss = loss_parallel()
            split_loss.__enter__()
            # PyTorch's own leaves after an exception what it has changed.
            stack.callback(split_loss.__exit__, None, None, None)
            stack.enter_context(warnings.catch_warnings())
            # Of a result that is a view, as that of a linear layer: harmless unless the user writes to it in place.
            warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")
            yield
    finally:
        if own:
            distributed.destroy_process_group()
            # PyTorch's puts the rank before tracebacks.
            sys.excepthook = excepthook
            # Meshes are equal where their shapes are; those within it have groups that are gone.
            _clear_sharding_prop_cache()  # type: ignore[no-untyped-call]


def _on(place: str) -> Callable[..., None]:
    """Return what makes meshes of another device type than they ask for."""
    begin = DeviceMesh.__init__

    def init(mesh: DeviceMesh, device_type: str, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401, ARG001 - PyTorch's
        begin(mesh, place, *args, **kwargs)

    return init


def _unpinned(param: FSDPParam, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - PyTorch's
    """Keep shards in the host's memory as a policy asks, but not pinned: without CUDA nothing can be."""
    shown = inspect.signature(_begin).bind(param, *args, **kwargs)
    if isinstance(shown.arguments["offload_policy"], CPUOffloadPolicy):
        shown.arguments["offload_policy"] = CPUOffloadPolicy(pin_memory=False)
    _begin(*shown.args, **shown.kwargs)


_begin: Final = FSDPParam.__init__


def _shapes_unseen(propagator: ShardingPropagator, schema: Any) -> Any:  # noqa: ANN401 - a schema, and shapes
    """Compute the shapes of a result as PyTorch does, on fake tensors that no mode sees."""
    with _disable_current_modes():
        return _shapes(propagator, schema)


_shapes: Final = ShardingPropagator._propagate_tensor_meta_non_cached  # noqa: SLF001 - PyTorch has no public one


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that no mode sees."""
    with _disable_current_modes():
        return tensor.detach().clone()


@contextmanager
def following(listener: Listener) -> Iterator[None]:
    """Tell a listener of storages that FSDP resizes within, and of its copies to and from the host."""
    allocate, free = _fsdp_param.alloc_storage, _fsdp_param.free_storage

    def alloc_storage(tensor: torch.Tensor) -> None:
        was_free = not tensor.untyped_storage().size()
        allocate(tensor)
        if was_free:
            listener.allocated(tensor)

    def free_storage(tensor: torch.Tensor) -> None:
        was_allocated = bool(tensor.untyped_storage().size())
        free(tensor)
        if was_allocated:
            listener.freed(tensor)

    gathered: Any = FSDPParam.all_gather_inputs
    as_dtensor = FSDPParam.to_sharded_dtensor

    def all_gather_inputs(param: FSDPParam) -> Any:  # noqa: ANN401 - what PyTorch's own returns
        if not param.offload_to_cpu or param.sharded_state is not ShardedState.SHARDED:
            return gathered.fget(param)
        shard = param._sharded_param_data  # noqa: SLF001
        copy = _copied(shard)
        listener.allocated(copy)
        listener.exchanged(CollectiveKind.FROM_HOST, copy, shard)
        with replaced(param, "_sharded_param_data", copy):
            return gathered.fget(param)

    def to_sharded_dtensor(param: FSDPParam, tensor: torch.Tensor) -> DTensor:
        if param.offload_to_cpu:
            on_gpu, tensor = tensor, _copied(tensor)
            listener.exchanged(CollectiveKind.TO_HOST, on_gpu, tensor)
        return as_dtensor(param, tensor)

    with (
        replaced(_fsdp_param, "alloc_storage", alloc_storage),
        replaced(_fsdp_param, "free_storage", free_storage),
        replaced(FSDPParam, "all_gather_inputs", property(all_gather_inputs)),
        replaced(FSDPParam, "to_sharded_dtensor", to_sharded_dtensor),
    ):
        yield
