"""Reads the segments that PyTorch's allocator has on a GPU, among which a loop will begin."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.apply.model_discovery import kept_for
from calibration.apply.private_pools import has_states
from vdnnsim.memory.live_segments import LiveBlock, LiveSegment, LiveSegments, Use


def live_segments(model: nn.Module, inputs: object, device: torch.device) -> LiveSegments | None:
    """Return the segments as a loop finds them, those with free memory alone released; None on a CPU.

    The plan knows weights, gradients and states of the model and its inputs. Free blocks of other streams and of
    private pools count as others', for no request of the loop finds them.
    """
    if device.type != "cuda":
        return None
    with torch.cuda.device(device):
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - there is no public way
        torch.cuda.empty_cache()
        stream, number = torch.cuda.current_stream().cuda_stream, torch.cuda.current_device()
        found: list[Mapping[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    tensors = [*kept_for(model), *(each for each in tree_leaves(inputs) if isinstance(each, torch.Tensor))]
    known = {each.untyped_storage().data_ptr() for each in tensors if each.device == device}
    segments = (
        LiveSegment(
            each["segment_type"] == "small",
            tuple(
                _blocks(each["blocks"], known, is_own=each["stream"] == stream and each["segment_pool_id"] == (0, 0))
            ),
        )
        for each in sorted(found, key=lambda each: each["address"])
        if each["device"] == number and each["active_size"]
    )
    return LiveSegments(tuple(segments), has_states(model))


def _blocks(blocks: Iterable[Mapping[str, Any]], known: set[int], *, is_own: bool) -> Iterable[LiveBlock]:
    for each in blocks:
        use = Use.PLANNED if each["address"] in known else Use.OTHER
        if is_own and each["state"] == "inactive":
            use = Use.FREE
        yield LiveBlock(each["size"], each["requested_size"], use)
