"""The offload search on the chain of ten kernels with copies of 1 B/s, and on one with maps of uneven size."""

from dataclasses import replace
from math import inf

import pytest

from tests.toy import toy_costs, toy_graph, toy_workload
from tests.unit.planning.chain_of_ten_kernels import chain_problem
from vdnnsim.dnn.layers import Phase
from vdnnsim.planning.buffer_uses import IdleInterval
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.fluid_bound import Links, Optimum, fluid_optimum, stages_of
from vdnnsim.planning.offload import WHOLE, Copies, OffloadSearch, _neighbours, faster
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.plans.schedule import iteration

COPIES = Copies(float, float, Links(1.0, 1.0))


def optimum_of(problem: Problem) -> Optimum:
    return fluid_optimum(stages_of(problem, COPIES.best, 10**6), COPIES.best)


def search(problem: Problem, *, steps: float = inf) -> OffloadSearch:
    return OffloadSearch(problem, optimum_of(problem), COPIES, 1, Effort(steps))


def test_chunks_cut_at_needs_reach_the_bound_where_all_fits_and_where_it_does_not() -> None:
    for chunk in (None, WHOLE, 3):
        found = search(chain_problem(306)).best(chunk)
        assert found is not None
        assert (found.movement.chunks, found.seconds) == ((), 10)
    # At 293 B kernel 8 lacks 11 B, and of the buffers idle over the turn only the input is idle then.
    for chunk in (None, WHOLE, 3):
        assert search(chain_problem(293)).best(chunk) is None
    # At 299 B the kernels 5 and 6 lack 7 B, 7 and 8 lack 5 B; kernel 9 is the first to touch the input again. 7 B of
    # the input are offloaded until 7 s, so that 5 waits from 5 to 7 and 6 ends at 9. 2 B are prefetched beside 7 and
    # 8 until 11 s, 5 B until 16 s, and 9 ends at 17.
    found = search(chain_problem(299)).best(None)
    assert found is not None
    assert found.seconds == 17
    assert optimum_of(chain_problem(299)).seconds == pytest.approx(17, rel=1e-4)
    assert {each.wait.nbytes for each in found.movement.chunks} == {10}


def test_no_cut_is_made_that_costs_more_than_it_saves() -> None:
    """At 294 B, where each copy takes 1 s more: uncut the input is offloaded until 11 s, 2 B of conv1 until 14 s.

    Kernel 2 waits from 2 until 11, 5 begins at 14, and 6 ends at 16. 2 B are back at 19, so that 8 waits from 17 to 19,
    and the input at 31 for kernel 9. Cut at the needs of kernels 2 and 3, each cut would add 1 s each way.
    """
    problem = chain_problem(294)

    found = OffloadSearch(problem, optimum_of(problem), Copies(late_s, late_s, COPIES.best), 1, UNLIMITED).best(None)

    assert found is not None
    assert [each.nbytes for each in found.movement.chunks] == [10, 2]
    assert found.seconds == 32


def test_cuts_suit_other_algorithms_than_those_they_were_made_for() -> None:
    """At 296 B, each copy 0.5 s more, kernel 2 takes 4 B of workspace, or 5 s: it needs 4 B away, or nothing.

    Kernels 3 and 4 need 2 B, 5 and 6 all of the input, 7 and 8 8 B. Cut at what kernel 2 needs, or any before 5, the
    input goes as 4 B and the rest, and comes back as 2 B and 8 B: three chunks. Cut at 2 B for kernel 3, it goes until
    2.5 and 11 s beside a slow kernel 2, 6 ends at 13, 8 at 15; it is back at 15.5 and 24, and 9 ends at 25.
    """
    problem = chain_problem(296)
    fast = problem.kernels[2].options[0]
    options = (replace(fast, workspace_bytes=4), replace(fast, seconds=5.0))
    kernels = [*problem.kernels]
    kernels[2] = replace(kernels[2], options=options)
    problem = replace(problem, kernels=tuple(kernels))
    copies = Copies(half_late_s, half_late_s, COPIES.best)

    found = OffloadSearch(problem, optimum_of(problem), copies, 1, UNLIMITED).best(None)

    assert found is not None
    assert [each.nbytes for each in found.movement.chunks] == [2, 8]
    assert found.seconds == 25


def half_late_s(nbytes: int) -> float:
    """1 B/s, and 0.5 s before the first."""
    return nbytes + 0.5


def late_s(nbytes: int) -> float:
    """1 B/s, and 1 s before the first."""
    return nbytes + 1.0


