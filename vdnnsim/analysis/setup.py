"""What is trained and on which machine, with all choices made and all units SI; by which policies is a scenario's."""

from dataclasses import dataclass

from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.host import Execution
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, PinnedMemory
from vdnnsim.plans.operations import Aggregation


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a scenario and its result share.

    Attributes:
        name: stem of the scenario's file, with escapes for what cannot be printed.
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
    memory_model: MemoryChoice
    pinned_memory: PinnedMemory
    sources: tuple[tuple[str, str], ...] = ()
    gpus: int = 1
    gradients: Aggregation | None = None
    captured: CapturedModel | None = None
    execution: Execution = Execution.EAGER
