"""The fluid bound on cases worked out by hand, on a link of 1 B/s each way unless said."""

import pytest

from tests.toy import toy_chain, toy_costs, toy_workload
from tests.unit.planning.chain_of_ten_kernels import chain_problem, impossible
from vdnnsim.cost.table import ONLY, KernelCost
from vdnnsim.hardware.server import Origin
from vdnnsim.planning import fluid_bound
from vdnnsim.planning.fluid_bound import Links, Need, Stage, fluid_optimum, stages_of
from vdnnsim.planning.problem import Kernel, Option, Problem, problem_of
from vdnnsim.plans.schedule import iteration

LINKS = Links(1.0, 1.0)
MUCH = 10**6


def need(seconds: float, away_bytes: int = 0) -> Need:
    """An algorithm that needs so much on the host, both before and after."""
    option = Option(KernelCost(ONLY, seconds, 0, Origin.ASSUMED), seconds, 0)
    return Need(option, seconds, away_bytes, away_bytes)


def stage(*needs: Need, sendable_bytes: int = MUCH, returnable_bytes: int = MUCH) -> Stage:
    return Stage(needs, sendable_bytes, returnable_bytes)


def bound_s(problem: Problem, links: Links = LINKS) -> float:
    return fluid_optimum(stages_of(problem, links, MUCH), links).seconds


def barred(problem: Problem, host_bytes: int = MUCH) -> Kernel | None:
    return impossible(problem, stages_of(problem, LINKS, host_bytes))


@pytest.mark.parametrize(
    ("capacity_bytes", "links", "expected_s"),
    [
        # All fits.
        (306, LINKS, 10.0),
        # 1 B must be on the host for kernels 5 and 6, of the input, which is offloaded beside kernel 0.
        (305, LINKS, 10.0),
        # Kernel 1 lacks 8 B, 2 lacks 10 B, 3 and 4 lack 12 B, 5 and 6 lack 20 B, 7 and 8 lack 18 B. Beside kernel 0 1 B
        # is offloaded, so 1 waits until 8 s and ends at 9 s with 9 B offloaded; 2 waits until 10 s, 3 until 12 s; 4
        # ends at 14 s, 5 waits until 20 s, and 6 ends at 22 s. Beside kernel 7 1 B of the 20 B is prefetched, 1 B
        # before it. 8 lacks 18 B, of which 8 B are of the gradient that 7 has written: they are offloaded in a stall,
        # as 8 B of conv1 are prefetched. The other 18 B are prefetched before kernel 9: 22 + 1 + 1 + 8 + 1 + 18 + 1 s.
        (286, LINKS, 52.0),
        # At 10 B/s 18 B are prefetched in 1.8 s, and those before kernels 7 and 8 need no stall of their own.
        (286, Links(1.0, 10.0), 22 + 1 + 8 + 1 + 1.8 + 1),
    ],
)
def test_kernels_wait_for_offloads_and_prefetches(capacity_bytes: int, links: Links, expected_s: float) -> None:
    assert bound_s(chain_problem(capacity_bytes), links) == pytest.approx(expected_s, rel=1e-12)


def test_bounds_of_stages_with_several_algorithms() -> None:
    """The second kernel needs 4 B on the host, of which 3 B exist before the first kernel has ended: 3 B in 10 s.

    Then it waits 1 s; the 4 B are prefetched in the 5 s after it.
    """
    stages = [stage(need(10.0), sendable_bytes=3), stage(need(1.0, 4)), stage(need(5.0))]
    assert fluid_optimum(stages, LINKS).seconds == pytest.approx(17.0, rel=1e-12)
    # In 1 s with 10 B on the host, which stalls for 9 s each way beside kernels of 1 s; or in 5 s with none.
    stages = [stage(need(1.0)), stage(need(1.0, 10), need(5.0)), stage(need(1.0))]
    found = fluid_optimum(stages, LINKS)
    assert found.seconds == pytest.approx(7.0, rel=1e-12)
    assert [each.seconds for each in found.options] == [1.0, 5.0, 1.0]
    # Each of the three in the middle takes 1 s with 6 B on the host, or 4 s: 1 s beside the first, so stalls of 5 s.
    # Fast they take 1 + 5 + 3 + 5 + 1 = 15 s. Slow all take 14 s. Slow and then two fast: 5 B are offloaded in 1 + 4
    # s, a stall of 1 s, and one of 5 s as above: 1 + 4 + 1 + 2 + 5 + 1 = 14 s; slow, fast, slow: 1 + 4 + 1 + 1 + 1 +
    # 4 + 1 = 13 s.
    middle = [stage(need(1.0, 6), need(4.0)) for _ in range(3)]
    found = fluid_optimum([stage(need(1.0)), *middle, stage(need(1.0))], LINKS)
    assert found.seconds == pytest.approx(13.0, rel=1e-12)
    assert [each.seconds for each in found.options] == [1.0, 4.0, 1.0, 4.0, 1.0]
    assert (found.turn, found.away_bytes) == (2, 6)


def test_labels_that_are_merged_make_one_that_is_better_than_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """20 B are offloaded in 20 s before a turn of 1 s, and prefetched after it; there at most 4 B can stay away.

    In reversed time the last kernel hides 1 B in 1 s. The one before it takes 1 s behind a stall of 5 s, 7 s and
    7 B so far, or 4 s without: 5 s and 4 B. What is left takes 13 s or 16 s: 20 + 1 + 20 s is best. Merged they are 5 s
    with 7 B: 18 s.
    """
    stages = [
        stage(need(1.0, 20)),
        stage(need(1.0)._replace(before_s=5.0), need(4.0), returnable_bytes=4),
        stage(need(1.0), returnable_bytes=4),
    ]
    assert fluid_optimum(stages, LINKS).seconds == pytest.approx(41.0, rel=1e-12)

    monkeypatch.setattr(fluid_bound, "MOST_LABELS", 1)

    assert fluid_optimum(stages, LINKS).seconds == pytest.approx(39.0, rel=1e-12)


@pytest.mark.parametrize(
    ("capacity_bytes", "host_bytes", "layer"),
    [
        # Kernels 0, 1 and 7 to 9 hold more, 284 B each; the first that lacks most is forward of conv1.
        (283, MUCH, "conv1"),
        (284, MUCH, None),
        # 20 B are on the host at once.
        (286, 20, None),
        (286, 19, "fc"),
    ],
)
def test_a_kernel_that_no_schedule_can_run_is_named(capacity_bytes: int, host_bytes: int, layer: str | None) -> None:
    found = barred(chain_problem(capacity_bytes), host_bytes)
    assert (found and found.run.layer.name) == layer


def test_padding_to_granules_is_not_copied() -> None:
    """In granules of 16 B 288 B are held throughout, every kernel holds 32 B of its own, and 16 B for each idle buffer.

    A copy of one moves 10 B, so that of n idle ones 6 n B are freed without a copy. At 336 B kernel 2 lacks 16 B beside
    two of them, kernels 3 to 6 lack 32 B beside three, 7 and 8 lack 16 B beside two: 4 B, 14 B and 4 B to move. Kernel
    2 waits until 4 s and ends at 5 s, 3 waits until 14 s, and 6 ends at 18 s. Before kernel 9 4 B are prefetched,
    beside 8 and 7 2 B, before 7 the other 8 B: 18 + 8 + 2 + 4 + 1 s.
    """
    workload = toy_workload(toy_chain(2))
    table = toy_costs(workload, {}).table(workload)
    problem = problem_of(iteration(workload), workload, table, 336, 16)

    assert bound_s(problem) == pytest.approx(33.0, rel=1e-12)
