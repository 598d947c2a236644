"""Tests on a pretended GPU; `make test-pretend` sets up PyTorch's CUDA build and loads one."""

import pytest
import torch

from calibration.pretend.arithmetic import is_pretended
from tests.pretended_gpu import tensors_shown_without_values

__all__ = ["tensors_shown_without_values"]


@pytest.fixture(autouse=True, scope="session")
def pretended() -> None:
    """Skip all of it where no GPU is pretended."""
    if torch.version.cuda is None:
        pytest.skip(f"PyTorch {torch.__version__} is built without CUDA; `make test-pretend` sets up another")
    if not is_pretended():
        pytest.skip("no GPU is pretended; `make test-pretend` loads one")
