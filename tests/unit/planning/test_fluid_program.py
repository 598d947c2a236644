"""The fluid bound compared with an independent program (`fluid_program.py`), on random chains."""

from random import Random

import numpy as np
import pytest

from tests.toy import ToyCosts, toy_workload, with_fc
from tests.unit.planning.chain_of_ten_kernels import impossible
from tests.unit.planning.fluid_program import fluid_seconds
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.hardware.server import Origin
from vdnnsim.planning.fluid_bound import Links, fluid_optimum, stages_of
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.plans.schedule import Run, backward_layers, backward_of, forward

MUCH = 10**9


def random_chain(random: Random, layers: int, *, nested: bool) -> Problem:
    """A chain of CONV layers with up to three algorithms each, in too little memory for all.

    Nested, the weight gradient of a layer comes before its data gradient, so that no gradient is ever idle; else it is
    the other way round, and some layers have rectifiers.
    """
    net = GraphBuilder("chain", MapShape(random.randint(1, 40), 1, 1))
    y = 0
    for number in range(layers):
        y = net.conv(f"conv{number}", y, random.randint(1, 40), 1, relu=not nested and random.random() < 0.4)
    workload = toy_workload(with_fc(net, y, 2))
    kernels = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            count = random.randint(1, 3)
            seconds = sorted(random.uniform(0.1, 10.0) for _ in range(count))
            sizes = sorted((random.randint(0, 100) for _ in range(count)), reverse=True)
            kernels[layer.index, phase] = tuple(
                KernelCost(f"a{number}", each, size, Origin.ASSUMED)
                for number, (each, size) in enumerate(zip(seconds, sizes, strict=True))
            )
    table = ToyCosts(kernels).table(workload)
    runs: list[Run] = [*forward(workload)]
    for layer in backward_layers(workload):
        runs += reversed(backward_of(layer)) if nested else backward_of(layer)
    problem = problem_of(runs, workload, table, 0)
    least = max(each.held_bytes + each.options[-1].workspace_bytes for each in problem.kernels)
    most = max(each.held_bytes + each.waiting_bytes + each.options[0].workspace_bytes for each in problem.kernels)
    capacity = least + int(random.choice((0.0, 0.05, 0.3, 0.7)) * (most - least))
    return problem_of(runs, workload, table, capacity)


def found_and_expected(seed: int, most_layers: int, *, nested: bool) -> tuple[float, float]:
    """Return the bound and the optimum, infinite where no schedule can run."""
    random = Random(seed)  # noqa: S311 - the same on every run
    problem = random_chain(random, random.randint(1, most_layers), nested=nested)
    links = Links(*(random.choice((1.0, 10.0, 40.0)) for _ in range(2)))
    stages = stages_of(problem, links, MUCH)
    found = np.inf if impossible(problem, stages) else fluid_optimum(stages, links).seconds
    return found, fluid_seconds(problem, links)


@pytest.mark.parametrize(
    ("seed", "most_layers"),
    [
        *((seed, 6) for seed in range(12)),
        # Minutes: `pytest -m benchmark tests/unit/planning`.
        *(pytest.param(seed, 30, marks=pytest.mark.benchmark) for seed in range(1000, 1200)),
    ],
)
def test_the_bound_is_the_optimum_for_nested_idle_intervals(seed: int, most_layers: int) -> None:
    found, expected = found_and_expected(seed, most_layers, nested=True)
    assert found == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("seed", [*range(12), 5076, 5080, 5117])
def test_the_bound_is_never_above_the_optimum(seed: int) -> None:
    """It may be below, where a gradient is offloaded after the turn, or a map once more after its prefetch."""
    found, expected = found_and_expected(seed, most_layers=6, nested=False)

    assert found <= expected * (1 + 1e-6)
