"""The memories of a machine in which plans are placed, and its memory model."""

from dataclasses import dataclass, replace

from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, is_of_pytorch
from vdnnsim.memory.live_segments import LiveSegments
from vdnnsim.plans.host_memory import HostLimits
from vdnnsim.plans.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """The memories of a machine, and its memory model.

    Attributes:
        device_bytes: device memory for buffers, less `handle_bytes` for each handle that a plan opens.
        total_bytes: all memory of the GPU; by default `device_bytes`.
        pinned_bytes: host memory that may be pinned; by default all.
        process_bytes: host memory of a process beside what it pins.
        boundaries, live: operations before which a live loop can change PyTorch's pool, and the segments among which
            it begins, as of `Reserving`.
    """

    model: MemoryChoice
    device_bytes: int
    host_bytes: int
    granule_bytes: int
    handle_bytes: int = 0
    total_bytes: int | None = None
    pinned_bytes: int | None = None
    process_bytes: int = 0
    boundaries: frozenset[int] | None = None
    live: LiveSegments | None = None

    @classmethod
    def of_server(cls, server: Server, model: MemoryChoice, gpus: int) -> "MemoryLimits":
        """Return the memory of one GPU, and its equal share of host memory."""
        return cls(
            model=model,
            device_bytes=max(0, server.gpu.memory_bytes - server.gpu.context_bytes),
            host_bytes=server.host.memory_bytes // gpus,
            pinned_bytes=(server.host.pinnable_bytes or server.host.memory_bytes) // gpus,
            process_bytes=server.host.process_bytes if is_of_pytorch(model) else 0,
            granule_bytes=server.gpu.granule_bytes,
            handle_bytes=server.gpu.handle_bytes,
            total_bytes=server.gpu.memory_bytes,
        )

    @property
    def host(self) -> HostLimits:
        pinned = self.host_bytes if self.pinned_bytes is None else self.pinned_bytes
        return HostLimits(self.host_bytes, pinned, self.process_bytes, is_of_pytorch(self.model))

    def of(self, plan: TrainingPlan) -> "MemoryLimits":
        return self if plan.memory_model is None else replace(self, model=plan.memory_model)

    def pool_bytes(self, plan: TrainingPlan) -> int:
        return max(0, self.device_bytes - plan.handles * self.handle_bytes)
