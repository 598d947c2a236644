"""A training plan: the buffers and operations of one iteration on one GPU, as a policy decided them."""

from dataclasses import dataclass
from functools import cached_property

from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.certificate import Certificate
from vdnnsim.plans.operations import Offload, Operation, Prefetch

__all__ = ["Buffer", "BufferKind", "ProfilingPass", "TrainingPlan"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer of a plan; its id is its position in `TrainingPlan.buffers`.

    Attributes:
        given: whether its content is there when an iteration begins: the input batch, W and optimizer states.
        storage: the storage of the workload's step that it holds; None for a workspace, for memory into which others
            are laid, and for what the step does not know.
        given_on_host: whether what is given lies on the host when an iteration begins, and must when it ends; its
            memory on the GPU is empty when it is allocated.
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
        """Whether its content is in its memory when that is first allocated."""
        return self.given and not self.given_on_host


@dataclass(frozen=True, slots=True)
class ProfilingPass:
    """One trial iteration that a policy asked for before it decided.

    Attributes:
        name: the configuration tried, in the paper's words.
        fits: whether it ran to its end.
        cost_s: what the trial took: its iteration, or the part of it before memory ran out.
    """

    name: str
    fits: bool
    cost_s: float


@dataclass(frozen=True)
class TrainingPlan:
    """What one GPU does in one iteration.

    Attributes:
        workload: what is trained, as the policy planned it: by its saving rule, in its parts. What its kernels cost is
            what they cost for this workload.
        policy: the label under which the plan is reported, as `vdnn_all(m)`.
        algorithms: how convolution algorithms were chosen: m, p, or what a dynamic policy settled on.
        operations: in the order in which the host issues them.
        handles: of libraries that the framework opens beyond the first, which take device memory of their own.
        passes: the trials behind the decision, in their order; empty for a static policy.
        certificate: what is proven of the plan, where a planner made it.
    """

    workload: Workload
    policy: str
    algorithms: str
    buffers: tuple[Buffer, ...]
    operations: tuple[Operation, ...]
    passes: tuple[ProfilingPass, ...] = ()
    handles: int = 0
    certificate: Certificate | None = None

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers to which operations refer."""
        return tuple(layer.name for layer in self.workload.graph.layers)

    @cached_property
    def layer_stages(self) -> tuple[Stage, ...]:
        """Stages of the layers."""
        return tuple(layer.stage for layer in self.workload.graph.layers)

    @cached_property
    def buffer_names(self) -> tuple[str, ...]:
        """Names of the buffers by id."""
        return tuple(buffer.name for buffer in self.buffers)

    def copied_bytes(self, copy: Offload | Prefetch) -> int:
        """Return how many bytes a copy moves."""
        return self.buffers[copy.buffer].nbytes if copy.extent is None else len(copy.extent)
