"""What the hooks of a live plan cost on the CPU, as a ratio within one run: `make bench`."""

import sys

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import save_on_cpu

from tests.benchmarks.timing import best_s
from vdnnsim.api.planning import plan

pytestmark = pytest.mark.benchmark

LAYERS = 200


def loss(output: Tensor) -> Tensor:
    return output.square().mean()


def test_hooks_cost_about_what_those_of_save_on_cpu_do(capsys: pytest.CaptureFixture[str]) -> None:
    """Forward and backward of small layers, less the same without hooks, by tensor that is saved.

    A tensor of 16 values is moved by a thread of copies and comes back through its queue; `save_on_cpu` copies where it
    stands. What is to be kept moves nowhere, and costs the hook alone.
    """
    model = nn.Sequential(*[each for _ in range(LAYERS) for each in (nn.Linear(4, 4), nn.Tanh())])
    batch = torch.randn(4, 4)

    def planned(policy: str) -> tuple[float, int]:
        made = plan(model, batch, hardware="rtx_4090", policy=policy, loss=loss, optimizer="sgd", memory_model="ideal")

        def step() -> None:
            with made.apply(model):
                loss(model(batch)).backward()  # type: ignore[no-untyped-call]

        seconds = best_s(step)
        assert not made.loop.steps[-1].departure
        return seconds, len(made.loop.schedule.tape.saves)

    def theirs() -> None:
        with save_on_cpu():
            loss(model(batch)).backward()  # type: ignore[no-untyped-call]

    plain_s = best_s(lambda: loss(model(batch)).backward())  # type: ignore[no-untyped-call]
    theirs_s = best_s(theirs)
    kept_s, saves = planned("pytorch")
    moved_s, _ = planned("save_on_cpu")
    hook_s = (theirs_s - plain_s) / saves
    kept, moved = (kept_s - plain_s) / (theirs_s - plain_s), (moved_s - plain_s) / (theirs_s - plain_s)
    with capsys.disabled():
        sys.stdout.write(
            f"\nhooks by saved tensor: save_on_cpu {hook_s * 1e6:.1f} us, kept {kept:.2f} of it, moved {moved:.2f}\n"
        )
    assert kept < 6
