"""One iteration below the layers: storages, tensors as views of them, and operations in their order.

What costs, policies, memory, engine and executor need of an iteration is here as plain data. Nothing in it supposes
that backward is forward reversed, that a layer has one output, that shapes are C, H, W, or what an operation computes:
networks that we build make it of their layers (`vdnnsim.dnn.layer_step`); whatever else produces it is treated alike.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final

from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.units import ElementType

if TYPE_CHECKING:
    from vdnnsim.dnn.captured_step import CapturedOperation


class BufferKind(Enum):
    """What memory holds; the kinds of Fig. 4 of the vDNN paper, optimizer states, and statistics.

    Statistics are what forward keeps for backward beside maps: moments of a batch, masks, reserves.
    """

    FEATURE_MAP = "feature maps"
    GRADIENT_MAP = "gradient maps"
    WEIGHTS = "weights"
    WEIGHT_GRADIENT = "weight gradients"
    OPTIMIZER_STATE = "optimizer states"
    STATISTICS = "statistics"
    WORKSPACE = "workspace"
    LABELS = "labels"


class WeightGradients(Enum):
    """What becomes of weight gradients from one iteration to the next.

    `held`: they have memory throughout, into which the kernels of backward write, as in Caffe and the papers.
    `dropped`: backward makes them, and they are given up before the next iteration begins (PyTorch's default,
    `zero_grad(set_to_none=True)`). `kept`: they have memory throughout, and what backward computes, in memory of its
    own, is added to them (`set_to_none=False`).
    """

    HELD = "held"
    DROPPED = "dropped"
    KEPT = "kept"


INDEX_BYTES: Final = 8
"""Of a label and of a number of a row in PyTorch, int64."""


class Role(Enum):
    """What an operand is to its operation, in the symbols of the field."""

    INPUT = "X"
    OUTPUT = "Y"
    OUTPUT_GRADIENT = "dY"
    INPUT_GRADIENT = "dX"
    WEIGHTS = "W"
    STATISTICS = "statistics"
    WEIGHT_GRADIENT = "dW"
    STATE = "state"
    LABELS = "labels"
    WORKSPACE = "workspace"


class Access(Enum):
    """What an operation does with an operand; one that adds to a gradient updates it."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"

    @property
    def reads(self) -> bool:
        """Whether what stands there matters."""
        return self is not Access.WRITE

    @property
    def writes(self) -> bool:
        """Whether something else stands there afterwards."""
        return self is not Access.READ


@dataclass(frozen=True, slots=True)
class Operand:
    """Memory that an operation touches.

    Attributes:
        memory: of an operation of a step the number of a tensor, of a plan's that of a buffer.
        position: which of several of its role it is, as the second input.
    """

    role: Role
    memory: int
    access: Access
    position: int = 0


@dataclass(frozen=True, slots=True)
class Storage:
    """Bytes that live as one; its number is its position in `Step.storages`.

    Attributes:
        element_type: of what it holds; None where that is no number of the workload, as a mask.
        stage: the part of the network to which it counts.
        given: whether its content is there when an iteration begins: the input batch, W and optimizer states.
        owner: in the view of layers, the feature map that it holds or whose gradient it holds, or the layer whose
            weights, weight gradient, optimizer state or statistics it holds.
        birth, death: positions of the first and the last operation that touch it; 0 and the last of all where it holds
            from iteration to iteration.
    """

    name: str
    kind: BufferKind
    nbytes: int
    element_type: ElementType | None
    stage: Stage
    given: bool
    owner: int
    birth: int = -1
    death: int = -1


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage; several may share one, and to write in place is to write to a storage that others read.

    Attributes:
        shape: sizes, the batch first where there is one.
        offset_bytes: where in the storage it begins.
    """

    storage: int
    shape: tuple[int, ...]
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StepOperation:
    """One operation of an iteration; a phase of a layer is one or several of them, one after the other.

    Attributes:
        module: the path of the module that it belongs to, `features.0.conv1`; the same in every iteration.
        layer: in the view of layers, the one that it belongs to.
        flop: by kind of arithmetic, by the direct method.
        bytes_moved: compulsory DRAM traffic, each operand read once and each result written once.
        temporary_bytes: device memory that it needs while it runs, whatever kernel computes it.
        random: whether it draws random numbers.
        saves: storages that it keeps alive for backward.
        holds: storages that the program still holds when it ends, though no operation reads them from it on.
        captured: what it was in the program; None of a network that we build.
        repeatable: whether a plan may run it again, which then makes the same bits.
    """

    module: str
    layer: int
    phase: Phase
    operands: tuple[Operand, ...]
    flop: Mapping[Arithmetic, int]
    bytes_moved: int
    temporary_bytes: int = 0
    random: bool = False
    saves: tuple[int, ...] = ()
    holds: tuple[int, ...] = ()
    captured: "CapturedOperation | None" = None
    repeatable: bool = True

    def of_role(self, *roles: Role) -> tuple[Operand, ...]:
        """Return the operands of some roles, in order."""
        return tuple(each for each in self.operands if each.role in roles)


@dataclass(frozen=True)
class Step:
    """One iteration of one GPU.

    Attributes:
        operations: in the order in which they run when nobody changes it.
    """

    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    operations: tuple[StepOperation, ...]

    @cached_property
    def _by_layer(self) -> Mapping[tuple[int, Phase], tuple[StepOperation, ...]]:
        found: dict[tuple[int, Phase], list[StepOperation]] = {}
        for each in self.operations:
            found.setdefault((each.layer, each.phase), []).append(each)
        return {where: tuple(operations) for where, operations in found.items()}

    def operations_of(self, layer: int, phase: Phase) -> tuple[StepOperation, ...]:
        """Return the operations that are a phase of a layer, in their order; at least one."""
        return self._by_layer[layer, phase]

    def operation(self, layer: int, phase: Phase) -> StepOperation:
        """Return the one operation that is a phase of a layer, as in every network that we build."""
        (operation,) = self._by_layer[layer, phase]
        return operation

    @cached_property
    def _by_owner(self) -> Mapping[tuple[BufferKind, int], int]:
        return {(each.kind, each.owner): number for number, each in enumerate(self.storages)}

    def storage(self, kind: BufferKind, owner: int) -> int:
        """Return the number of a storage by what it holds of whom; of the states of an optimizer the last."""
        return self._by_owner[kind, owner]

    def storages_of(self, operands: Iterable[Operand]) -> tuple[Storage, ...]:
        """Return the storages of operands of an operation."""
        return tuple(self.storages[self.tensors[each.memory].storage] for each in operands)

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """Numbers of the storages that forward keeps for backward, each once."""
        return tuple(dict.fromkeys(storage for each in self.operations for storage in each.saves))

    @property
    def saved_bytes(self) -> int:
        """Bytes that forward keeps for backward, beside what holds from iteration to iteration."""
        return sum(self.storages[each].nbytes for each in self.saved)
