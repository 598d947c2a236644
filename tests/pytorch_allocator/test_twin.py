"""Random traces of PyTorch's allocator, and the table of their outcomes."""

import random
from dataclasses import replace

import pytest

from tests.pytorch_allocator.model import Divergence
from tests.pytorch_allocator.random_traces import RandomTrace, Sizes, random_traces
from tests.pytorch_allocator.twin import TRACE_COLUMNS, TraceOutcome, trace_rows
from vdnnsim.memory.settings import DEFAULTS
from vdnnsim.units import MIB


def test_traces_have_every_combination() -> None:
    traces = random_traces(90, 10_000)

    assert len({(each.sizes, each.settings) for each in traces}) == 5 * 9
    assert len({(each.streams, each.settings) for each in traces}) == 2 * 9
    assert len({(each.memory_bytes > 2**35, each.settings) for each in traces}) == 2 * 9
    assert len({each.seed for each in traces}) == 90


@pytest.mark.parametrize("sizes", Sizes)
def test_sizes_are_of_their_kind(sizes: Sizes) -> None:
    """Small ones are of at most somewhat over 1 MiB, large ones of 1 to 256 MiB, alike ones of eight values at most."""
    numbers = random.Random(1)  # noqa: S311  # picks sizes
    drawn = [sizes.draw(numbers) for _ in range(2000)]

    assert min(drawn) >= 1
    assert {
        Sizes.SMALL: max(drawn) <= MIB + 600,
        Sizes.LARGE: min(drawn) >= MIB and max(drawn) <= 256 * MIB,
        Sizes.EDGES: {10 * MIB - 512, 10 * MIB, 10 * MIB + 512} <= set(drawn),
        Sizes.ALIKE: len(set(drawn)) <= 8,
        Sizes.MIXED: min(drawn) <= 4096 and max(drawn) > 3 * MIB,
    }[sizes]


def test_traces_of_one_kind_are_one_row() -> None:
    """Two of small sizes, of which one has several streams and diverges."""
    trace = RandomTrace(Sizes.SMALL, 0, 100, MIB, streams=1, settings=DEFAULTS)
    outcomes = [
        TraceOutcome(trace, 100, 7, 0, None),
        TraceOutcome(replace(trace, streams=4), 50, 1, 3, Divergence(49, "address", 0, 512)),
    ]

    rows = trace_rows(outcomes)

    assert len(rows) == 9
    assert dict(zip(TRACE_COLUMNS, rows[0], strict=True)) == {
        "PYTORCH_ALLOC_CONF": "not set",
        "traces": "2",
        "with several streams": "1",
        "events": "150",
        "refusals": "8",
        "blocks that waited": "3",
        "divergences": "1",
    }
    assert rows[1] == ("expandable_segments:True", "0", "0", "0", "0", "0", "0")
