"""Optimizer states on the host: their device memory on a pretended GPU."""

import gc

import pytest
import torch
from torch import nn

from tests.apply.training import put_all_states_on_host
from vdnnsim.api.planning import plan

pytestmark = pytest.mark.pretend

LAYERS, WIDTH = 8, 1024


def test_states_are_on_the_gpu_for_their_update_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight layers of 1024 x 1024 weights and 1024 biases in float32, 4,198,400 B each, and twice that of states.

    Between steps the GPU holds weights alone; in an update, beside gradients, the states of two parameters at most and
    the copies that AdamW makes of a weight.
    """
    put_all_states_on_host(monkeypatch)
    model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))).cuda()
    batch = torch.zeros(64, WIDTH)
    made = plan(
        model,
        batch,
        hardware="rtx_4090",
        policy="optimal(recompute=false, offload_optimizer=true, time_limit=2 s)",
        loss=lambda output: output.square().mean(),
        memory_model="ideal",
    )
    weight_bytes = 4 * WIDTH * (WIDTH + 1) * LAYERS
    assert sum(map(len, made.loop.schedule.states.values())) == 2 * weight_bytes
    optimizer = torch.optim.AdamW(model.parameters())
    made.stream(optimizer, model)
    given = batch.cuda()
    held = []
    for _ in range(4):
        with made.apply(model) as log:
            model(given).square().mean().backward()
        gc.collect()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        assert torch.cuda.memory_allocated() == before
        assert torch.cuda.max_memory_allocated() - before <= 6 * 4 * WIDTH * WIDTH
        optimizer.zero_grad()
        assert log.departure == ""
        held.append(torch.cuda.memory_allocated())
    assert set(held[1:]) == {held[0]}
    states = [each["exp_avg"] for each in optimizer.state.values()]
    assert {each.device.type for each in states} == {"cpu"}
