"""Memory that a loop reserves ahead, on a pretended GPU: PyTorch's real allocator stays within it."""

import gc
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from reports.promises import NanoGpt
from tests.pretend.test_apply import part_of_plain, perceptron, planned, train
from tests.pretended_gpu import free_cache
from tests.pytorch_allocator.history import recorded
from vdnnsim.api.planning import plan
from vdnnsim.plans.repetition import resident_buffers

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


def test_blocks_of_a_live_step_have_their_planned_addresses() -> None:
    """Those over 1 MiB in the order of their requests, each as far from its plan as the segment that it is in.

    CUDA chooses where a segment is. Weights take whole segments here, so that none of them has free blocks which the
    plan does not know.
    """
    model, batch = perceptron()
    model.cuda()
    made = planned(model, batch, part_of_plain(model, batch, 0.6))
    model.zero_grad()
    train(model, batch, 3, made.apply)
    _, entries = recorded(lambda: train(model, batch, 1, made.apply), 0)
    live = [(each["size"], each["addr"]) for each in entries if each["action"] == "alloc" and each["size"] > 1 << 20]

    trace = made.predicted.trace
    buffers, stays = trace.plan.buffers, resident_buffers(trace.plan)
    changes = sorted((each for each in trace.memory if each.delta_bytes > 0), key=lambda each: each.operation)
    own = [(buffers[each.buffer].nbytes, each.offset) for each in changes if each.buffer not in stays]
    asked = [(nbytes, offset) for nbytes, offset in own if nbytes > 1 << 20 and offset is not None]

    assert [nbytes for nbytes, _ in live] == [nbytes for nbytes, _ in asked]
    found = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    segments = [range(each["address"], each["address"] + each["total_size"]) for each in found]
    displaced = {
        (next(each for each in segments if address in each), address - offset)
        for (_, address), (_, offset) in zip(live, asked, strict=True)
    }
    assert len(displaced) == len({segment for segment, _ in displaced})
    assert len(live) > 50
