import pytest

from vdnnsim.cost.table import CostTable, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin

FAST = KernelCost("fast", 1.0, 100, Origin.ASSUMED)
MIDDLE = KernelCost("middle", 2.0, 0, Origin.ASSUMED)
SLOW = KernelCost("slow", 3.0, 0, Origin.ASSUMED)
TABLE = CostTable({(0, Phase.FORWARD): (FAST, MIDDLE, SLOW)})


def test_choices() -> None:
    """(p) is the fastest; (m) is the faster one of the two without workspace."""
    assert TABLE.options(0, Phase.FORWARD) == (FAST, MIDDLE, SLOW)
    assert TABLE.fastest(0, Phase.FORWARD) is FAST
    assert TABLE.memory_optimal(0, Phase.FORWARD) is MIDDLE
    assert TABLE.find(0, Phase.FORWARD, "slow") is SLOW


def test_traffic_that_is_not_modelled_is_none() -> None:
    assert FAST.dram_bytes == 0


def test_an_algorithm_that_is_not_offered() -> None:
    with pytest.raises(KeyError, match="layer 0, forward: no algorithm 'winograd'"):
        TABLE.find(0, Phase.FORWARD, "winograd")
