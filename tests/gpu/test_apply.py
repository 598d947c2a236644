"""Live plans beside other ways to save memory, in the same loop under the same limit; on a pretended GPU as well.

`pytest -m gpu tests/gpu/test_apply.py --tables reports/apply` writes the table, `python -m reports.apply_pages
reports/apply` its page.
"""

import csv
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from tests.pretended_gpu import free_cache, is_pretended
from vdnnsim.api.planning import plan
from vdnnsim.errors import PolicyError

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

COLUMNS = (
    *("model", "way", "limit_bytes", "step_s", "allocated_bytes", "reserved_bytes"),
    *("promised_step_s", "promised_bytes"),
)
STEPS = 4
PARTS = (0.8, 0.6)
"""Limits, of what the plain loop allocates."""
Applied = Callable[[nn.Module], AbstractContextManager[Any]]


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True) for _ in range(8))
        self.again = False

    def set_grad_checkpointing(self, enable: bool) -> None:  # noqa: FBT001  # as timm calls it
        """Compute each block again in backward, or not."""
        self.again = enable

    def forward(self, batch: Tensor) -> Tensor:
        for block in self.blocks:
            batch = checkpoint(block, batch, use_reentrant=False) if self.again else block(batch)
        return batch


def transformer() -> tuple[nn.Module, Tensor]:
    return Blocks(), torch.zeros(16, 256, 512)


def timm(name: str) -> Callable[[], tuple[nn.Module, Tensor]]:
    def make() -> tuple[nn.Module, Tensor]:
        return pytest.importorskip("timm").create_model(name), torch.zeros(16, 3, 224, 224)

    return make


MODELS = {"transformer": transformer, "resnet50": timm("resnet50"), "vit_small": timm("vit_small_patch16_224")}


class OffloadAll(saved_tensors_hooks):
    """Saved tensors over 1 KiB are offloaded on a stream of their own, and prefetched when they are unpacked.

    As in torchtune: a source lives until its copy has ended, at most two at a time; parameters stay.
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


@dataclass(frozen=True)
class Found:
    """The shortest step, and peaks of memory; no time of a loop that ran out of memory."""

    step_s: float | None
    allocated_bytes: int
    reserved_bytes: int

    @property
    def cells(self) -> tuple[object, ...]:
        """As the table has them."""
        return "" if self.step_s is None else self.step_s, self.allocated_bytes, self.reserved_bytes


def loss(output: Tensor) -> Tensor:
    return output.square().mean()


def clean(model: nn.Module) -> None:
    model.zero_grad()
    free_cache()
    torch.cuda.reset_peak_memory_stats()


def timed(model: nn.Module, batch: Tensor, applied: Applied) -> Found:
    clean(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    try:
        seconds = min(steps(model, batch, optimizer, applied))
    except torch.OutOfMemoryError:
        seconds = None
    return Found(seconds, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved())


def steps(model: nn.Module, batch: Tensor, optimizer: torch.optim.Optimizer, applied: Applied) -> Iterator[float]:
    for _ in range(STEPS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with applied(model):
            loss(model(batch)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        yield time.perf_counter() - begin


def plain(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def on_cpu(_: nn.Module) -> AbstractContextManager[Any]:
    return save_on_cpu(pin_memory=True)


@pytest.fixture
def reserve() -> Iterator[Callable[[int], None]]:
    """Let PyTorch reserve so many bytes from then on, as on a smaller GPU."""

    def at_most(nbytes: int) -> None:
        torch.cuda.set_per_process_memory_fraction(nbytes / torch.cuda.get_device_properties(0).total_memory)

    yield at_most
    torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.mark.parametrize("name", MODELS)
def test_a_plan_beside_what_is_done_today(
    name: str, reserve: Callable[[int], None], request: pytest.FixtureRequest
) -> None:
    """At two limits below what the plain loop allocates, a plan allocates what it promised within 1 %."""
    model, batch = MODELS[name]()
    model.cuda()
    batch = batch.cuda()
    unlimited = timed(model, batch, plain)
    rows: list[tuple[object, ...]] = [(name, "plain", "", *unlimited.cells, "", "")]
    for part in PARTS:
        limit = int(unlimited.allocated_bytes * part)
        rows += [
            (name, f"plan: {policy}", limit, *by_plan(model, batch, limit, policy, reserve))
            for policy in ("optimal", "checkpoint")
        ]
        reserve(limit)
        for way, applied in (("save_on_cpu", on_cpu), ("offload of all", OffloadAll)):
            rows.append((name, way, limit, *timed(model, batch, applied).cells, "", ""))
        model.set_grad_checkpointing(True)  # type: ignore[operator]
        rows.append((name, "checkpoint", limit, *timed(model, batch, plain).cells, "", ""))
        model.set_grad_checkpointing(False)  # type: ignore[operator]
    folder = request.config.getoption("--tables")
    if folder is not None:
        add(Path(folder) / "comparison.csv", rows)
    for _, _, _, step_s, allocated_bytes, _, _, promised_bytes in rows:
        if step_s and promised_bytes:
            assert allocated_bytes == pytest.approx(promised_bytes, rel=0.01)


def by_plan(
    model: nn.Module, batch: Tensor, limit: int, policy: str, reserve: Callable[[int], None]
) -> tuple[object, ...]:
    """Return what was found of a plan, which keeps to the limit itself, and its promise; nothing where none fits."""
    clean(model)
    reserve(torch.cuda.get_device_properties(0).total_memory)
    hardware = "rtx_4090" if is_pretended() else "auto"
    try:
        made = plan(model, batch, hardware=hardware, memory=f"{limit} B", policy=policy, loss=loss, optimizer="sgd")
    except PolicyError:
        return "", "", "", "", ""
    found, promised = timed(model, batch, made.apply), made.predicted.metrics
    return *found.cells, promised.iteration_s, promised.allocated_bytes


def add(path: Path, rows: list[tuple[object, ...]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    begins = not path.exists()
    with path.open("a", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *rows] if begins else rows)
