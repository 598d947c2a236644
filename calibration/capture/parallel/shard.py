"""Puts a model into a layout, as PyTorch's users do: DistributedDataParallel, fully_shard, ZeroRedundancyOptimizer."""

import inspect
import warnings
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import _recursive_wrap, size_based_auto_wrap_policy
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from calibration.capture.blocks import blocks_of
from calibration.capture.checkpointing import checkpoint_blocks
from calibration.capture.parallel.tensor import split
from calibration.capture.wrapped import Scheduled
from vdnnsim.dnn.layout import Layout
from vdnnsim.errors import CaptureError
from vdnnsim.units import ElementType, Precision


def spread(
    model: nn.Module, layout: Layout, precision: Precision, mesh: DeviceMesh | None, checkpointing: str = ""
) -> nn.Module:
    """Return a model in a layout, in a process that is one of its ranks, with checkpoints of its blocks.

    Layers are split first, then checkpoints are made, then the data are parallel, as torchtitan does it. A model that
    its own code has wrapped needs no mesh.

    DDP reduces gradients in its buckets of 25 MiB, a second copy of them, beside backward.
    FSDP shards the blocks of the model, each by itself, and then the rest. In mixed precision it gathers parameters in
    the narrow type and reduces gradients in float32 (`MixedPrecisionPolicy`), without autocast.

    Raises:
        CaptureError: the model has no place in the layout.
    """
    if mesh is None:
        return _as_wrapped(model, layout, precision)
    if layout.tensor > 1:
        split(model, mesh["tensor"], shares_tokens=layout.shares_tokens)
    if checkpointing:
        checkpoint_blocks(model, checkpointing)
    if layout.is_sharded:
        size = layout.unit_parameters
        shard(model, _units(model, size) if size else blocks_of(model), mesh, layout, precision)
        return model
    return replicated(model, mesh, layout.reduction) if layout.copies > 1 else model


def mesh_of(layout: Layout, device_type: str) -> DeviceMesh | None:
    """Return the ranks of a layout in a mesh, those of tensor parallelism next to each other.

    None where the user's code makes it.
    """
    if layout.is_given:
        return None
    sizes = {"stages": layout.pipeline, "copies": layout.copies, "shards": layout.shards, "tensor": layout.tensor}
    kept = {name: size for name, size in sizes.items() if size > 1}
    return init_device_mesh(device_type, tuple(kept.values()), mesh_dim_names=tuple(kept))


def _as_wrapped(model: nn.Module, layout: Layout, precision: Precision) -> nn.Module:
    """Return a model that its own code has wrapped, ready to run in a fake process group.

    Raises:
        CaptureError: nothing of it is spread over ranks, or it computes in another type than was asked for.
    """
    if isinstance(model, Scheduled):
        raise CaptureError(f"--parallel: {layout.text}: found a schedule of stages, expected {layout.text},pp=M")
    if any(isinstance(each, nn.DataParallel | FullyShardedDataParallel) for each in model.modules()):
        raise CaptureError(f"--parallel: {layout.text}: found DataParallel or FSDP1, expected DDP or fully_shard")
    if isinstance(model, DistributedDataParallel):
        model.register_comm_hook((None, None), _reduce)
    elif parts := [each for each in model.parameters() if isinstance(each, DTensor)]:
        most = max(each.device_mesh._get_root_mesh().size() for each in parts)  # noqa: SLF001 - as DDP asks for it
        if most < layout.ranks and not any(isinstance(each, DistributedDataParallel) for each in model.modules()):
            raise CaptureError(
                f"--parallel: found {layout.text} for a model on a mesh of {most}, expected ranks={most}, or a mesh of "
                f"{layout.ranks}"
            )
    else:
        raise CaptureError(
            f"--parallel: {layout.text}: {type(model).__name__} is not wrapped, expected a function that calls "
            "fully_shard, parallelize_module or DistributedDataParallel, or a layout, as fsdp=8"
        )
    narrow, asked = narrow_type_of(model), precision.autocast
    if narrow is not None and (asked is None or getattr(torch, asked.value) is not narrow):
        name = str(narrow).removeprefix("torch.")
        raise CaptureError(
            f"--precision: found {precision.value}, expected amp_{name}, for the model's MixedPrecisionPolicy gathers "
            f"parameters in {name}"
        )
    return model


def narrow_type_of(model: nn.Module) -> torch.dtype | None:
    """Return the type in which FSDP gathers the parameters of a model; None for their own."""
    sharded = (each for each in model.modules() if isinstance(each, FSDPModule))
    policies = (each._get_fsdp_state()._mp_policy for each in sharded)  # noqa: SLF001 - PyTorch has no public one
    return next((each.param_dtype for each in policies), None)


