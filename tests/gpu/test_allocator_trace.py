"""The simulator's model of PyTorch's caching allocator, held against the allocator itself."""

import random

import pytest
import torch

from tests.pretended_gpu import is_pretended
from tests.pytorch_allocator.history import History, recorded
from tests.pytorch_allocator.model import GpuMemory

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]


@pytest.mark.parametrize("seed", range(5))
def test_random_allocations_lie_where_the_model_says(seed: int) -> None:
    """300 allocations of 1 B to 200 MiB, each freed at a random later moment; the allocator was empty before."""
    if torch.__version__ < "2.14" and not is_pretended():
        pytest.skip("among equal blocks PyTorch before 2.14 takes that which the driver put lowest")
    random_numbers = random.Random(seed)  # noqa: S311  # picks sizes

    def work() -> None:
        live: list[torch.Tensor] = []
        for _ in range(300):
            nbytes = round(2 ** random_numbers.uniform(0, 27.6))
            live.append(torch.empty(nbytes, dtype=torch.uint8, device="cuda"))
            while live and random_numbers.random() < 0.5:
                live.pop(random_numbers.randrange(len(live)))

    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    _, entries = recorded(work, 0)
    memory_bytes = torch.cuda.get_device_properties(0).total_memory
    history = History(GpuMemory(memory_bytes, memory_bytes))
    history.replay(entries)
    assert history.beside.divergence is None
    assert history.requests == 300
