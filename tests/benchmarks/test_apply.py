"""What a live plan costs the host, as ratios within one run: `make bench`."""

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from calibration.apply.live_schedule import LiveSchedule
from tests.benchmarks.timing import best_s
from vdnnsim.api.planning import plan

pytestmark = pytest.mark.benchmark

LAYERS = 200
RUNS = 40


def loss(output: Tensor) -> Tensor:
    return output.square().mean()


def test_hooks_cost_about_what_those_of_save_on_cpu_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward of small layers, less the same without hooks, by tensor that is saved: time of all threads.

    A tensor of 16 values is moved by a thread of copies and comes back through its queue; `save_on_cpu` copies nothing
    on a CPU, and costs its hooks alone, as what a plan keeps.
    """
    model = nn.Sequential(*[each for _ in range(LAYERS) for each in (nn.Linear(4, 4), nn.Tanh())])
    batch = torch.randn(4, 4)

    def planned(policy: str) -> tuple[float, int]:
        made = plan(model, batch, hardware="rtx_4090", policy=policy, loss=loss, optimizer="sgd", memory_model="ideal")

        def step() -> None:
            with made.apply(model):
                loss(model(batch)).backward()  # type: ignore[no-untyped-call]

        seconds = best_s(step, RUNS, clock=time.process_time)
        assert not made.loop.steps[-1].departure
        return seconds, len(made.loop.schedule.tape.saves)

    def plain() -> None:
        loss(model(batch)).backward()  # type: ignore[no-untyped-call]

    def theirs() -> None:
        with save_on_cpu():
            loss(model(batch)).backward()  # type: ignore[no-untyped-call]

    plain_s = best_s(plain, RUNS, clock=time.process_time)
    theirs_s = best_s(theirs, RUNS, clock=time.process_time)
    kept_s, saves = planned("pytorch")
    moved_s, _ = planned("save_on_cpu")
    hook_s = (theirs_s - plain_s) / saves
    kept, moved = (kept_s - plain_s) / (theirs_s - plain_s), (moved_s - plain_s) / (theirs_s - plain_s)
    with capsys.disabled():
        sys.stdout.write(
            f"\nhooks by saved tensor: save_on_cpu {hook_s * 1e6:.1f} us, kept {kept:.2f} of it, moved {moved:.2f}\n"
        )
    assert kept < 6


class Block(nn.Module):
    """A block of a transformer, so narrow that its kernels take next to nothing."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        heads = (each.unflatten(2, (2, -1)).transpose(1, 2) for each in self.qkv(self.norm1(x)).chunk(3, 2))
        x = x + self.out(functional.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))
        up: Tensor = self.up(self.norm2(x))
        return x + self.down(functional.gelu(up))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    """Twelve blocks, each under non-reentrant checkpointing if `is_checkpointed`."""

    is_checkpointed = False

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(12))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.is_checkpointed else block(x)
        return x


def test_host_time_of_a_step_that_the_host_decides(capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward of twelve blocks under autocast, by the host's time in one run.

    Beside the plain loop: under a plan that moves nothing, under PyTorch's checkpoint of each block, and under a plan
    that recomputes. By recomputed operation, what a step takes beyond the plain one, in forward and backward; the
    checkpoints recompute every operation of the blocks.
    """
    model, batch = Transformer(), torch.randn(2, 4, 16)

    def of_float(output: Tensor) -> Tensor:
        return output.float().square().mean()

    def step_s(context: Callable[[], AbstractContextManager[object]] = nullcontext) -> tuple[float, float]:
        """Shortest forward and backward."""
        times = []
        for _ in range(20):
            with context():
                begin = time.thread_time()
                with torch.autocast("cpu", torch.bfloat16):
                    found = of_float(model(batch))
                between = time.thread_time()
                found.backward()  # type: ignore[no-untyped-call]
                times.append((between - begin, time.thread_time() - between))
        return min(each for each, _ in times), min(each for _, each in times)

    def planned(policy: str) -> tuple[tuple[float, float], LiveSchedule]:
        choices = {"hardware": "rtx_4090", "optimizer": "sgd", "memory_model": "ideal", "precision": "amp_bfloat16"}
        made = plan(model, batch, policy=policy, loss=of_float, **choices)  # type: ignore[arg-type]
        seconds = step_s(lambda: made.apply(model))
        assert not made.loop.steps[-1].departure
        return seconds, made.loop.schedule

    plain = step_s()
    kept, _ = planned("pytorch")
    model.is_checkpointed = True
    theirs = step_s()
    model.is_checkpointed = False
    ours, schedule = planned("checkpoint")
    operations = len(schedule.tape.of_model)
    theirs_s = (sum(theirs) - sum(plain)) / operations
    ours_s = (sum(ours) - sum(plain)) / len(schedule.recomputed_operations)
    with capsys.disabled():
        sys.stdout.write(
            f"\nhost time, {operations} operations of forward: plain {sum(plain) * 1e3:.1f} ms a step; "
            f"planned, nothing moved: forward {kept[0] / plain[0]:.2f} of plain, step {sum(kept) / sum(plain):.2f}; "
            f"checkpoint {sum(theirs) / sum(plain):.2f}, planned recomputation {sum(ours) / sum(plain):.2f}; by "
            f"recomputed operation {theirs_s * 1e6:.0f} us, planned {ours_s / theirs_s:.2f} of it\n"
        )
    assert kept[0] < 2 * plain[0]
    assert sum(ours) < 3 * sum(theirs)