def test_what_returns_late_is_offloaded_where_what_is_idle_first_returns_too_early() -> None:
    """Of 100 B kernel 5 lacks 11, beside seven idle buffers of 10 B, and kernel 7 lacks 10, beside one of them.

    Six are idle from kernel 0 until 6, the seventh from 2 until 9. One of the six is offloaded until 11 s and the
    seventh until 21 s, when 3 begins, the kernel with most that is idle; 5 ends at 24. The one is back at 34 for 6, the
    seventh returns from 36 to 46, and 9 ends at 47.
    """
    problem = chain_problem(306)
    idle = [*(IdleInterval(buffer, 10, 0, 0, 6) for buffer in range(6)), IdleInterval(6, 10, 2, 2, 9)]
    held = [80, 80, 80, 80, 80, 111, 80, 110, 80, 80]
    kernels = zip(problem.kernels, held, strict=True)
    problem = replace(
        problem, kernels=tuple(replace(each, held_bytes=nbytes, waiting_bytes=0) for each, nbytes in kernels)
    )
    problem = replace(problem, capacity_bytes=100).with_idle(idle)
    for chunk in (None, WHOLE):
        found = search(problem).best(chunk)
        assert found is not None
        assert [each.wait.next for each in found.movement.chunks] == [6, 9]
        assert found.seconds == 47


@pytest.mark.parametrize(
    ("chunk", "moved_bytes", "seconds"),
    [
        # 7 B are offloaded as 4 B and 3 B until 7 s, and 6 ends at 9. After it 5 B must be on the host, that is both
        # chunks: they are prefetched for kernel 9 from 11 to 18.
        (4, [4, 3], 19),
        # The input: 5 waits from 5 to 10, 6 ends at 12, 8 at 14, and 9 begins at 24.
        (WHOLE, [10], 25),
    ],
)
def test_chunks_of_a_given_size_are_rounded_up(chunk: int, moved_bytes: list[int], seconds: float) -> None:
    """At 299 B."""
    found = search(chain_problem(299)).best(chunk)
    assert found is not None
    assert [each.nbytes for each in found.movement.chunks] == moved_bytes
    assert found.seconds == seconds


def uneven_problem() -> Problem:
    """The chain of ten kernels with a map of 40 B behind conv1, and a kernel 5 that takes 60 B of workspace.

    Without biases W and dW of conv1, conv2 and fc hold 2 x (200 + 200 + 12) = 824 B. Kernel 5 needs 2 + 10 B for itself
    and 10 + 40 + 10 B are idle: with its workspace 956 B. Kernels 7 and 8 hold 40 + 10 B, and 10 + 40 B are idle: 924
    B.
    """
    workload = toy_workload(toy_graph("conv1 conv 20 unbiased; conv2 conv unbiased"))
    costs = toy_costs(workload, {}, workspace_bytes={("fc", Phase.BACKWARD_DATA): 60})
    return problem_of(iteration(workload), workload, costs.table(workload), 924)


def test_other_buffers_are_tried_in_place_of_the_first() -> None:
    """At 924 B kernel 5 alone lacks anything, 32 B: the map of conv1 is enough, but the input is idle longest.

    conv1 is offloaded from 1 to 41, kernel 5 ends at 42, conv1 is back at 82, for kernel 8, and 9 ends at 84. Without
    effort both are offloaded until 50, kernel 5 ends at 51; conv1 is back at 91, the input at 101, and 9 ends at 102.
    """
    fast, slow = (search(uneven_problem(), steps=steps).best(WHOLE) for steps in (inf, 0.0))
    assert fast is not None
    assert slow is not None
    assert [[each.nbytes for each in found.movement.chunks] for found in (fast, slow)] == [[40], [10, 40]]
    assert (fast.seconds, slow.seconds) == (84, 102)
    assert faster(slow, fast) is fast
    assert faster(None, slow) is slow
    assert faster(None, None) is None


def test_exchanges_begin_with_what_copies_fewest_bytes() -> None:
    """Of 10 and 40 B, beside 5 B: 10 B alone, 40 B alone, all, and 5 B in place of 40 B and of 10 B."""
    small, large, other = (IdleInterval(buffer, nbytes, 0, 0, 6) for buffer, nbytes in enumerate((10, 40, 5)))
    everyone = [small, large, other]
    found = [sum(each.nbytes for each in chosen) for chosen in _neighbours({small, large}, everyone)]
    assert found == [10, 40, 55, 15, 45]
