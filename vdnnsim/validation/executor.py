"""Protocols of a device for validation: an executor of plans; `calibration` has one, and nothing here needs PyTorch."""

from collections.abc import Mapping
from typing import Protocol

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits
from vdnnsim.plans.trace import IterationTrace, MemoryCount
from vdnnsim.plans.training_plan import TrainingPlan


class Execution(Protocol):
    """One iteration on a device."""

    @property
    def trace(self) -> IterationTrace:
        """What happened."""

    @property
    def peaks(self) -> MemoryCount:
        """Maxima of memory as the device counted them."""

    @property
    def ordinal(self) -> int:
        """How often the plan has run, this time included, since its device last ran another one."""

    @property
    def loss(self) -> float:
        """The loss of the iteration."""


class Executor(Protocol):
    """Executes plans of one workload on one device."""

    def workspaces(self, workload: Workload, layer: Layer, phase: Phase) -> Mapping[str, int]:
        """Return by algorithm the bytes of workspace that it needs: what the device's library states or a run takes.

        The workload is the executor's, by whichever saving rule.

        Raises:
            ExecutionRefused: the library has no kernel for this.
        """

    def execute(
        self, plan: TrainingPlan, limits: MemoryLimits, pace: Mapping[int, float] | None = None
    ) -> Execution | DoesNotFit:
        """Run one iteration.

        Args:
            plan: a plan of the executor's workload.
            limits: the memory that the plan may use; one that does not fit is not begun.
            pace: on the CPU, how long each kernel and copy is made to take, by position of its operation in the plan.

        Raises:
            ExecutionRefused: the plan asks for what this executor cannot do; the message names it.
        """


class Laboratory(Protocol):
    """A device on which executors can be set up."""

    def executor(self, workload: Workload) -> Executor:
        """Return an executor of plans of a workload."""
