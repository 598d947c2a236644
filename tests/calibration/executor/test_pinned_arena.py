"""Offsets of copies in the arena, by hand; slices begin at multiples of 512 B."""

from dataclasses import replace
from itertools import combinations

import torch
from hypothesis import given
from hypothesis import strategies as st

from calibration.devices.cpu import CpuDevice
from calibration.executor.pinned_arena import PinnedArena, lay_copies
from tests.toy import toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.layers import Stage
from vdnnsim.plans.operations import Offload, Operation, Prefetch
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base

WORKLOAD = toy_workload(toy_chain(1))
EMPTY = Base().plan(toy_setting(WORKLOAD, toy_costs(WORKLOAD, {})))


def plan_of(sizes: tuple[int, ...], *operations: Operation) -> TrainingPlan:
    """A plan that only copies: buffers 0, 1, ... of these sizes."""
    buffers = tuple(Buffer(str(nbytes), BufferKind.FEATURE_MAP, nbytes, Stage.FEATURES) for nbytes in sizes)
    return replace(EMPTY, buffers=buffers, operations=operations)


def back(buffer: int, *, keeps_copy: bool = False) -> Prefetch:
    return Prefetch(buffer, 0, on_demand=False, keeps_copy=keeps_copy)


def test_a_plan_without_copies_needs_no_arena(device: CpuDevice) -> None:
    layout = lay_copies(EMPTY)
    assert (layout.offsets, layout.nbytes) == ({}, 0)
    PinnedArena(device).reserve(layout.nbytes)


def test_a_prefetched_copy_makes_room() -> None:
    layout = lay_copies(plan_of((1000, 1000), Offload(0, 0), back(0), Offload(1, 0), back(1)))
    assert layout.offsets == {0: 0, 1: 0, 2: 0, 3: 0}
    assert layout.nbytes == 1024


class PinningDevice(CpuDevice):
    """A CPU that tells how much of its memory is pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.pinned_bytes: list[int] = []

    def pin(self, nbytes: int) -> torch.Tensor:
        self.pinned_bytes.append(nbytes)
        return super().pin(nbytes)

    def unpin(self, tensor: torch.Tensor) -> None:
        self.pinned_bytes.remove(tensor.nbytes)


def test_an_arena_that_grew_pins_its_last_size_and_no_more() -> None:
    device = PinningDevice()
    arena = PinnedArena(device)
    for nbytes in (100, 300, 200, 1100):
        arena.reserve(nbytes)
    device.close()
    assert device.pinned_bytes == [1100]


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=40), st.lists(st.integers(0, 2000), min_size=5))
def test_no_two_copies_share_bytes(steps: list[tuple[int, bool]], sizes: list[int]) -> None:
    """A step offloads a buffer that is not on the host, or prefetches it and may keep its copy."""
    operations: list[Operation] = []
    on_host: dict[int, int] = {}
    lives: list[tuple[int, int, int]] = []
    for buffer, keeps_copy in steps:
        if buffer not in on_host:
            on_host[buffer] = len(operations)
            operations.append(Offload(buffer, 0))
            continue
        operations.append(back(buffer, keeps_copy=keeps_copy))
        if not keeps_copy:
            lives.append((buffer, on_host.pop(buffer), len(operations)))
    lives += [(buffer, first, len(operations)) for buffer, first in on_host.items()]

    layout = lay_copies(plan_of(tuple(sizes[:5]), *operations))

    for (one, begin, end), (other, other_begin, other_end) in combinations(lives, 2):
        if begin < other_end and other_begin < end:
            start, other_start = layout.offsets[begin], layout.offsets[other_begin]
            assert start + sizes[one] <= other_start or other_start + sizes[other] <= start
    for buffer, begin, end in lives:
        copies = [i for i in range(begin, end) if i in layout.offsets and operations[i].buffer == buffer]  # type: ignore[union-attr]
        assert {layout.offsets[i] for i in copies} == {layout.offsets[begin]}
        assert layout.offsets[begin] + sizes[buffer] <= layout.nbytes


def test_extents_lie_in_the_slice_of_their_buffer_until_the_last_is_prefetched() -> None:
    """0 has 1000 B in 1024, offloaded and prefetched by other ranges; 1 is offloaded between its two prefetches."""
    layout = lay_copies(
        plan_of(
            (1000, 1000),
            Offload(0, 0, extent=range(600)),
            Offload(0, 0, extent=range(600, 1000)),
            Prefetch(0, 0, on_demand=False, extent=range(500, 1000)),
            Offload(1, 0),
            Prefetch(0, 0, on_demand=False, extent=range(500)),
            Offload(0, 0),
            back(0),
            back(1),
        )
    )
    first, second = layout.offsets[0], layout.offsets[3]
    assert {first, second} == {0, 1024}
    assert [layout.offsets[each] for each in (1, 2, 4, 5, 6)] == [first + 600, first + 500, first, first, first]
    assert layout.nbytes == 2048
