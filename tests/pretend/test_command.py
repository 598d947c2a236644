"""`vdnnsim pretend` as its users run it, on small programs that are written here."""

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vdnnsim.units import GIB, MIB

pytestmark = pytest.mark.pretend

ROOT = Path(__file__).parents[2]
MAIN = "from vdnnsim.cli import main; main()"


@dataclass(frozen=True)
class Done:
    """Output and files of the command."""

    returncode: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def told(self) -> str:
        """The table and the sentences, however their lines are broken."""
        return " ".join(self.stdout.split())

    @property
    def record(self) -> dict[str, Any]:
        """What the only process recorded."""
        manifest = json.loads((self.folder / "run.json").read_text())
        (process,) = manifest["processes"]
        assert isinstance(process, dict)
        return process


@pytest.fixture
def pretend(tmp_path: Path) -> "Pretend":
    return Pretend(tmp_path)


class Pretend:
    """Runs a program on a pretended RTX 3090: 23.7 GiB; its context takes 488 MiB."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, program: str, *options: str, launcher: tuple[str, ...] = ()) -> Done:
        script, out = self._folder / "train.py", self._folder / "out"
        script.write_text(program)
        where = ("--hardware", "rtx_3090", "--out", str(out))
        done = run(self._folder, "-c", MAIN, "pretend", *where, *options, "--", sys.executable, *launcher, str(script))
        return Done(done.returncode, done.stdout, done.stderr, out)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python without the GPU that this test runs on; the command brings its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VDNNSIM_PRETEND", "LD_PRELOAD"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=kept | {"PYTHONPATH": str(ROOT)},
    )


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


def test_memory_is_reported_by_phase_and_module(pretend: Pretend) -> None:
    """A weight of 4 MiB; its gradient, made in backward, and its momentum, made by the optimizer, as much each."""
    done = pretend(ENDLESS, "--steps", "2")
    (gpu,) = done.record["gpus"]
    held = {(each["phase"], each["module"], each["line"].rpartition(":")[2]): each for each in gpu["peak"]["holders"]}
    assert held["elsewhere", "", "3"]["nbytes"] == 4 * MIB
    assert held["optimizer", "", "10"]["nbytes"] >= 4 * MIB
    assert held["backward", "Linear", "7"]["nbytes"] >= 4 * MIB


def test_a_step_lasts_what_the_rates_say(pretend: Pretend) -> None:
    """Two products of 8192 x 8192 x 8192 at 35.58 TFLOP/s in float32: 2 x 30.9 ms, forward and for the weight.

    What else there is moves at most twelve times 256 MiB at 936.2 GB/s, 3.4 ms, in at most 40 kernels of 5 us.
    """
    done = pretend(
        ENDLESS.replace("1024, 1024, bias", "8192, 8192, bias").replace("256, 1024", "8192, 8192"), "--steps", "1"
    )
    products = 2 * (2 * 8192**3 / 35.58e12)
    assert products <= done.record["step_s"] <= products + 12 * 256 * MIB / 936.2e9 + 40 * 5e-6
    assert "predicted: 6" in done.told


def test_out_of_memory_names_a_card_that_fits(pretend: Pretend) -> None:
    """20 GiB fit into 23.7, 10 more do not; together with a context 30 GiB fit into 31.7, the smallest card above."""
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
    assert "v100 (31.7 GiB) is the smallest known card" in done.told
    assert (done.folder / "again.log").read_bytes() == b""


def test_a_boolean_index_is_refused_with_its_line(pretend: Pretend) -> None:
    done = pretend("""
import torch
values = torch.empty(100, device="cuda")
positive = values[values > 0]
""")
    assert done.returncode == 1
    sentence = "nonzero (a boolean index is one) has a result whose size depends on values"
    assert sentence in done.stderr
    assert f"{sentence}, which a pretended GPU does not compute; called at" in done.told
    assert f"{done.folder.parent}/train.py:4" in done.told.replace(" ", "")


def test_a_compiled_module_runs_as_it_is_and_says_so(pretend: Pretend) -> None:
    """A Linear of 64 to 10 keeps, eagerly, its 8 x 64 input alone; whatever is compiled would want a card to run."""
    done = pretend("""
