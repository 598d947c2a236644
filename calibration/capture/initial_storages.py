"""Storages that exist when an iteration begins: weights, buffers, inputs, labels, optimizer states."""

from collections.abc import Mapping

import torch
from torch.utils._pytree import tree_leaves

from calibration.capture.iteration import Iteration
from calibration.capture.running_module import ModuleTracker
from calibration.capture.storages import StorageTable, local_of
from vdnnsim.dnn.step import BufferKind


def add_given(iteration: Iteration, modules: ModuleTracker, storages: StorageTable, *, is_cuda: bool) -> frozenset[int]:
    """Add storages that exist when the iteration begins; return the identities of those in host memory."""
    owners = modules.of_parameters()
    names = {key: path for key, (_, path) in owners.items()}
    offloads = iteration.program.layout is not None and iteration.program.layout.offloads
    host: set[int] = set()
    for parameter in iteration.model.parameters():
        storages.add(parameter, names[id(parameter)], BufferKind.WEIGHTS, given=True, on_host=offloads)
        if offloads:
            host.add(_identity(parameter))
    for buffer in iteration.model.buffers():
        storages.add(buffer, names[id(buffer)], BufferKind.STATISTICS, given=True)
    for number, batch in enumerate(iteration.batches):
        for tensor in tree_leaves(batch):
            if isinstance(tensor, torch.Tensor):
                storages.add(tensor, f"input {number}", BufferKind.FEATURE_MAP, given=True)
    for number, tensor in enumerate(iteration.program.labels()):
        storages.add(tensor, f"labels {number}", BufferKind.FEATURE_MAP, given=True)
    for tensor in iteration.pipeline.buffers if iteration.pipeline else ():
        storages.add(tensor, "received", BufferKind.FEATURE_MAP, given=True)
    for name, tensor in vars(iteration.scaler).items() if iteration.scaler else ():
        if isinstance(tensor, torch.Tensor):
            storages.add(tensor, f"scaler {name.strip('_')}", BufferKind.OPTIMIZER_STATE, given=True)
    return frozenset(host | _states(iteration, names, storages, is_cuda=is_cuda, offloads=offloads))


def _identity(tensor: torch.Tensor) -> int:
    """Return the identity of the storage of a tensor, of a `DTensor` of the part that is here."""
    return int(local_of(tensor).untyped_storage()._cdata)  # noqa: SLF001


def _states(
    iteration: Iteration, names: Mapping[int, str], storages: StorageTable, *, is_cuda: bool, offloads: bool
) -> set[int]:
    """Add optimizer states; return the identities of those in host memory: on CUDA step counts that no kernel reads."""
    host: set[int] = set()
    for each in iteration.optimizers:
        # ZeroRedundancyOptimizer has one of its own for the parameters of this rank.
        optimizer = getattr(each, "optim", each)
        for group in optimizer.param_groups:
            counts_on_host = is_cuda and not (group.get("fused") or group.get("capturable"))
            for parameter in group["params"]:
                for key, state in optimizer.state[parameter].items():
                    if isinstance(state, torch.Tensor) and key == "step" and counts_on_host:
                        host.add(_identity(state))
                    elif isinstance(state, torch.Tensor):
                        name = f"{names[id(parameter)]} {key}"
                        storages.add(state, name, BufferKind.OPTIMIZER_STATE, given=True, on_host=offloads)
                        if offloads:
                            host.add(_identity(state))
    return host
