"""Captured compiled models beside the same, compiled and run on a pretended GPU."""

import pytest

from reports.capture.compiled import row_of
from reports.capture.compiled_cases import CASES

pytestmark = pytest.mark.pretend
QUICK = ("GPT-2", "ResNet of four bottlenecks", "GRU", "three graphs")
"""One of each kind; the others take as long again, and longer."""


@pytest.mark.filterwarnings("ignore")  # of compilers and libraries of models, whatever they say
@pytest.mark.parametrize(
    "name", [each if each in QUICK else pytest.param(each, marks=pytest.mark.thorough) for each in CASES]
)
def test_kernels_and_buffers_are_those_of_a_compiled_run(name: str) -> None:
    """After each kernel as much is held, but for 16 bytes of a random state in attention with dropout."""
    row = row_of(CASES[name])
    assert row.live_off < 1e-5
    assert row.in_order == row.captured_kernels == row.pretended_kernels
    assert abs(row.allocated_off) <= 0.01