import torch
module = torch.compile(torch.nn.Linear(64, 10).cuda())
module(torch.zeros(8, 64, device="cuda")).sum().backward()
""")
    assert done.returncode == 0
    assert "torch.compile was left out, and all ran eagerly" in done.told


def test_a_loop_without_steps_ends_with_its_time(pretend: Pretend) -> None:
    done = pretend(
        """
import torch
value = torch.empty(1, device="cuda")
while not value.item() > 0:
    value = value * 2
""",
        "--minutes",
        "0.2",
    )
    assert done.returncode == 0, done.stderr
    assert "ended because its time was over (--minutes)" in done.told
    assert done.record["zeros_read"][0][0] == f"{done.folder.parent}/train.py:4"


def test_errors_and_exit_status_of_a_program_pass_through(pretend: Pretend) -> None:
    begin = "import sys, torch\ntorch.empty(1, device='cuda')\n"
    assert pretend(f"{begin}sys.exit(7)").returncode == 7
    done = pretend(f"{begin}raise ValueError('mine')")
    assert done.returncode == 1
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert "ValueError: mine" in done.stderr
    assert "the program ended with ValueError: mine" in done.told


def test_program_without_cuda_is_reported(pretend: Pretend) -> None:
    done = pretend("import torch\nprint(torch.ones(2).sum().item())")
    assert done.returncode == 0
    assert done.stdout.startswith("2.0\n")
    assert "no process of the command used a GPU" in done.told
    assert sorted(path.name for path in done.folder.iterdir()) == ["run.json", "steps.csv"]


def test_workers_that_load_data_record_nothing(pretend: Pretend) -> None:
    done = pretend("""
import torch
from torch.utils.data import DataLoader, Dataset

class Pictures(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        return torch.full((3, 16, 16), float(index)), index % 10

net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 10))
net = net.cuda()
optimizer = torch.optim.AdamW(net.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for pictures, labels in DataLoader(Pictures(), 32, num_workers=2, pin_memory=True, persistent_workers=True):
    with torch.autocast("cuda", dtype=torch.float16):
        made = net(pictures.cuda(non_blocking=True))
    loss = torch.nn.functional.cross_entropy(made, labels.cuda(non_blocking=True))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""")
    assert done.returncode == 0, done.stderr
    assert done.record["ended"] == "steady"
    assert done.record["step_s"] > 0


def test_a_program_that_catches_everything_ends_all_the_same(pretend: Pretend) -> None:
    done = pretend(
        """
import torch
weight = torch.nn.Parameter(torch.empty(8, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=0.1)
while True:
    try:
        weight.sum().backward()
        optimizer.step()
    except:
        pass
""",
        "--steps",
        "1",
    )
    assert done.returncode == 0, done.stderr
    assert "there the program was ended" in done.told


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


def test_recording_changes_nothing_of_what_is_allocated(pretend: Pretend, tmp_path: Path) -> None:
    """The same program on the same card, recorded and not, tells the same 15 sums after each of four steps."""
    recorded = pretend(RESIDUAL, "--whole")
    (tmp_path / "train.py").write_text(RESIDUAL)
    hardware = ("--hardware", "rtx_3090")
    alone = run(tmp_path, "-m", "calibration.pretend", *hardware, "--", sys.executable, "train.py")
    assert alone.stdout.count("\n") == 4
    assert recorded.stdout.startswith(alone.stdout)


def test_processes_of_a_group_end_after_the_same_step(pretend: Pretend) -> None:
    """Two ranks on a GPU each, which exchange gradients by gloo; PyTorch's own check of their sizes reads true ones."""
    done = pretend(
        """
import torch
from torch import distributed
distributed.init_process_group("gloo")
rank = distributed.get_rank()
torch.cuda.set_device(rank)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100).cuda(), device_ids=[rank])
optimizer = torch.optim.Adam(net.parameters())
while True:
    optimizer.zero_grad()
    net(torch.empty(4, 100, device="cuda")).sum().backward()
    optimizer.step()
""",
        "--gpus",
        "2",
        "--steps",
        "2",
        launcher=("-m", "torch.distributed.run", "--nproc-per-node", "2"),
    )
    assert done.returncode == 0, done.stderr
    processes = json.loads((done.folder / "run.json").read_text())["processes"]
    assert [(each["rank"], [gpu["gpu"] for gpu in each["gpus"]]) for each in processes] == [(0, [0]), (1, [1])]
    assert {len(each["steps"]) for each in processes} == {4}
    assert {each["ended"] for each in processes} == {"steady"}
