"""Orders of the kernels of a workload: the problem of each, which searches for several memories look at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from typing import Final

from vdnnsim.cost.table import CostTable
from vdnnsim.dnn.workload import Workload
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.schedule import Run, iteration

MOST_PROBLEMS: Final = 48
"""That are remembered, of 2,000 kernels a MB each."""


@dataclass(frozen=True)
class Orders:
    """Orders of the kernels of a workload.

    Attributes:
        movable: optimizer states and weight gradients that may be on the host while no kernel uses them.
    """

    workload: Workload
    costs: CostTable
    movable: frozenset[int]

    @cached_property
    def recomputation(self) -> Recomputation:
        """The iteration with an optional recomputation of parts of forward."""
        return Recomputation(iteration(self.workload), self.workload, self.costs)

    def problem(self, runs: Sequence[Run], on_host: frozenset[int], limits: MemoryLimits) -> Problem:
        """Return the problem of an order with some buffers on the host, in the memory that there is."""
        found = self._problem(tuple(runs), on_host, limits.granule_bytes)
        return replace(found, capacity_bytes=limits.device_bytes)

    def buffers(self, on_host: frozenset[int]) -> IterationBuffers:
        """Return the buffers of the workload, to which a plan may add others."""
        return self._buffers(on_host).anew()

    @cached_property
    def _problem(self) -> Callable[[tuple[Run, ...], frozenset[int], int], Problem]:
        def found(runs: tuple[Run, ...], on_host: frozenset[int], granule_bytes: int) -> Problem:
            buffers = self._buffers(on_host)
            return problem_of(runs, self.workload, self.costs, 0, granule_bytes, buffers=buffers)

        return lru_cache(MOST_PROBLEMS)(found)

    @cached_property
    def _buffers(self) -> Callable[[frozenset[int]], IterationBuffers]:
        return cache(partial(IterationBuffers, self.workload))
