"""Tests on a pretended GPU; `make test-pretend` sets up PyTorch's CUDA build and loads one."""

import csv
import ctypes
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from calibration.devices.cuda import CudaDevice
from tests.pretend.command import Pretend
from tests.pretend.controls import Controls
from tests.pretended_gpu import free_cache, is_pretended, setting, tensors_shown_without_values

AddRows = Callable[[str, Sequence[str], Iterable[Sequence[str]]], None]
"""Adds rows below a header to a table of a name, if anyone wants tables."""

__all__ = ["tensors_shown_without_values"]


@pytest.fixture(autouse=True, scope="session")
def pretended() -> None:
    """Skip all of it where no GPU is pretended."""
    if torch.version.cuda is None:
        pytest.skip(f"PyTorch {torch.__version__} is built without CUDA; `make test-pretend` sets up another")
    if not is_pretended():
        pytest.skip("no GPU is pretended; `make test-pretend` loads one")


@pytest.fixture
def add_rows(request: pytest.FixtureRequest) -> AddRows:
    """For the report: `--tables reports/validation/pretended`."""
    folder = request.config.getoption("--tables")

    def add(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        if folder is None:
            return
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        begun = path.exists()
        with path.open("a", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows(rows if begun else [header, *rows])

    return add


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    device = CudaDevice(0)
    yield device
    device.close()


@pytest.fixture
def controls() -> Iterator[Controls]:
    controls = Controls()
    free_cache()
    yield controls
    controls.set_memory_bytes(int(setting("MEMORY_BYTES")))


@pytest.fixture
def cuda(controls: Controls) -> ctypes.CDLL:
    """The calls of the runtime itself."""
    del controls
    return ctypes.CDLL(None)


@pytest.fixture
def pretend(tmp_path: Path) -> Pretend:
    return Pretend(tmp_path)
