"""How programs end under `vdnnsim pretend`, and what becomes of their processes."""

import json

import pytest

from tests.pretend.command import Pretend

pytestmark = pytest.mark.pretend


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
