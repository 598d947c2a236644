"""The fluid model as a mixed-integer program without assumptions: every idle interval has copies of its own.

Each kernel has one algorithm; bytes are copied beside kernels and in the stalls between them, at the rate of the link.
What is on the host during a kernel is offloaded before it and prefetched after it.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from vdnnsim.planning.buffer_uses import IdleInterval
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.problem import Problem


class Program:
    """Columns and rows of a program, as they come."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.whole: list[int] = []
        self.most: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._limits: list[float] = []

    def column(self, cost: float = 0.0, *, whole: bool = False) -> int:
        self.costs.append(cost)
        self.whole.append(int(whole))
        self.most.append(1.0 if whole else np.inf)
        return len(self.costs) - 1

    def at_most(self, terms: Iterator[tuple[int, float]] | list[tuple[int, float]], limit: float) -> None:
        """Sum of column times factor <= limit."""
        self._entries += ((len(self._limits), column, factor) for column, factor in terms)
        self._limits.append(limit)

    def least(self) -> float:
        rows, columns, factors = zip(*self._entries, strict=True)
        matrix = csr_array((factors, (rows, columns)), shape=(len(self._limits), len(self.costs)))
        found = milp(
            self.costs,
            integrality=self.whole,
            bounds=Bounds(0, self.most),
            constraints=LinearConstraint(matrix, ub=self._limits),
            options={"mip_rel_gap": 1e-7},
        )
        assert found.status in {0, 2}, found.message
        return float(found.fun) if found.status == 0 else np.inf


def fluid_seconds(problem: Problem, links: Links) -> float:
    """Return the least seconds of an iteration.

    Times are 2 for each kernel, the pause before it (2 k) and the kernel itself (2 k + 1).
    """
    program = Program()
    pauses = [program.column(1.0) for _ in problem.kernels]
    chosen = [[program.column(each.seconds, whole=True) for each in kernel.options] for kernel in problem.kernels]
    moved: tuple[dict[int, list[int]], dict[int, list[int]]] = (defaultdict(list), defaultdict(list))
    leaving: dict[IdleInterval, dict[int, int]] = {}
    returning: dict[IdleInterval, dict[int, int]] = {}
    for wait in problem.idle:
        leaving[wait] = {time: program.column() for time in range(2 * wait.made + 2, 2 * wait.next)}
        returning[wait] = {time: program.column() for time in range(2 * wait.last + 2, 2 * wait.next + 1)}
        out, back = leaving[wait], returning[wait]
        program.at_most([(each, 1.0) for each in out.values()], wait.nbytes)
        # At any time no more is prefetched than offloaded, at the end as much.
        for time in back:
            sent = [(each, -1.0) for at, each in out.items() if at <= time]
            program.at_most(sent + [(each, 1.0) for at, each in back.items() if at <= time], 0.0)
        program.at_most([(each, 1.0) for each in out.values()] + [(each, -1.0) for each in back.values()], 0.0)
        for way, columns in zip(moved, (out, back), strict=True):
            for time, column in columns.items():
                way[time].append(column)
    for number, kernel in enumerate(problem.kernels):
        program.at_most([(each, 1.0) for each in chosen[number]], 1.0)
        program.at_most([(each, -1.0) for each in chosen[number]], -1.0)
        for way, rate in zip(moved, (links.out_bytes_per_s, links.in_bytes_per_s), strict=True):
            program.at_most([(each, 1 / rate) for each in way[2 * number]] + [(pauses[number], -1.0)], 0.0)
            runs = zip(chosen[number], kernel.options, strict=True)
            beside = [(each, 1 / rate) for each in way[2 * number + 1]]
            program.at_most(beside + [(column, -option.seconds) for column, option in runs], 0.0)
        away = [
            (column, factor)
            for wait in problem.idle
            if wait.last < number < wait.next
            for columns, factor, end in ((leaving[wait], -1.0, 2 * number), (returning[wait], 1.0, 2 * number + 1))
            for time, column in columns.items()
            if time <= end
        ]
        runs = zip(chosen[number], kernel.options, strict=True)
        workspace = [(column, float(option.workspace_bytes)) for column, option in runs]
        program.at_most(workspace + away, problem.capacity_bytes - kernel.held_bytes - kernel.content_bytes)
    return program.least()
