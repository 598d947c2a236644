"""Plans within the host memory that there is, of which PyTorch pins blocks of powers of two.

In the chain of ten kernels three buffers of 10 B are idle around the end of forward: the input, and two maps.
"""

from dataclasses import replace
from typing import cast

import pytest

from tests.toy import toy_setting
from tests.unit.planning.chain_of_ten_kernels import COSTS, WORKLOAD, chain_problem
from tests.unit.planning.test_offload import COPIES
from tests.unit.planning.test_reserved_search import NO_ROOM, Bytes
from vdnnsim.dnn.step import BufferKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.process import pinned_block_bytes
from vdnnsim.planning.effort import UNLIMITED
from vdnnsim.planning.offload import all_away
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.question import Question
from vdnnsim.planning.reserved_search import ReservedSearch
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan


@pytest.mark.parametrize(("host_bytes", "moved"), [(48, 3), (47, 2), (16, 1), (15, 0)])
def test_all_that_has_room_on_the_host_is_moved(host_bytes: int, moved: int) -> None:
    """Each buffer of 10 B takes a block of 16 B; those that are idle first are moved."""
    chunks = all_away(chain_problem(293), COPIES, host_bytes, pinned_block_bytes).movement.chunks
    assert len(chunks) == moved
    assert [each.wait.last for each in chunks] == sorted(each.wait.last for each in chunks)


@pytest.mark.parametrize(
    ("model", "host_bytes", "device_bytes", "moved_bytes"),
    [
        (MemoryModel.IDEAL, 30, 306, 294),
        (MemoryModel.PYTORCH, 30, 306, 296),
        (MemoryModel.PYTORCH, 48, 306, 294),
        (MemoryModel.IDEAL, 0, 306, 306),
        # Without what the host lacks nothing fits: so much is named.
        (MemoryModel.IDEAL, 0, 305, 294),
    ],
)
def test_what_finds_no_room_on_the_host_stays(
    model: MemoryModel, host_bytes: int, device_bytes: int, moved_bytes: int
) -> None:
    """Kernels 5 and 6 take 306 B, and 8 304 B with 10 B of the input and 10 B of a gradient of backward idle.

    With the maps idle around forward's end away these are 276, 286 and 294 B, with the input alone 296, 296 and 294 B.
    """
    limits = MemoryLimits(model, device_bytes, host_bytes, 1)
    setting = toy_setting(WORKLOAD, COSTS, limits)
    question = Question(Orders(WORKLOAD, setting.costs, frozenset()), limits, setting.copies, recompute=True)
    assert question.moved_bytes == moved_bytes


def test_what_a_plan_found_no_room_for_on_the_host_is_left_to_those_that_follow() -> None:
    """The first has room there for 20 and 9 B; the next copies at most as much, in as much memory of the GPU."""
    asked = list[tuple[int, int | None]]()

    def by_bytes(nbytes: int, *_: object, host_bytes: int | None = None, **__: object) -> Planner:
        asked.append((nbytes, host_bytes))
        return cast("Planner", Bytes(nbytes))

    held = ((BufferKind.WEIGHTS, 20), (BufferKind.FEATURE_MAP, 9))

    def place(_: TrainingPlan) -> DoesNotFit:
        return replace(NO_ROOM, pool=Pool.PINNED, held_bytes=held)

    ReservedSearch(by_bytes, place, UNLIMITED).search(306)
    assert asked[:3] == [(306, None), (306, None), (306, 29)]
