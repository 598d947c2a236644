"""Memory that a loop reserves ahead, on a pretended GPU: PyTorch's real allocator stays within it."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from reports.promises import NanoGpt
from tests.pretended_gpu import free_cache
from vdnnsim.api.planning import plan

pytestmark = pytest.mark.pretend

STEPS = 50


class Text(nn.Module):
    """A small GPT with its loss, whose logits are far larger than all else."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = NanoGpt(blocks=4, width=128, heads=4, words=50257)

    def forward(self, text: Tensor) -> Tensor:
        """Return the loss of the text itself."""
        return functional.cross_entropy(self.gpt(text).flatten(0, 1), text.flatten())


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    gc.collect()
    free_cache()
    yield
    free_cache()


def test_fifty_steps_reserve_what_was_stated_and_allocate_what_was_promised() -> None:
    """Within 1 %, with states that the first update makes, and without growth."""
    model, text = Text().cuda(), torch.zeros(16, 256, dtype=torch.long, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    limit = 2800 << 20
    made = plan(
        *(model, text),
        hardware="rtx_4090",
        memory=f"{limit} B",
        policy="optimal(time_limit=3s)",
        loss=lambda loss: loss,
        optimizer="adamw_fused",
    )
    for _ in range(STEPS):
        with made.apply(model):
            model(text).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert {each.departure for each in made.loop.steps} == {""}
    assert torch.cuda.max_memory_reserved() <= limit
    assert torch.cuda.max_memory_allocated() == pytest.approx(made.predicted.metrics.max_memory_bytes, rel=0.01)
