import pytest

from tests.toy import touching
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import (
    Alias,
    Allocate,
    AllocateExtent,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Paged,
    Prefetch,
    RecordEvent,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
    describe,
)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (Compute(1, Phase.BACKWARD_DATA, "gemm", touching(reads=[0], writes=[1])), "backward data of conv2 (gemm)"),
        (
            Compute(0, Phase.FORWARD, "gemm", (), repeat=2, part=3),
            "forward of conv1 (gemm, recomputation 2, part 3 of the batch)",
        ),
        (Allocate(0, 1, Phase.FORWARD), "allocate map input"),
        (Alias(1, 0), "lay map conv1 into map input"),
        (Release(1), "release map conv1"),
        (AllocateExtent(1, range(512, 612), 1, Phase.FORWARD), "allocate bytes 512 to 611 of map conv1"),
        (ReleaseExtent(1, range(512)), "release bytes 0 to 511 of map conv1"),
        (Offload(1, 0, extent=range(2)), "offload of bytes 0 to 1 of map conv1 during forward of conv1"),
        (
            Prefetch(1, 0, on_demand=False, extent=range(9, 10)),
            "prefetch of bytes 9 to 9 of map conv1 during backward of conv1",
        ),
        (Offload(1, 0), "offload of map conv1 during forward of conv1"),
        (Prefetch(1, 0, on_demand=True), "fetch on demand of map conv1 during backward of conv1"),
        (
            Prefetch(1, 1, on_demand=True, phase=Phase.FORWARD),
            "fetch on demand of map conv1 during forward of conv2",
        ),
        (Offload(1, 1, Phase.BACKWARD_DATA, Paged(4096, 1e-5)), "page-out of map conv1 for conv2"),
        (Prefetch(1, 0, on_demand=True, mechanism=Paged(4096, 1e-5)), "page-in of map conv1 for conv1"),
        (RecordEvent(7, Stream.COMPUTE), "record event 7 on the compute stream"),
        (WaitEvent(7, Stream.MEMORY), "wait for event 7 on the memory stream"),
        (HostSynchronize((Stream.COMPUTE, Stream.MEMORY)), "host synchronization with compute and memory"),
    ],
)
def test_every_operation_reads_as_one_line(operation: Operation, expected: str) -> None:
    """Buffers 0 and 1 are `map input` and `map conv1`, layers 0 and 1 `conv1` and `conv2`."""
    assert describe(operation, ("map input", "map conv1"), ("conv1", "conv2")) == expected
