"""Models in a layout, as PyTorch's users put them there."""

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from calibration.capture.blocks import blocks_of
from calibration.capture.parallel.layout import Layout
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


def spread(model: nn.Module, layout: Layout, precision: Precision, device_type: str) -> nn.Module:
    """Return a model in a layout, in a process that is one of its ranks.

    FSDP shards the blocks of the model, each by itself, and then the rest. In mixed precision it gathers parameters in
    the narrow type and reduces gradients in float32 (`MixedPrecisionPolicy`), without autocast.

    Raises:
        CaptureError: the model has no place in the layout.
    """
    if not layout.is_sharded or layout.tensor > 1:
        raise CaptureError(
            f"--parallel: {layout.text} cannot be captured yet, expected fsdp=N, zero2=N or hsdp=RxS; `gpus` and "
            "`gradients: ddp` of a scenario replay DistributedDataParallel"
        )
    _shard(model, _mesh(layout, device_type), layout, precision)
    return model


def _mesh(layout: Layout, device_type: str) -> DeviceMesh:
    sizes = {"copies": layout.copies, "shards": layout.shards, "tensor": layout.tensor}
    kept = {name: size for name, size in sizes.items() if size > 1}
    return init_device_mesh(device_type, tuple(kept.values()), mesh_dim_names=tuple(kept))


def _shard(model: nn.Module, mesh: DeviceMesh, layout: Layout, precision: Precision) -> None:
    narrow = precision.autocast
    wanted: dict[str, Any] = {
        "mesh": mesh["copies", "shards"] if layout.copies > 1 else mesh["shards"],
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=getattr(torch, narrow.value) if narrow else None,
            reduce_dtype=torch.float32 if narrow else None,
        ),
    }
    for block in blocks_of(model):
        fully_shard(block, reshard_after_forward=layout.reshards, **wanted)
    # By default the last to run forward keeps its weights, as the first to run backward.
    fully_shard(model, reshard_after_forward=None if layout.reshards else False, **wanted)
