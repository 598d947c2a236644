"""Where copies stand among the operations of a phase: of pool of the chain in `tests/captured_steps.py` the second.

Its first operation reads bn's map (6) and writes its own (8), its second, a change of shape, reads 8.
"""

import pytest

from tests.captured_steps import chain
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.schedule import Offload, Run, by_operation

WORKLOAD = CapturedWorkload.of(chain())
POOL, LOSS = WORKLOAD.graph.layers[3], WORKLOAD.graph.layers[5]


@pytest.mark.parametrize(("moved", "behind"), [((6,), 1), ((8,), 2), ((6, 8), 2)])
def test_a_copy_starts_with_the_first_operation_after_the_last_writer(moved: tuple[int, ...], behind: int) -> None:
    run, copy = Run(POOL, Phase.FORWARD), Offload(moved, POOL, beside=True)
    expected: list[Run | Offload] = [Run(POOL, Phase.FORWARD, operation=at) for at in (0, 1)]
    expected.insert(behind, copy)
    assert by_operation([run, copy], WORKLOAD.step) == expected


def test_a_copy_of_the_last_operations_output_starts_after_it() -> None:
    """The loss (12) is written by the second of two."""
    run, copy = Run(LOSS, Phase.FORWARD), Offload((12,), LOSS, beside=True)
    runs = [Run(LOSS, Phase.FORWARD, operation=at) for at in (0, 1)]
    assert by_operation([run, copy], WORKLOAD.step) == [*runs, Offload((12,), LOSS)]
