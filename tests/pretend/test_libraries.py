"""Products by cuBLAS on the pretended GPU, and refusals of what NVIDIA's libraries have besides."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from calibration.pretend.build import find_torch
from tests.pretend.controls import Controls, seconds
from tests.pretended_gpu import setting
from vdnnsim.units import MIB

pytestmark = pytest.mark.pretend

Make = Callable[[int], Callable[[], object]]
"""Makes work of a size."""


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)


def _products(dtype: torch.dtype) -> Make:
    def square(side: int) -> Callable[[], object]:
        matrix = torch.empty(side, side, dtype=dtype, device="cuda")
        return lambda: matrix @ matrix

    return square


def _batch(count: int) -> Callable[[], object]:
    left = torch.empty(count, 1024, 512, device="cuda")
    return lambda: torch.bmm(left, left.transpose(1, 2))


def _linear(rows: int) -> Callable[[], object]:
    """With a bias, which leads PyTorch to cuBLASLt."""
    layer, x = torch.nn.Linear(2048, 1024).cuda(), torch.empty(rows, 2048, device="cuda")
    return lambda: layer(x)


def _convolution(groups: int) -> Make:
    def images(batch: int) -> Callable[[], object]:
        x, w = torch.empty(batch, 256, 56, 56, device="cuda"), torch.empty(512, 256 // groups, 3, 3, device="cuda")
        return lambda: torch.nn.functional.conv2d(x, w, padding=1, groups=groups)

    return images


@pytest.mark.parametrize(
    ("make", "few", "many", "more"),
    [
        # 2 n^3 operations, times four if complex.
        *((_products(dtype), 2048, 4096, 2 * (4096**3 - 2048**3)) for dtype in (torch.float32, torch.bfloat16)),
        (_products(torch.complex64), 2048, 4096, 8 * (4096**3 - 2048**3)),
        (_batch, 8, 24, 16 * 2 * 1024 * 1024 * 512),
        (_linear, 4096, 8192, 4096 * 2 * 2048 * 1024),
        # Each of 512 x 56 x 56 results of an image takes 2 x 256/groups x 3 x 3 operations.
        *((_convolution(groups), 16, 32, 2 * 16 * 512 * 56 * 56 * (256 // groups) * 9) for groups in (1, 4)),
    ],
)
def test_work_lasts_as_long_as_its_operations(make: Make, few: int, many: int, more: int) -> None:
    """The difference of two sizes, without what a launch takes; an event resolves half a microsecond."""
    took = seconds(make(many)) - seconds(make(few))
    assert took == pytest.approx(more / setting("FLOP_PER_S"), rel=1e-3, abs=0.5e-6)


def test_operator_lasts_the_announced_time() -> None:
    """Two products within an operator of 1 ms take 1 ms together, whatever they would take alone."""
    controls = Controls()
    x = torch.empty(4096, 4096, device="cuda")

    def work() -> None:
        with controls.operator(1e-3):
            _ = x @ x
            _ = x @ x

    assert seconds(work) == pytest.approx(1e-3, rel=0.02)


def test_pytorch_takes_the_workspace_of_cublas_once() -> None:
    """PyTorch gives cuBLAS 32 MiB on compute capability 9 and 10, and 2 x 4096 + 8 x 16 KiB = 8,519,680 B before."""
    x = torch.empty(64, 64, device="cuda")
    _ = x @ x
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - PyTorch has no other way
    before = torch.cuda.memory_allocated()
    products = [x @ x, x @ x]
    taken = torch.cuda.memory_allocated() - before - sum(each.nbytes for each in products)
    assert taken == (32 * MIB if torch.cuda.get_device_capability()[0] in {9, 10} else 8_519_680)


def test_every_call_that_needs_a_gpu_and_that_pytorch_imports_has_a_stand_in() -> None:
    """Of cuBLAS all but its version, of cuDNN what takes a handle: a real function that got one of ours would crash."""
    if shutil.which("nm") is None:
        pytest.skip("there is no nm to read libraries with")
    stand_ins = next(path for path in os.environ["LD_PRELOAD"].split(":") if "pretend_libraries" in path)
    defined = _names("--defined-only", stand_ins)
    folder = Path(torch.__file__).parent / "lib"
    imported = _names(
        "--undefined-only", *map(str, folder.glob("libtorch_*cuda*.so")), str(folder / "libtorch_python.so")
    )
    text = "".join(
        path.read_text(encoding="utf-8", errors="replace")
        for headers in find_torch().headers
        for path in headers.glob("cudnn*.h")
    )
    with_handle = set(re.findall(r"\b(cudnn\w+)\s*\([^;()]*\bcudnnHandle_t\s", text))
    needed = {name for name in imported if name.startswith("cublas") and name != "cublasLtGetVersion"}
    needed |= imported & with_handle
    assert len(needed) > 200
    assert needed <= defined


def _names(which: str, *libraries: str) -> set[str]:
    done = subprocess.run(["nm", "--dynamic", which, *libraries], capture_output=True, text=True, check=True)  # noqa: S607
    return {line.split()[-1].partition("@")[0] for line in done.stdout.splitlines() if len(line.split()) > 1}


@pytest.mark.parametrize(
    ("call", "statement"),
    [
        ("cufftCreate", "torch.fft.fft(torch.zeros(64, device='cuda'))"),
        ("cusolverDnCreate", "torch.linalg.solve(torch.zeros(4, 4, device='cuda'), torch.zeros(4, 4, device='cuda'))"),
        ("cublasSgetrfBatched", "torch.linalg.inv(torch.zeros(8, 4, 4, device='cuda'))"),
        (
            "cusparseCreate",
            "torch.sparse_csr_tensor([0, 1], [0], [1.], (1, 1), device='cuda') @ torch.zeros(1, 1, device='cuda')",
        ),
    ],
)
def test_missing_library_is_refused_by_the_name_of_its_call(call: str, statement: str) -> None:
    done = run(f"import torch; {statement}")
    assert done.returncode == 1
    assert f"vdnnsim: {call}: this call is not on the pretended GPU" in done.stderr
    assert "RuntimeError" in done.stderr


def test_nccl_is_refused_with_what_works_instead() -> None:
    """Of one process, which has nobody to wait for; the last line is PyTorch's exception, with NCCL's last error."""
    done = run(
        "import os, torch, torch.distributed as group\n"
        "os.environ.update(MASTER_ADDR='localhost', MASTER_PORT='0')\n"
        "group.init_process_group('nccl', store=group.HashStore(), rank=0, world_size=1)\n"
        "group.all_reduce(torch.zeros(4, device='cuda'))\n"
    )
    assert done.returncode != 0
    assert "pretended GPUs do not talk to each other through NCCL; the backend gloo does work" in done.stderr
    assert "DistBackendError" in done.stderr


def test_uncomputed_result_is_not_copied_to_the_host() -> None:
    """A dot product whose result is to come to the host is refused; it would be whatever stood in memory."""
    blas = ctypes.CDLL(None)
    handle = ctypes.c_void_p()
    assert blas.cublasCreate_v2(ctypes.byref(handle)) == 0
    x = torch.zeros(4, device="cuda")
    result = ctypes.c_float(7)
    address = ctypes.c_void_p(x.data_ptr())
    not_supported = 15
    assert blas.cublasSdot_v2(handle, 4, address, 1, address, 1, ctypes.byref(result)) == not_supported
    assert result.value == 7
    assert blas.cublasSetPointerMode_v2(handle, 1) == 0
    assert blas.cublasSdot_v2(handle, 4, address, 1, address, 1, address) == 0
    blas.cublasDestroy_v2(handle)
