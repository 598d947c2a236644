"""Linear programs with columns from 0 to a bound and rows below a limit, some columns integers, solved by HiGHS."""

import ctypes
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from vdnnsim.planning.effort import SOLVED, Effort

MOST_NODES: Final = 40
"""Nodes of a search for integers: steps and not seconds, so that equal programs have equal solutions."""

MOST_WHOLE: Final = 60
"""Integers that are decided."""
_SPLIT: Final = 1e-6
"""Distance from an integer that counts."""
_GAPS: Final = 1e-4, 5e-4
"""Between a solution in integers and what is proven, of a small program, as HiGHS has it, and of a large one, of which
closing it takes seconds."""

Term = tuple[int, float]
"""A column and its factor."""


class Solution(NamedTuple):
    """What the solver found.

    Attributes:
        bound: no solution costs less; 0 where nothing is proven.
        values: by column; empty where there is no solution.
    """

    bound: float
    values: Sequence[float]


class LinearProgram:
    """Columns, their costs, and rows."""

    def __init__(self) -> None:
        self.bounds: list[float] = []
        self._costs: list[float] = []
        self._weights: dict[int, float] = {}
        # Of the matrix, row by row.
        self._columns, self._factors, self._ends = list[int](), list[float](), [0]
        self._most: list[float] = []

    def column(self, cost: float = 0.0, bound: float = math.inf, *, weight: float | None = None) -> int:
        """Add a column, and return its number; one with a weight should be an integer, the heaviest first."""
        self._costs.append(cost)
        self.bounds.append(bound)
        if weight is not None:
            self._weights[len(self._costs) - 1] = weight
        return len(self._costs) - 1

    def row(self, terms: Iterable[Term], most: float = 0.0) -> None:
        for column, factor in terms:
            self._columns.append(column)
            self._factors.append(factor)
        self._ends.append(len(self._columns))
        self._most.append(most)

    def equal(self, terms: Sequence[Term], value: float = 0.0) -> None:
        self.row(terms, value)
        self.row([(column, -factor) for column, factor in terms], -value)

    def grow(self, totals: Sequence[int], at: int, beside: Iterable[Term], most: float = 0.0) -> None:
        """Let a total be monotonic, and rise by at most a constant and some terms from one position to the next."""
        step = [(totals[at], 1.0), *([(totals[at - 1], -1.0)] if at else [])]
        self.row([*step, *((column, -factor) for column, factor in beside)], most)
        self.row((column, -factor) for column, factor in step)

    def sums(self, spans: Iterable[tuple[int, int, Term]], count: int) -> list[int]:
        """Return for each position a column with the sum of the terms of its spans.

        A span is its first position, the one after its last, and a term.
        """
        changes: list[list[Term]] = [[] for _ in range(count + 1)]
        for start, stop, (column, factor) in spans:
            changes[start].append((column, -factor))
            changes[min(stop, count)].append((column, factor))
        found = [self.column() for _ in range(count)]
        for at, each in enumerate(found):
            self.equal([(each, 1.0), *([(found[at - 1], -1.0)] if at else []), *changes[at]])
        return found

    def minimized(self, least: float, effort: Effort) -> Solution:
        """Minimize the cost, in a small program with all integers, else with those that a solution without splits.

        Of these only with as heavy as `least`.
        """
        found = self._solved((), effort)
        split = [
            column
            for column in sorted(self._weights, key=self._weights.__getitem__, reverse=True)
            if found.values and abs(found.values[column] - round(found.values[column])) > _SPLIT
        ]
        is_large = len(self._weights) > MOST_WHOLE
        if is_large and effort.is_short:
            # Those integers raise a bound by little.
            return found
        if is_large:
            split = [each for each in split[:MOST_WHOLE] if self._weights[each] >= least]
        elif split:
            split = list(self._weights)
        if not split:
            return found
        whole = self._solved(frozenset(split), effort, _GAPS[is_large])
        return Solution(max(found.bound, whole.bound), whole.values or found.values)

    def _solved(self, whole: Collection[int], effort: Effort, gap: float = _GAPS[False]) -> Solution:
        # Slow to import.
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        if effort.is_over:
            return Solution(0.0, ())
        shape = len(self._most), len(self._costs)
        matrix = csr_array((self._factors, self._columns, self._ends), shape=shape)
        matrix.sum_duplicates()
        with standard_output_to_error():
            found = milp(
                self._costs,
                integrality=[column in whole for column in range(len(self._costs))] if whole else None,
                bounds=Bounds(0, self.bounds),
                constraints=LinearConstraint(matrix, -math.inf, self._most),
                options={"time_limit": effort.deadline.remaining_s, "node_limit": MOST_NODES, "mip_rel_gap": gap},
            )
        effort.spend(SOLVED * len(self._factors) * max(1, found.mip_node_count or 0))
        # An unfinished linear program proves nothing.
        proven = found.mip_dual_bound if whole else found.fun if found.status == 0 else None
        return Solution(proven or 0.0, () if found.x is None else found.x.tolist())


@contextmanager
def standard_output_to_error() -> Iterator[None]:
    """Let what C prints go to standard error, for HiGHS prints a line of debugging amid results that are piped on.

    https://github.com/ERGO-Code/HiGHS/issues/2783
    """
    libc = ctypes.CDLL(None)
    libc.fflush(None)
    try:
        kept, _ = os.dup(1), os.dup2(2, 1)
    except OSError:  # one of them is closed
        yield
        return
    try:
        yield
    finally:
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
