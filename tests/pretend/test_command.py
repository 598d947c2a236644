"""What `vdnnsim pretend` reports of programs, and that it changes nothing of what they do."""

import pickle
import sys
from pathlib import Path

import pytest

from tests.pretend.command import Pretend, run
from vdnnsim.units import GIB, MIB

pytestmark = pytest.mark.pretend


def test_peaks_are_reported_with_the_requesting_lines(pretend: Pretend) -> None:
    """64 and 32 MiB, of which the first is freed before 128 MiB are allocated: a peak of 160 MiB.

    Each request above 10 MiB gets a segment of its own, none of which is large enough for a later one: 224 MiB are
    reserved, and with the context the driver shows 712 MiB.
    """
    done = pretend("""
import torch
first = torch.empty(64 << 20, dtype=torch.uint8, device="cuda")
second = torch.empty(32 << 20, dtype=torch.uint8, device="cuda")
del first
third = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
""")
    assert done.returncode == 0, done.stderr
    (gpu,) = done.record["gpus"]
    peak = gpu["peak"]
    script = done.folder.parent / "train.py"
    assert gpu["allocated_bytes"] == peak["nbytes"] == 160 * MIB
    assert (gpu["reserved_bytes"], gpu["driver_bytes"]) == (224 * MIB, 712 * MIB)
    assert peak["place"]["line"] == f"{script}:6"
    assert [(each["line"], each["nbytes"]) for each in peak["holders"]] == [
        (f"{script}:6", 128 * MIB),
        (f"{script}:4", 32 * MIB),
    ]
    assert "0 160 MiB 224 MiB 712 MiB 3%" in done.told
    assert "no optimizer of torch.optim made a step" in done.told
    snapshot = pickle.loads((done.folder / "snapshot.pickle").read_bytes())  # noqa: S301 - it is ours
    assert sum(each["action"] == "alloc" for each in snapshot["device_traces"][0]) == 3


ENDLESS = """
import torch
layer = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
accuracy, step = 0.0, 0
while accuracy < 0.9:
    loss = layer(torch.empty(256, 1024, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    accuracy, step = loss.item(), step + 1
    print(step, flush=True)
"""


def test_a_loop_that_waits_for_its_loss_ends_once_memory_grows_no_more(pretend: Pretend) -> None:
    """After the step from which it did not grow come three more, a warm one and two that are timed."""
    done = pretend(ENDLESS, "--steps", "3")
    assert done.returncode == 0, done.stderr
    record = done.record
    steps = record["steady_from_step"] + 3
    assert len(record["steps"]) == steps
    assert done.stdout.startswith("".join(f"{number}\n" for number in range(1, steps + 3)) + "train on")
    assert record["zeros_read"] == [[f"{done.folder.parent}/train.py:11", steps + 2]]
    assert f"reserved memory did not grow after step {steps - 3} of {steps}; there the program was ended" in done.told
    reserved = [step[0]["reserved_bytes"] for step in record["steps"]]
    assert len(set(reserved[steps - 4 :])) == 1
    # A weight of 4 MiB; its gradient, made in backward, and its momentum, made by the optimizer, as much each.
    (gpu,) = record["gpus"]
    held = {(each["phase"], each["module"], each["line"].rpartition(":")[2]): each for each in gpu["peak"]["holders"]}
    assert held["elsewhere", "", "3"]["nbytes"] == 4 * MIB
    assert held["optimizer", "", "10"]["nbytes"] >= 4 * MIB
    assert held["backward", "Linear", "7"]["nbytes"] >= 4 * MIB


def test_a_step_lasts_what_the_rates_say(pretend: Pretend) -> None:
    """Two products of 8192 x 8192 x 8192 at 39.99 TFLOP/s in float32: 2 x 27.5 ms, forward and for the weight.

    What else there is moves at most twelve times 256 MiB at 936.2 GB/s, 3.4 ms, in at most 40 kernels of 5 us.
    """
    done = pretend(
        ENDLESS.replace("1024, 1024, bias", "8192, 8192, bias").replace("256, 1024", "8192, 8192"), "--steps", "1"
    )
    products = 2 * (2 * 8192**3 / 39.99e12)
    assert products <= done.record["step_s"] <= products + 12 * 256 * MIB / 936.2e9 + 40 * 5e-6
    assert "predicted: 5" in done.told


def test_out_of_memory_names_a_card_that_fits(pretend: Pretend) -> None:
    """20 GiB fit into 23.7, 10 more do not; together with a context 30 GiB fit into 31.4, the smallest card above."""
    done = pretend("""
import torch
first = torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
second = torch.empty(10 << 30, dtype=torch.uint8, device="cuda")
""")
    assert done.returncode == 0
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 10.00 GiB" in done.stderr
    (refused,) = done.record["out_of_memory"]
    assert (refused["asked_bytes"], refused["allocated_bytes"]) == (10 * GIB, 20 * GIB)
    assert refused["place"]["line"] == f"{done.folder.parent}/train.py:4"
    assert "does not fit: in step 1, in code outside of modules (train.py:4)" in done.told
    assert "with unlimited memory it takes 30.0 GiB allocated, 30.0 GiB reserved, 30.5 GiB by the driver" in done.told
    assert "rtx_5090 (31.4 GiB) is the smallest known card" in done.told
    assert (done.folder / "again.log").read_bytes() == b""


RESIDUAL = """
import sys, torch
from torch.utils.checkpoint import checkpoint

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = torch.nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(width)
        self.second = torch.nn.Conv2d(width, width, 1)
    def forward(self, x):
        return x + self.second(torch.nn.functional.relu(self.norm(self.first(x)), inplace=True))

blocks = torch.nn.ModuleList(Block(32) for _ in range(4)).cuda()
optimizer = torch.optim.Adam(blocks.parameters())
for step in range(4):
    x = torch.randn(8, 32, 48, 48, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        for number, block in enumerate(blocks):
            x = checkpoint(block, x, use_reentrant=False) if number % 2 else block(x)
    optimizer.zero_grad()
    x.float().mean().backward()
    optimizer.step()
    kept = ("allocated", "reserved", "active", "requested", "inactive_split")
    statistics = torch.cuda.memory_stats()
    print([statistics[f"{name}_bytes.all.{when}"] for name in kept for when in ("peak", "current", "allocated")])
"""


@pytest.mark.parametrize("block", ["Block(32)", "torch.compile(Block(32))"])
def test_recording_changes_nothing_of_what_is_allocated(pretend: Pretend, tmp_path: Path, block: str) -> None:
    """The same program on the same card, recorded and not, tells the same 15 sums after each of four steps."""
    program = RESIDUAL.replace("Block(32)", block)
    recorded = pretend(program, "--whole")
    (tmp_path / "train.py").write_text(program)
    hardware = ("--hardware", "rtx_3090")
    alone = run(tmp_path, "-m", "calibration.pretend", *hardware, "--", sys.executable, "train.py")
    assert alone.stdout.count("\n") == 4
    assert recorded.stdout.startswith(alone.stdout)
