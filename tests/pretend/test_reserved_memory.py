"""Memory that a loop reserves ahead, on a pretended GPU: PyTorch's real allocator stays within it."""

import gc
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from reports.promises import NanoGpt
from tests.apply.training import requested
from tests.pretend.test_apply import part_of_plain, perceptron, planned, train
from tests.pretended_gpu import free_cache
from tests.pytorch_allocator.history import recorded
from vdnnsim.api.model_plan import Planned
from vdnnsim.api.planning import plan
from vdnnsim.errors import PlanWarning
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


def planned_text(model: Text, text: Tensor, limit: int, policy: str, optimizer: str) -> Planned:
    """Return a plan within so many bytes."""
    return plan(
        *(model, text),
        hardware="rtx_4090",
        memory=f"{limit} B",
        policy=policy,
        loss=lambda loss: loss,
        optimizer=optimizer,
    )


def train_text(made: Planned, model: Text, text: Tensor, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        with made.apply(model):
            model(text).backward()
        optimizer.step()
        optimizer.zero_grad()


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
    made = planned_text(model, text, limit, "optimal(time_limit=3s)", "adamw_fused")
    train_text(made, model, text, optimizer, STEPS)
    assert {each.departure for each in made.loop.steps} == {""}
    assert torch.cuda.max_memory_reserved() <= limit
    assert torch.cuda.max_memory_allocated() == pytest.approx(made.predicted.metrics.allocated_bytes, rel=0.01)


def test_operations_are_measured_within_the_limit() -> None:
    """Blocks of 16, 32, 48 and 64 MiB, three of 64 in the last activation's backward: 192 MiB, and 0.4 of weights.

    Each forward operation finds no free block of its result's size, so that the cache of all is beyond 256 MiB.
    """
    widths = (64, 128, 192, 256)
    layers = [each for a, b in pairwise(widths) for each in (nn.Linear(a, b), nn.Tanh())]
    model, batch = nn.Sequential(*layers).cuda(), torch.zeros(1 << 16, 64, device="cuda")
    found = {}
    for memory in (None, "256 MiB"):
        free_cache()
        torch.cuda.reset_peak_memory_stats()
        found[memory] = requested(model, batch, "checkpoint", memory=memory, memory_model="pytorch").requests
        assert (torch.cuda.max_memory_reserved() <= 256 << 20) is (memory is not None)
    assert found[None] == found["256 MiB"]


def test_a_loop_before_the_plan_and_a_tensor_behind_it_leave_its_segments_whole() -> None:
    """Steps without a plan leave backward's workspace of cuBLAS in a segment of the logits, which then would stay.

    The tensor, 8 MiB in a segment of 20, exceeds the limit, and nothing else: all that was planned is reserved, and the
    warning of it moves no workspace. With 20 MiB less the logits found no room, which took 785 MiB more.
    """
    model, text = Text().cuda(), torch.zeros(16, 256, dtype=torch.long, device="cuda")
    for _ in range(2):
        model(text).backward()
    model.zero_grad()
    limit = 2600 << 20
    made = planned_text(model, text, limit, "save_on_cpu", "sgd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    held = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    with pytest.warns(PlanWarning, match=r"\b8\.\d+ MiB are of tensors that the plan was not made for$"):
        train_text(made, model, text, optimizer, 5)
    assert 0 < torch.cuda.max_memory_reserved() - limit <= 20 << 20
    assert held.is_cuda


def test_what_the_process_held_before_the_plan_is_within_the_limit() -> None:
    """A tensor of 8 MiB in a segment of 20: it is part of what is allocated, and its segment of what is reserved."""
    model, text = Text().cuda(), torch.zeros(16, 256, dtype=torch.long, device="cuda")
    held = torch.empty(8 << 20, dtype=torch.uint8, device="cuda")
    limit = 2600 << 20
    made = planned_text(model, text, limit, "save_on_cpu", "sgd")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    train_text(made, model, text, optimizer, 5)
    assert torch.cuda.max_memory_reserved() <= limit
    promised = made.predicted.metrics.allocated_bytes + held.nbytes
    assert torch.cuda.max_memory_allocated() == pytest.approx(promised, rel=0.01)


@pytest.mark.parametrize("gap_mib", [0, 9])
def test_blocks_of_a_live_step_have_their_planned_addresses(gap_mib: int) -> None:
    """Those over 1 MiB in the order of their requests, each as far from its plan as the segment that it is in.

    CUDA chooses where a segment is. Where a tensor was dropped that lay before the weights, blocks of steps find room
    in the gap that it left.
    """
    gap = torch.empty(gap_mib << 20, dtype=torch.uint8, device="cuda")
    model, batch = perceptron()
    model.cuda()
    del gap
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
