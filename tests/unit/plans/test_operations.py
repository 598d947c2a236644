"""Operations in words, as far as tests of lowering do not show them."""

import pytest

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.operations import Alias, Compute, Offload, Operation, Paged, Prefetch


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            Compute(0, Phase.FORWARD, "gemm", (), repeat=2, part=3),
            "forward of conv1 (gemm, recomputation 2, part 3 of the batch)",
        ),
        (Alias(1, 0), "lay map conv1 into map input"),
        (
            Prefetch(1, 0, on_demand=False, extent=range(9, 10)),
            "prefetch of bytes 9 to 9 of map conv1 during backward of conv1",
        ),
        (Prefetch(1, 1, on_demand=True, phase=Phase.FORWARD), "fetch on demand of map conv1 during forward of conv2"),
        (Offload(1, 1, Phase.BACKWARD_DATA, Paged(4096, 1e-5)), "page-out of map conv1 for conv2"),
        (Prefetch(1, 0, on_demand=True, mechanism=Paged(4096, 1e-5)), "page-in of map conv1 for conv1"),
    ],
)
def test_operations_are_described_in_one_line(operation: Operation, expected: str) -> None:
    assert describe(operation, ("map input", "map conv1"), ("conv1", "conv2")) == expected
