"""A scenario: what is trained, where, and by which policies, with all choices made and all units SI."""

from dataclasses import dataclass, replace

from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.port import Policy


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question to the simulator.

    Attributes:
        name: stem of the scenario's file, with escapes for what cannot be printed.
        policies: in the order of the file; each becomes one row of the results.
        sources: (name, SHA-256) of every file that was read: the scenario first, then the captured steps, the profile
            and the tables that it names.
        gpus: how many GPUs of the server train together, each with the workload's batch.
        gradients: how they add up their gradients; None where there is nothing to add up.
        captured: where the workload was captured, what says how it is with other batches; None for a network of ours.
        execution: how the framework runs it; what was captured is fused already where that is `compiled`.
    """

    name: str
    workload: Workload
    server: Server
    policies: tuple[Policy, ...]
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...]
    gpus: int = 1
    gradients: Aggregation | None = None
    captured: CapturedModel | None = None
    execution: Execution = Execution.EAGER

    def workload_of(self, batch_size: int) -> Workload:
        """Return the workload with another batch.

        Raises:
            InputError: it was captured, and does not follow from what was captured.
        """
        if self.captured is None:
            return replace(self.workload, batch_size=batch_size)
        return self.captured.workload(batch_size)
