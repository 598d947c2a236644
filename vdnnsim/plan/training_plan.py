"""A training plan: the buffers and operations of one iteration on one GPU, as a policy decided them."""

from dataclasses import dataclass
from enum import Enum

from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.saving import SavingRule
from vdnnsim.plan.operations import Operation


class BufferKind(Enum):
    """What a buffer holds; the kinds of Fig. 4 of the vDNN paper, optimizer states, and statistics.

    Statistics are what forward keeps for backward beside maps: moments of a batch, masks, reserves.
    """

    FEATURE_MAP = "feature maps"
    GRADIENT_MAP = "gradient maps"
    WEIGHTS = "weights"
    WEIGHT_GRADIENT = "weight gradients"
    OPTIMIZER_STATE = "optimizer states"
    STATISTICS = "statistics"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer of a plan; its id is its position in `TrainingPlan.buffers`.

    Attributes:
        given: whether its content is there when an iteration begins: the input batch, W and optimizer states.
        of: what it belongs to: the index of the feature map that it holds or whose gradient it holds; the index of the
            layer whose weights, weight gradient, optimizer state or statistics it holds. None for a workspace,
            and for memory into which others are laid.
    """

    name: str
    kind: BufferKind
    nbytes: int
    stage: Stage
    given: bool = False
    of: int | None = None


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


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """What one GPU does in one iteration.

    Attributes:
        policy: the label under which the plan is reported, as `vdnn_all(m)`.
        algorithms: how convolution algorithms were chosen: m, p, or what a dynamic policy settled on.
        layers, layer_stages: names and stages of the layers to which operations refer.
        operations: in the order in which the host issues them.
        handles: of libraries that the framework opens beyond the first, which take device memory of their own.
        passes: the trials behind the decision, in their order; empty for a static policy.
        saving_rule: who says what forward keeps for backward, and so which operands the kernels have.
    """

    policy: str
    algorithms: str
    layers: tuple[str, ...]
    layer_stages: tuple[Stage, ...]
    buffers: tuple[Buffer, ...]
    operations: tuple[Operation, ...]
    passes: tuple[ProfilingPass, ...] = ()
    handles: int = 0
    saving_rule: SavingRule = SavingRule.PAPER

    @property
    def buffer_names(self) -> tuple[str, ...]:
        """Names of the buffers by id."""
        return tuple(buffer.name for buffer in self.buffers)
