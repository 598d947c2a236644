"""`page_migration`: the virtual memory with which vDNN is compared (MICRO 2016, II-C), on the same networks.

All maps, W and dW are in one virtual space larger than the GPU, and the operands of a kernel must be on the GPU before
it runs. Missing ones are paged in, and the least recently used are paged out for them, both in pages of 4 KB that take
20 to 50 us each (Zheng et al., HPCA 2016, as the paper cites them), while the kernel waits. A buffer that was not
written since its last copy is not copied again. Where everything fits nothing is paged, and an iteration takes as long
as under `base`. The pager does not know liveness: it copies dead maps. Gradient maps and workspaces come from the
framework's pool, and so end with their last kernel.

Pages need no contiguous memory, so the policy requires the memory model `ideal`.

Limitations: the least recently used is found among buffers, not among pages, so that up to a buffer more than needed
is paged out. A kernel whose operands exceed the GPU does not fit, where page migration would fetch the same pages again
and again. An iteration begins with the input batch and W on the GPU, as under every policy.
"""

from collections.abc import Iterable
from typing import ClassVar

from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.requests import round_up
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lifetimes import lifetimes
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Paged
from vdnnsim.plans.schedule import Allocate, Offload, Prefetch, Release, Run, ScheduleStep, Wait, iteration
from vdnnsim.plans.schemes import AsScheduled
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.units import KIB, Dimension, parse_quantity

PAGE_BYTES = 4 * KIB
"""The page of the paper, II-C."""

_LEAST, _MOST = "20 us", "50 us"


class PageMigration(ByRule, frozen=True, kw_only=True):
    """Page on demand.

    Attributes:
        page_latency: time to migrate one page, 20 us to 50 us; by default the middle of what the paper reports.
    """

    name: ClassVar[str] = "page_migration"
    summary: ClassVar[str] = "pages of 4 KB on demand, least recently used out first (vDNN paper, II-C)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    page_latency: str = "35 us"

    def __post_init__(self) -> None:
        """Check the latency.

        Raises:
            ValueError: it is no time, or out of range; msgspec makes that the refusal of the option.
        """
        try:
            latency_s = self.page_latency_s
        except InputError as failure:
            raise ValueError(f"page_latency: {failure}") from None
        if not parse_quantity(_LEAST, Dimension.SECONDS) <= latency_s <= parse_quantity(_MOST, Dimension.SECONDS):
            raise ValueError(f"page_latency: found {self.page_latency!r}, expected from {_LEAST} to {_MOST}")

    @property
    def page_latency_s(self) -> float:
        """Time to migrate one page."""
        return parse_quantity(self.page_latency, Dimension.SECONDS)

    def misfit(self, workload: Workload, memory_model: MemoryChoice | None) -> str:
        """Refuse memory models with addresses, and several micro-batches."""
        if workload.rounds > 1:
            found = f"found {workload.rounds} micro-batches before an update, expected one"
            return f"{found}: where pages are then is not where each begins"
        if memory_model not in (None, MemoryModel.IDEAL):
            return f"memory_model: found '{memory_model.value}', expected 'ideal', for pages need no contiguous memory"
        return super().misfit(workload, memory_model)

    def plan(self, setting: Setting) -> TrainingPlan:
        kernels = self.kernels(setting, setting.workload)
        pager = _Pager(setting.workload, kernels, setting.limits, Paged(PAGE_BYTES, self.page_latency_s))
        pager.walk()
        return self.lowered(setting, pager.steps, AsScheduled)


class _Pager:
    """Writes the `steps` of an iteration, kernel by kernel."""

    def __init__(self, workload: Workload, kernels: KernelChoice, limits: MemoryLimits, paged: Paged) -> None:
        self.steps: list[ScheduleStep] = []
        self._runs = iteration(workload)
        self._kernels = kernels
        self._limits = limits
        self._paged = paged
        self._buffers = IterationBuffers(workload)
        # Rounded bytes of the buffers on the GPU, the least recently used first.
        self._resident: dict[int, int] = {}
        # Buffers of which the host has a valid copy.
        self._on_host: set[int] = set()

    def walk(self) -> None:
        gradients = {*self._buffers.gradients.values()}
        for run, ending in zip(self._runs, lifetimes(self._runs, self._buffers).ends, strict=True):
            self._kernel(run)
            self._release(buffer for buffer in ending if buffer in gradients and buffer in self._resident)
        self._release(self._resident)

    def _kernel(self, run: Run) -> None:
        reads, writes = self._buffers.touched(run)
        operands = dict.fromkeys(reads + writes)
        missing = {
            buffer: self._rounded(self._buffers.nbytes(buffer)) for buffer in operands if buffer not in self._resident
        }
        workspace_bytes = self._kernels[run.layer.index, run.phase].workspace_bytes
        self._page_out(self._least_recent(sum(missing.values()) + self._rounded(workspace_bytes), operands), run)
        if missing:
            self.steps.append(Allocate(tuple(missing), run.layer, run.phase))
        self._resident |= missing
        if arriving := tuple(each for each in missing if each in reads and each in self._on_host):
            fetch = Prefetch(arriving, run.layer, run.phase, on_demand=True, keeps_copy=True, mechanism=self._paged)
            self.steps += [fetch, Wait(arriving)]
        self.steps.append(run)
        for buffer in operands:
            self._resident[buffer] = self._resident.pop(buffer)  # to the end of the order of use
        self._on_host.difference_update(writes)

    def _least_recent(self, needed_bytes: int, operands: dict[int, None]) -> list[int]:
        """Return the buffers to page out so that a kernel fits, or all that may be paged out."""
        free_bytes = self._limits.device_bytes - sum(self._resident.values())
        evicted = []
        for buffer, nbytes in self._resident.items():
            if free_bytes >= needed_bytes:
                break
            if buffer not in operands:
                evicted.append(buffer)
                free_bytes += nbytes
        return evicted

    def _page_out(self, evicted: list[int], run: Run) -> None:
        """Copy buffers without a valid copy, after the kernels so far, and release all."""
        changed = [buffer for buffer in evicted if buffer not in self._on_host]
        if changed:
            what = tuple(changed)
            self.steps += [Offload(what, run.layer, run.phase, mechanism=self._paged), Wait(what)]
        self._release(evicted)
        self._on_host.update(changed)

    def _release(self, buffers: Iterable[int]) -> None:
        if released := tuple(buffers):
            self.steps.append(Release(released))
            for buffer in released:
                del self._resident[buffer]

    def _rounded(self, nbytes: int) -> int:
        return round_up(nbytes, self._limits.granule_bytes)
