"""A live plan beside what PyTorch's users do today, in the same loop under the same limit; on a pretended GPU as well.

`pytest -m gpu tests/gpu/test_apply.py --tables DIR` writes the table.
"""

import csv
import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from vdnnsim.api.live import plan

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

COLUMNS = (
    "way",
    "limit_bytes",
    "allocates_no_more",
    "step_s",
    "peak_bytes",
    "reserved_bytes",
    "promised_step_s",
    "promised_peak_bytes",
)
STEPS = 6
Applied = Callable[[nn.Module], AbstractContextManager[Any]]


class Blocks(nn.Module):
    """A stack of transformer blocks, each computed again in backward where it is asked for."""

    again = False

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(8))

    def forward(self, batch: Tensor) -> Tensor:
        for block in self.blocks:
            batch = checkpoint(block, batch, use_reentrant=False) if self.again else block(batch)
        return batch


class OffloadAll(saved_tensors_hooks):
    """All that is saved and over 1 KiB goes to pinned memory on a stream of its own, and comes back when it is taken.

    As torchtune does it: a source lives until its copy has ended, at most two of them at a time; parameters stay.
    """

    def __init__(self, model: nn.Module) -> None:
        self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        self._parameters = {each.untyped_storage().data_ptr() for each in model.parameters()}
        self._leaving: list[tuple[Tensor, torch.cuda.Event]] = []
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: Tensor) -> tuple[Tensor, bool]:
        if tensor.nbytes < 1024 or tensor.untyped_storage().data_ptr() in self._parameters:
            return tensor, False
        host = torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, pin_memory=True)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), torch.no_grad():
            host.copy_(tensor, non_blocking=True)
            self._leaving.append((tensor, self._stream.record_event()))
        while len(self._leaving) > 2:
            torch.cuda.current_stream().wait_event(self._leaving.pop(0)[1])
        return host, True

    def _unpack(self, packed: tuple[Tensor, bool]) -> Tensor:
        kept, is_away = packed
        if not is_away:
            return kept
        self._leaving.clear()
        back = torch.empty_strided(kept.size(), kept.stride(), dtype=kept.dtype, device="cuda")
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream), torch.no_grad():
            back.copy_(kept, non_blocking=True)
        torch.cuda.current_stream().wait_stream(self._stream)
        return back


def loss(output: Tensor) -> Tensor:
    return output.square().mean()


def clean() -> None:
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # there is no public way
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def timed(model: nn.Module, batch: Tensor, applied: Applied) -> tuple[float, int, int]:
    """Return the shortest step in seconds, and the most that was allocated and reserved."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    clean()
    seconds = []
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with applied(model):
            loss(model(batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return min(seconds), torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


def test_a_plan_beside_what_is_done_today(request: pytest.FixtureRequest) -> None:
    """At two limits below what the plain loop allocates, the plan keeps to its peak within 1 %."""
    model = Blocks().cuda()
    batch = torch.zeros(16, 256, 512, device="cuda")
    plain = timed(model, batch, lambda _: nullcontext())
    rows: list[tuple[object, ...]] = [("plain, no limit", "", True, *plain, "", "")]
    for part in (0.8, 0.6):
        limit = int(plain[1] * part)
        made = plan(model, batch, hardware="rtx_4090", memory=f"{limit} B", loss=loss, optimizer="sgd")
        metrics = made.predicted.metrics
        ways: dict[str, tuple[Applied, bool]] = {
            "plain": (lambda _: nullcontext(), False),
            "plan": (made.apply, False),
            "save_on_cpu": (lambda _: save_on_cpu(pin_memory=True), False),
            "offload of all": (OffloadAll, False),
            "checkpoint by block": (lambda _: nullcontext(), True),
        }
        for way, (applied, again) in ways.items():
            model.again = again
            found = timed(model, batch, applied)
            promised: tuple[object, ...] = ("", "")
            if way == "plan":
                promised = metrics.iteration_s, metrics.max_memory_bytes
            rows.append((way, limit, found[1] <= limit, *found, *promised))
        model.again = False
    folder = request.config.getoption("--tables")
    if folder is not None:
        with (Path(folder) / "comparison.csv").open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows])
    for row in rows:
        assert row[0] != "plan" or row[4] == pytest.approx(row[-1], rel=0.01)