def partitioned(optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer that updates the parameters of this rank alone, and sends them to the others (ZeRO-1).

    The others are those with copies of the model.
    """
    with warnings.catch_warnings():
        # Optimizers beside it are compiled by torch.jit when they are imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch.distributed.optim import ZeroRedundancyOptimizer
    taken = inspect.signature(type(optimizer)).parameters
    options = {name: value for name, value in optimizer.defaults.items() if name in taken}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    group = next(each.process_group for each in model.modules() if isinstance(each, DistributedDataParallel))
    return ZeroRedundancyOptimizer(parameters, optimizer_class=type(optimizer), process_group=group, **options)


def replicated(model: nn.Module, mesh: DeviceMesh, reduction: ElementType | None = None) -> DistributedDataParallel:
    """Return a model, or a stage, in DistributedDataParallel, which reduces gradients in a type if one is given.

    Split parameters are parts of this rank there, and `DTensor`s during forward.

    Raises:
        CaptureError: two modules share a split parameter, which PyTorch's DistributedDataParallel does not know.
    """
    paths = [path for path, each in model.named_parameters(remove_duplicate=False) if isinstance(each, DTensor)]
    if more := set(paths) - dict(model.named_parameters()).keys():
        raise CaptureError(
            f"--parallel: {min(more)}: is shared with another module, which DistributedDataParallel of split layers "
            "refuses; expected fsdp=N or hsdp=RxS beside tp"
        )
    found = DistributedDataParallel(model, device_mesh=mesh["copies"], init_sync=False)
    narrow = getattr(torch, reduction.value) if reduction else None
    found.register_comm_hook((mesh["copies"].get_group(), narrow), _reduce)
    owners = [(model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]) for path in paths]
    parts = [(owner, name, getattr(owner, name)) for owner, name in owners]

    def register_again(*_: Any) -> None:  # noqa: ANN401 - of a forward hook
        # PyTorch's own forgets them as parameters in the first forward.
        for owner, name, part in parts:
            vars(owner).pop(name)
            owner.register_parameter(name, part)

    model.register_forward_hook(register_again)
    return found


def _reduce(
    state: tuple[distributed.ProcessGroup | None, torch.dtype | None],
    bucket: distributed.GradBucket,  # type: ignore[name-defined]  # PyTorch asks for this annotation
) -> torch.futures.Future[torch.Tensor]:
    """Sum a bucket over all ranks, which PyTorch's own reduction does as well, but not in a fake process group.

    In a narrow type as `bf16_compress_hook` and `fp16_compress_hook` do it: a copy is divided and summed, and copied
    back on another stream than that of backward.

    Args:
        state: the ranks, by default all, and the narrow type, if one was asked for.
        bucket: of gradients.
    """
    (group, narrow), reduced = state, bucket.buffer()
    compressed = reduced if narrow is None else reduced.to(narrow).div_(distributed.get_world_size(group))
    distributed.all_reduce(compressed, group=group, async_op=True)
    if compressed is not reduced:
        device = torch.get_device_module(reduced.device)
        aside = device.Stream()
        aside.wait_stream(device.current_stream())
        with device.stream(aside):
            reduced.copy_(compressed)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(reduced)
    return done


def _units(model: nn.Module, parameters: int) -> list[nn.Module]:
    """Return the modules within a model that have so many parameters beside those of units within them.

    By `size_based_auto_wrap_policy`, which FSDP1 takes. Weights that two modules share stay with the rest of the model.
    """
    found: list[nn.Module] = []

    def wrap(module: nn.Module) -> nn.Module:
        found.append(module)
        return module

    owners = Counter(each for module in model.modules() for each in module.parameters(recurse=False))
    shared = {each for each, count in owners.items() if count > 1}
    policy = partial(size_based_auto_wrap_policy, min_num_params=parameters)
    _recursive_wrap(model, policy, wrap, set(), shared, only_wrap_children=True)
    return found


def shard(model: nn.Module, units: Sequence[nn.Module], mesh: DeviceMesh, layout: Layout, precision: Precision) -> None:
    """Shard units of a model by FSDP, inner ones first, each by itself, and then the rest."""
    narrow = precision.autocast
    reduction = layout.reduction or (ElementType.FLOAT32 if narrow else None)
    wanted: dict[str, Any] = {
        "mesh": mesh["copies", "shards"] if layout.copies > 1 else mesh["shards"],
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=getattr(torch, narrow.value) if narrow else None,
            reduce_dtype=getattr(torch, reduction.value) if reduction else None,
        ),
        "offload_policy": CPUOffloadPolicy() if layout.offloads else OffloadPolicy(),
    }
    sharded = [fully_shard(each, reshard_after_forward=layout.reshards, **wanted) for each in units]
    # By default the last to run forward keeps its weights, as the first to run backward.
    fully_shard(model, reshard_after_forward=None if layout.reshards else False, **wanted)
    if layout.prefetch:
        _prefetch(model, sharded, layout.prefetch)


def _prefetch(model: nn.Module, units: Sequence[FSDPModule], depth: int) -> None:
    """Let each unit gather those that run next, in forward from the outside in, in backward the other way round."""
    inwards = [each for each in model.modules() if isinstance(each, FSDPModule) and each is not model]
    for order, of_unit in (
        (inwards, FSDPModule.set_modules_to_forward_prefetch),
        (units[::-1], FSDPModule.set_modules_to_backward_prefetch),
    ):
        for place, each in enumerate(order, start=1):
            of_unit(each, list(order[place : place + depth]))
