"""The bound of schedules with recomputation, on cases worked out by hand and compared with the fluid bound."""

import math
from random import Random

import pytest

from tests.toy import toy_chain, toy_costs, toy_workload, with_fc
from tests.unit.planning.chain_of_ten_kernels import chain_problem, impossible
from tests.unit.planning.test_fluid_program import random_chain
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.planning import recomputation_bound as module
from vdnnsim.planning.deadline import NEVER, Deadline
from vdnnsim.planning.fluid_bound import Links, fluid_optimum, stages_of
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.plans.schedule import iteration

MUCH = 10**9
NO_LINK = Links(1e-4, 1e-4)


def bound_s(problem: Problem, links: Links = NO_LINK, host_bytes: int = MUCH) -> float:
    return recomputation_bound(problem, links, host_bytes, NEVER).seconds


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
    net = GraphBuilder("rectified", MapShape(5, 1, 1))
    y = net.conv("conv1", 0, 5, 1, relu=True)
    workload = toy_workload(with_fc(net, y))
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
    found = recomputation_bound(rectified_problem(174), NO_LINK, MUCH, Deadline(((lambda: 0.0, left_s),)))
    assert found.seconds == pytest.approx(13.0, rel=1e-12)
    assert not found.again


def test_with_little_time_the_linear_program_is_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    whole_s = bound_s(rectified_problem(174))
    monkeypatch.setattr(module, "LEAST_SHARE", math.inf)

    found = recomputation_bound(rectified_problem(174), NO_LINK, MUCH, Deadline.after(60))

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
    contents = module._contents  # noqa: SLF001 - a world in which it cannot
    monkeypatch.setattr(module, "_contents", lambda of: [each._replace(again_s=math.inf) for each in contents(of)])
    assert bound_s(problem, links) == pytest.approx(fluid_s, rel=1e-4)
