"""A chain whose ten kernels of 1 s are counted by hand (test_problem.py), on a link of 1 B/s.

Kernels 0 to 2 are forward of conv1, conv2 and fc, 3 and 4 forward and backward of the loss, 5 and 6 backward of fc (dX,
dW), 7 and 8 of conv2, 9 of conv1 (dW). Beside 264 B that are held throughout they hold 20, 20, 12, 4, 4, 12, 12, 20,
20, 20 B, and 0, 10, 20, 30, 30, 30, 30, 20, 20, 0 B wait: together 284, 294, 296, 298, 298, 306, 306, 304, 304, 284 B.
The input waits from kernel 0 to 9, the map of conv1 from 1 to 8, that of conv2 from 2 to 6, its gradient from 5 to 7,
and the gradient of conv1 from 7 to 9: 10 B each.
"""

from collections.abc import Sequence
from typing import Final

from tests.toy import toy_chain, toy_costs, toy_workload
from vdnnsim.cost.table import CostModel
from vdnnsim.planning.buffer_uses import IdleInterval
from vdnnsim.planning.fluid_bound import Stage
from vdnnsim.planning.problem import Kernel, Problem, problem_of
from vdnnsim.plans.schedule import iteration

WORKLOAD: Final = toy_workload(toy_chain(2))
COSTS: Final = toy_costs(WORKLOAD, {})
TURN: Final = 5


def chain_problem(capacity_bytes: int, costs: CostModel = COSTS) -> Problem:
    """The problem in so much memory, in granules of 1 B."""
    return problem_of(iteration(WORKLOAD), WORKLOAD, costs.table(WORKLOAD), capacity_bytes)


def wait_of(name: str) -> IdleInterval:
    names = [each.name for each in WORKLOAD.step.storages]
    return next(each for each in chain_problem(1000).idle if names[each.buffer] == name)


def impossible(problem: Problem, stages: Sequence[Stage]) -> Kernel | None:
    """Return the kernel that no schedule can run, of several the one that lacks most; None where there is none."""
    barred = [kernel for kernel, stage in zip(problem.kernels, stages, strict=True) if not stage.needs]
    return max(barred, key=lambda each: each.held_bytes + each.options[-1].workspace_bytes, default=None)
