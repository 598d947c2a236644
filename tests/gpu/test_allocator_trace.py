"""The simulator's model of PyTorch's caching allocator, held against the allocator itself."""

import random

import pytest
import torch

from tests.pytorch_allocator.trace import compare_reserved, record_trace

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]


@pytest.mark.parametrize("seed", range(5))
def test_random_allocations_reserve_what_the_model_says(seed: int) -> None:
    """300 allocations of 1 B to 200 MiB, each freed at a random later moment."""
    random_numbers = random.Random(seed)  # noqa: S311  # picks sizes

    def work() -> None:
        live: list[torch.Tensor] = []
        for _ in range(300):
            nbytes = round(2 ** random_numbers.uniform(0, 27.6))
            live.append(torch.empty(nbytes, dtype=torch.uint8, device="cuda"))
            while live and random_numbers.random() < 0.5:
                live.pop(random_numbers.randrange(len(live)))

    compared = compare_reserved(record_trace(work, 0), torch.cuda.get_device_properties(0).total_memory)
    assert compared
    assert [each.replayed_bytes for each in compared] == [each.recorded_bytes for each in compared]
