"""Kernels that Triton compiles, its own and those of torch.compile, as they are loaded, launched and timed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from calibration.pretend.card import operator_rates
from tests.machines import shipped_server
from tests.pretend.command import Pretend, run

pytestmark = pytest.mark.pretend

TWICE = """
import os, pathlib
os.environ["VDNNSIM_PRETEND_LOG_KERNELS"] = "1"
import torch, triton, triton.language as tl

@triton.jit
def softmax(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.exp(tl.load(x + i, i < n, other=0.0))
    tl.store(y + i, value / tl.sum(value, 0), i < n)

x = torch.empty(6 << 16, device="cuda")
kernel = softmax[(3, 2)](x, torch.empty_like(x), x.numel(), BLOCK=1 << 16)
pathlib.Path("kernel.cubin").write_bytes(kernel.asm["cubin"])
pathlib.Path("tool").write_text(triton.knobs.nvidia.cuobjdump.path)
print(kernel.n_regs, 4 * kernel.n_spills)
try:
    softmax[(3, 2)](x.cpu(), x, x.numel(), BLOCK=1 << 16)
except ValueError as refused:
    print(refused)
"""


def test_a_kernel_of_triton_is_what_its_machine_code_says(tmp_path: Path) -> None:
    """As NVIDIA's `cuobjdump` reads it: with 512 values a thread, some registers are spilled to memory of its own."""
    (tmp_path / "train.py").write_text(TWICE)
    where = ("--hardware", "rtx_3090", "--log", "calls.log")
    done = run(tmp_path, "-m", "calibration.pretend", *where, "--", sys.executable, "train.py")
    told, refused = done.stdout.splitlines()
    registers, thread_bytes = map(int, told.split())
    tool = (tmp_path / "tool").read_text()
    shown = subprocess.run(
        [tool, "-res-usage", "kernel.cubin"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert re.findall(r"REG:(\d+) STACK:(\d+)", shown.stdout) == [(str(registers), str(thread_bytes))]
    assert thread_bytes > 0
    assert "kernel softmax 3 2 1" in (tmp_path / "calls.log").read_text().splitlines()
    assert "cannot be accessed from Triton" in refused


LOOP = """
import torch
weight = torch.nn.Parameter(torch.empty(64 << 20, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1, foreach=True)

@torch.compile
def loss(weight):
    return (weight * weight.sigmoid() + 1).relu().mean()

while True:
    optimizer.zero_grad()
    loss(weight).backward()
    optimizer.step()
"""


def test_a_compiled_step_lasts_for_what_its_kernels_move_and_holds_what_its_graphs_made(pretend: Pretend) -> None:
    """256 MiB are read to find the mean, read and written by backward, read twice and written by SGD.

    Eagerly forward alone moves nine times as much. Beside these there are few kernels: the second part of the mean,
    those of its gradient, each of 5 us and some bytes. The compiled graph holds the gradient alone.
    """
    done = pretend(LOOP, "--steps", "1")
    assert done.returncode == 0, done.stderr
    rates = operator_rates(shipped_server("rtx_3090"))
    least = 6 * (256 << 20) / rates.dram_bytes_per_s
    assert least <= done.record["step_s"] <= least + 12 * (rates.kernel_overhead_s + 5e-6)
    timed = done.record["operator_s"]
    assert sum(name.startswith("triton_red_fused") for name in timed) == 1
    assert sum(name.startswith("triton_poi_fused") for name in timed) == 1
    (gpu,) = done.record["gpus"]
    held = [(each["phase"], each["module"], each["nbytes"] >> 20) for each in gpu["peak"]["holders"]]
    assert ("backward", "compiled graph 0", 256) in held
    assert ("elsewhere", "", 256) in held
