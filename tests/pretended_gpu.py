"""Helpers of tests on a GPU, pretended or real: its settings, an empty allocator, tensors in messages of pytest."""

import gc
import os
from collections.abc import Iterator

import pytest
import torch


def is_pretended() -> bool:
    return "VDNNSIM_PRETEND_NAME" in os.environ


def setting(name: str) -> float:
    """Return a figure of the pretended card, in SI units."""
    return float(os.environ[f"VDNNSIM_PRETEND_{name}"])


def free_cache() -> None:
    """Leave PyTorch no memory of the GPU but that of tensors."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # there is no public way
    gc.collect()
    torch.cuda.empty_cache()


@pytest.fixture(autouse=True, scope="session")
def tensors_shown_without_values() -> Iterator[None]:
    """Let pytest show shapes: PyTorch selects values to print by kernels that compute nothing, and may never end."""
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
