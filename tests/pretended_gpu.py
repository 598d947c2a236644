"""What tests on a pretended GPU share: whether they are, and how a tensor there is shown when one fails."""

import os
from collections.abc import Iterator

import pytest
import torch


def is_pretended() -> bool:
    """Whether the GPUs of this process are pretended."""
    return "VDNNSIM_PRETEND_NAME" in os.environ


@pytest.fixture(autouse=True, scope="session")
def tensors_shown_without_values() -> Iterator[None]:
    """Let pytest show shapes. PyTorch picks the values to print by kernels that nobody computes, and may never end."""
    if not is_pretended():
        yield
        return
    shown = torch.Tensor.__repr__

    def show(tensor: torch.Tensor) -> str:
        if tensor.is_cuda:
            return f"<{tuple(tensor.shape)} {tensor.dtype} on {tensor.device}>"
        return str(shown(tensor))  # type: ignore[no-untyped-call]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "__repr__", show)
        yield
