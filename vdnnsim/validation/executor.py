"""Protocols of a device that executes plans for a validation; `calibration` implements them with PyTorch."""

from collections.abc import Mapping
from typing import Protocol

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.trace import IterationTrace, MemoryCount
from vdnnsim.plans.training_plan import TrainingPlan


class Execution(Protocol):
    """One iteration on a device."""

    @property
    def trace(self) -> IterationTrace:
        """The measured trace."""

    @property
    def peaks(self) -> MemoryCount:
        """Peaks of memory as the device counted them."""

    @property
    def ordinal(self) -> int:
        """Number of runs of the plan in a row, this one included."""

    @property
    def loss(self) -> float:
        """The loss of the iteration."""


class Executor(Protocol):
    """Executes plans of one workload on one device."""

    def workspaces(self, workload: Workload, layer: Layer, phase: Phase) -> Mapping[str, int]:
        """Return the bytes of workspace by algorithm, as the device's library states or a run measures.

        Raises:
            ExecutionRefused: the library has no kernel for this.
        """

    def execute(
        self, plan: TrainingPlan, limits: MemoryLimits, pace: Mapping[int, float] | None = None
    ) -> Execution | DoesNotFit:
        """Run one iteration.

        Args:
            plan: a plan of the executor's workload.
            limits: the memory that the plan may use; one that does not fit is not started.
            pace: on the CPU, the seconds that each kernel and copy is made to take, by position of its operation.

        Raises:
            ExecutionRefused: the plan has an operation that this executor does not support.
        """


class Laboratory(Protocol):
    """A device on which executors can be set up."""

    def executor(self, workload: Workload) -> Executor:
        """Return an executor of plans of a workload."""
