"""The bound of schedules with recomputation, on cases worked out by hand and compared with the fluid bound."""

import math
from random import Random

import pytest

from tests.toy import toy_chain, toy_costs, toy_graph, toy_workload, with_fc
from tests.unit.planning.chain_of_ten_kernels import chain_problem, impossible
from tests.unit.planning.test_fluid_program import random_chain
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.planning import linear_program
from vdnnsim.planning import recomputation_bound as module
from vdnnsim.planning.contents import contents_of
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.fluid_bound import Links, fluid_optimum, stages_of
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.planning.restored import Restored
from vdnnsim.plans.schedule import iteration

MUCH = 10**9
NO_LINK = Links(1e-4, 1e-4)


def bound_s(problem: Problem, links: Links = NO_LINK, host_bytes: int = MUCH) -> float:
    return recomputation_bound(problem, links, host_bytes, UNLIMITED).seconds


FAST = Links(1e6, 1e6)


@pytest.mark.parametrize(
    ("capacity_bytes", "links", "host_bytes", "expected_s"),
    [
        # All fits.
        (306, NO_LINK, MUCH, 10.0),
        # Kernels 3 and 4 lack 2 B, 5 and 6 lack 10 B, 7 and 8 lack 8 B. conv1 is idle from kernel 2 to 7: dropped, all
        # of these fit but 8, for 1 s of forward of conv1. While 8 runs the gradient of conv1 is idle, 8 of 10 B of
        # which take all of the data gradient of conv2, 1 s. The input is given.
        (296, NO_LINK, MUCH, 12.0),
        # A fast link avoids recomputation, unless the host has but 4 B.
        (296, FAST, MUCH, 10.0),
        (296, FAST, 10, 10.0),
        (296, FAST, 4, 12.0),
    ],
)
def test_recomputation_costs_the_time_of_its_kernels(
    capacity_bytes: int, links: Links, host_bytes: int, expected_s: float
) -> None:
    assert bound_s(chain_problem(capacity_bytes), links, host_bytes) == pytest.approx(expected_s, rel=1e-4)


def rectified_problem(capacity_bytes: int) -> Problem:
    """conv1 of 5 s, a rectifier that writes over its map, fc and the loss: 9 kernels of 13 s.

    2 x (60 + 12) B are held throughout. With idle bytes kernels take 164, 164, 166, 168, 168, 176, 176, 174
    and 164 B; 5 and 6 are dX and dW of fc, 7 backward of the rectifier, beside which the input alone is idle.
    """
    workload = toy_workload(toy_graph("conv1 conv relu"))
    table = toy_costs(workload, {("conv1", Phase.FORWARD): 5.0}).table(workload)
    return problem_of(iteration(workload), workload, table, capacity_bytes)


def test_bounds_of_rewritten_maps_free_kernels_and_what_cannot_run() -> None:
    """At 174 B kernels 5 and 6 lack 2 B.

    For 5 they are of conv1, whose map takes 5 + 1 s. It is read by 6, for which they are of the gradient of conv1,
    which 5 has made in 1 s.
    """
    assert bound_s(rectified_problem(174)) == pytest.approx(13 + 6 + 1, rel=1e-4)
    # As above at 296 B, but that forward of conv1 and the data gradient of conv2 take none: eight kernels of 1 s.
    workload = toy_workload(toy_chain(2))
    costs = toy_costs(workload, {("conv1", Phase.FORWARD): 0.0, ("conv2", Phase.BACKWARD_DATA): 0.0})
    problem = problem_of(iteration(workload), workload, costs.table(workload), 296)
    assert bound_s(problem) == pytest.approx(8.0, rel=1e-4)
    # At 173 B kernel 7 lacks 1 B, which the host must take; at 163 B kernel 0 does not fit by itself.
    assert bound_s(rectified_problem(173), host_bytes=0) == math.inf
    assert bound_s(rectified_problem(163)) == math.inf


@pytest.mark.parametrize("left_s", [-1.0, 1e-9])
def test_without_time_the_bound_is_the_kernels_time(left_s: float) -> None:
    """With a nanosecond left, on a clock that stands still, the solver starts and ends at once."""
    found = recomputation_bound(
        rectified_problem(174), NO_LINK, MUCH, Effort(deadline=Deadline(((lambda: 0.0, left_s),)))
    )
    assert found.seconds == pytest.approx(13.0, rel=1e-12)
    assert not found.again


def test_the_linear_program_alone_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_s = bound_s(rectified_problem(174))
    monkeypatch.setattr(linear_program, "MOST_WHOLE", 0)

    found = recomputation_bound(rectified_problem(174), NO_LINK, MUCH, UNLIMITED)

    assert 13.0 <= found.seconds <= whole_s


@pytest.mark.parametrize("seed", range(8))
def test_it_is_not_above_the_fluid_bound(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Where nothing can be recomputed both are equal."""
    random = Random(seed)  # noqa: S311 - the same on every run
    problem = random_chain(random, random.randint(2, 5), nested=True)
    links = Links(10.0, 10.0)
    stages = stages_of(problem, links, MUCH)
    fluid_s = math.inf if impossible(problem, stages) else fluid_optimum(stages, links).seconds

    assert bound_s(problem, links) <= fluid_s * (1 + 1e-6)
    given = [each._replace(is_given=True) for each in contents_of(problem)]
    monkeypatch.setattr(module, "contents_of", lambda _: given)
    assert bound_s(problem, links) == pytest.approx(fluid_s, rel=1e-4)


def test_only_checks_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 296 B kernel 5, the fullest, lacks 10 B: forward of conv1 is recomputed in 1 s. Kernel 0 holds most and fits.

    The gradient of conv1, which is idle while 8 runs alone, is not seen (12 s above).
    """
    monkeypatch.setattr(module, "PARTS", 1)
    assert bound_s(chain_problem(296)) == pytest.approx(11.0, rel=1e-4)


def branches_problem(lacking_bytes: int) -> Problem:
    """A sum of two convolutions of one map, whose backward reads neither, and a wide layer, where most bytes are."""
    net = GraphBuilder("branches", MapShape(5, 1, 1))
    y = net.conv("conv1", 0, 5, 1, relu=False)
    left, right = (net.conv(name, y, 5, 1, relu=False) for name in ("left", "right"))
    y = net.conv("wide", net.add("sum", left, right, relu=False), 20, 1, relu=False)
    workload = toy_workload(with_fc(net, y))
    table = toy_costs(workload, {}).table(workload)
    runs = iteration(workload)
    size = max(each.held_bytes + each.waiting_bytes for each in problem_of(runs, workload, table, 0).kernels)
    return problem_of(runs, workload, table, size - lacking_bytes)


@pytest.mark.parametrize(("lacking_bytes", "again_s"), [(0, 0), (40, 1), (50, 2), (51, 5)])
def test_what_is_recomputed_needs_its_inputs(monkeypatch: pytest.MonkeyPatch, lacking_bytes: int, again_s: int) -> None:
    """During the turn alone. 40 B are the map of the wide layer, 10 B more that of conv1: 1 s each.

    1 B more is of the sum, which is then made of conv1 and both branches: 3 s.
    """
    monkeypatch.setattr(module, "PARTS", 1)
    problem = branches_problem(lacking_bytes)
    kernels_s = len(problem.kernels)

    for restored in (None, Restored()):
        found = recomputation_bound(problem, NO_LINK, MUCH, UNLIMITED, restored)
        assert found.seconds == pytest.approx(kernels_s + again_s, rel=1e-3)
