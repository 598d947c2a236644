"""A few hundred hostile inputs of every kind of file; `make attack` tries 20,000."""

import pytest

from tests.hostile.attack import Kind, attack
from tests.hostile.kinds import KINDS

INPUTS = 10
"""Of each kind, times its weight."""


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_hostile_files_are_read_or_refused_in_one_line(kind: Kind) -> None:
    """No traceback, no warning, an end in 20 s and 2 GiB, nothing overwritten."""
    for seed in range(INPUTS * kind.weight):
        outcome = attack(kind, seed)
        assert not outcome.trouble, f"{kind.name}, seed {seed}: {outcome.command}: {outcome.trouble[0]}"
