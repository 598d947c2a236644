"""The streams of what ranks exchange, of whose memory PyTorch's allocator has a pool each."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec import structs

from tests.unit.plans.hand_written import script, with_operations
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.communication import with_communication
from vdnnsim.plans.device_requests import device_requests
from vdnnsim.plans.operations import Communicate
from vdnnsim.plans.pieces import Pieces

SCATTER, SUM, GATHER = CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER


def streams(text: str, kinds: Sequence[CollectiveKind | None]) -> list[int]:
    """Those of the buffers in order, where collectives of a script are of these kinds, or with None kernels."""
    plan, left = script(text), iter(kinds)
    made = [
        replace(each, collective=(kind := next(left)) and structs.replace(each.collective, kind=kind))
        if isinstance(each, Communicate) and each.collective is not None
        else each
        for each in plan.operations
    ]
    ready = with_communication(with_operations(plan, made))
    asked = device_requests(ready, MemoryModel.PYTORCH, 1, Pieces(ready))
    return [each.request.stream for each in asked if each.request.nbytes is not None]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((GATHER, GATHER, GATHER), [0, 1, 1]),
        ((SCATTER, None, None), [0, 2, 2]),
        ((SCATTER, SUM, None), [0, 2, 3]),
        ((SUM, None, None), [0, 1, 1]),
    ],
)
def test_what_is_reduced_and_then_cast_is_of_streams_of_its_own(
    kinds: Sequence[CollectiveKind | None], expected: list[int]
) -> None:
    """X is of the compute stream, y what the first makes of it, in which the second works, and z of the third.

    FSDP gathers on one stream, scatters sums on a second, and sums those over copies of a model on a third; it casts a
    sum where it was made last.
    """
    text = "take x; take y; take z; write x; gather x y; gather y y; gather y z; read z; free x; free y; free z"
    assert streams(text, kinds) == expected
