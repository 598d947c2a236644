"""Drawn loops with drawn plans on a pretended GPU, whose kernels the host computes in the order of their streams.

Device memory is out of the host's reach, and copies move their bytes when they end: what is read too early, or from
the wrong place, is seen in losses, gradients and weights.
"""

from collections import Counter

import pytest

from tests.apply.generated.judging import LOOPS, Drawn, judge
from tests.host_arithmetic.operators import arithmetic_of_the_host

pytestmark = [pytest.mark.pretend, pytest.mark.filterwarnings("ignore:the plan of")]

MODELS = [each for each in range(17) if each not in {6, 8}]
"""Fifteen; of the others the host computes none, for a normalization of cuDNN's and a view that is written."""


@pytest.mark.parametrize("model", MODELS)
def test_loops_are_the_same_with_a_plan(model: int) -> None:
    """Twenty loops of each of fifteen models: equal to the bit or refused, and device memory is level after each."""
    found = Counter[str]()
    with arithmetic_of_the_host():
        for seed in range(LOOPS * model, LOOPS * (model + 1)):
            drawn = Drawn.of(seed, "cuda")
            outcome = judge(drawn)
            assert not outcome.trouble, f"seed {seed}\n{drawn}\n{outcome.trouble}"
            found.update(outcome.counts)
    assert found["loops the same to the bit"] > 0
