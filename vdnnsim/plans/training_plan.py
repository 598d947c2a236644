"""A training plan: the buffers and operations of one iteration on one GPU, as a policy decided them."""

from dataclasses import dataclass, field
from functools import cached_property

from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.plans.certificate import Certificate
from vdnnsim.plans.operations import Offload, Operation, Prefetch

__all__ = ["Buffer", "BufferKind", "ProfilingPass", "TrainingPlan"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer of a plan; its id is its position in `TrainingPlan.buffers`.

    Attributes:
        given: whether it has content when an iteration begins: the input batch, W and optimizer states.
        storage: of the workload's step; None for workspaces and other buffers that are no storages.
        given_on_host: whether its content is on the host at the beginning and the end of an iteration.
    """

    name: str
    kind: BufferKind
    nbytes: int
    stage: Stage
    given: bool = False
    storage: int | None = None
    given_on_host: bool = False

    @property
    def given_on_gpu(self) -> bool:
        """Whether it has content when it is first allocated."""
        return self.given and not self.given_on_host


@dataclass(frozen=True, slots=True)
class ProfilingPass:
    """A trial iteration of a policy.

    Attributes:
        name: the configuration, in the paper's words.
        cost_s: time of the iteration, or of its part before memory ran out.
    """

    name: str
    fits: bool
    cost_s: float


@dataclass(frozen=True)
class TrainingPlan:
    """What one GPU does in one iteration.

    Attributes:
        workload: with the saving rule and the parts that the policy planned for, which decide its kernels' costs.
        policy: the label in results, as `vdnn_all(m)`.
        algorithms: m, p, or the choice of a dynamic policy.
        handles: of libraries beyond the first, which take device memory.
        memory_model: of the loop that applies it; None for that of the machine.
        passes: the trials of a dynamic policy, in order.
    """

    workload: Workload
    policy: str
    algorithms: str
    buffers: tuple[Buffer, ...] = field(repr=False)
    operations: tuple[Operation, ...] = field(repr=False)
    passes: tuple[ProfilingPass, ...] = field(default=(), repr=False)
    handles: int = 0
    certificate: Certificate | None = None
    memory_model: MemoryChoice | None = None

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers by index."""
        return tuple(layer.name for layer in self.workload.graph.layers)

    @cached_property
    def layer_stages(self) -> tuple[Stage, ...]:
        return tuple(layer.stage for layer in self.workload.graph.layers)

    @cached_property
    def buffer_names(self) -> tuple[str, ...]:
        return tuple(buffer.name for buffer in self.buffers)

    def kind_shown(self, buffer: int) -> BufferKind:
        """Return the kind of a buffer in what people read."""
        storage = self.buffers[buffer].storage
        return self.buffers[buffer].kind if storage is None else self.workload.kind_shown(storage)

    def copied_bytes(self, copy: Offload | Prefetch) -> int:
        return self.buffers[copy.buffer].nbytes if copy.extent is None else len(copy.extent)
