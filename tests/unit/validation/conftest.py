"""A row that ran, worked out by hand: two layers, one copy out and back, 8 s and 60 B (`tests/unit/report`)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.unit.report.conftest import move_trace
from tests.unit.validation.fake_device import slowed
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.validation.method import Task
from vdnnsim.validation.row import Outcome, Row, Side

RowMaker = Callable[..., Row]


def one_side(factor: float = 1.0, requested_bytes: int = 60) -> Side:
    """An iteration of 8 s times a factor, of which 4 s are stalls, with 10 B offloaded."""
    return Side.of(slowed(move_trace(), factor), MemoryCount(requested_bytes, None, None))


@pytest.fixture
def make_row() -> RowMaker:
    """Make a row whose device was slower than the simulator by a factor."""

    def make(
        slower: float = 1.0,
        *,
        network: str = "alexnet",
        requested_bytes: int = 60,
        predicted_share: float = 0.0,
        order_fault: str | None = None,
    ) -> Row:
        return replace(
            Row(Task(network, 1), "move(m)", Outcome.RAN, "m"),
            kernels=4,
            unmeasured_kernels=1 if predicted_share else 0,
            predicted_share=predicted_share,
            measured=one_side(slower, requested_bytes),
            simulated=one_side(),
            runs_s=(8.0 * slower,),
            order_fault=order_fault,
        )

    return make
