"""One iteration below the layers: storages, tensors as views of them, and operations in their order.

This is the one format of an iteration. Networks that we build make it of their layers (`vdnnsim.dnn.layer_step`); a
captured model or a recorded trace is such a step with its origin (`vdnnsim.dnn.captured_step`), which is also its file.
Nothing in it supposes that backward is forward reversed, that a layer has one output, or that shapes are C, H, W.
Numbers refer to positions: an operand to `tensors`, a tensor and `saves` to `storages`, an operation to `modules`,
`forward` and `freed_after` to `operations`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Final

import msgspec

from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.operator import Arithmetic

ELEMENT_BYTES: Final[Mapping[str, int]] = {
    "bool": 1,
    **{f"{sign}int{bits}": bits // 8 for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
}
"""Bytes of an element of each of PyTorch's types that are no quantized ones."""

INDEX_BYTES: Final = ELEMENT_BYTES["int64"]
"""Of a label and of a number of a row in PyTorch."""


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


RESIDENT: Final = (BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE)
"""What holds from iteration to iteration."""


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


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Plain data, whose keys are all known."""


class Module(Data, frozen=True):
    """A module of the model.

    Attributes:
        path: from the model down, `layer1.0.conv1`; empty for the model itself.
        kind: its class, `torch.nn.modules.conv.Conv2d`.
    """

    path: str
    kind: str


class Storage(Data, frozen=True):
    """Memory that lives as one.

    Attributes:
        name: for people: the path of a parameter, or what made it.
        element_type: as PyTorch calls it, `float32`, `int64`, `bool`.
        given: whether its content is there when the iteration begins: parameters, buffers, optimizer states, inputs.
        freed_after: the operation after which nobody holds it; None for what is held beyond the iteration.
        constant: whether it is given, and is none of those: a tensor that a model keeps beside its parameters and
            buffers.
        stage: the part of the network to which it counts.
        owner: in the view of layers, the feature map that it holds or whose gradient it holds, or the layer whose
            weights, weight gradient, optimizer state or statistics it holds.
    """

    name: str
    kind: BufferKind
    nbytes: int
    element_type: str
    given: bool = False
    freed_after: int | None = None
    constant: bool = False
    stage: Stage = Stage.FEATURES
    owner: int = -1

    def is_held_after(self, operation: int) -> bool:
        """Whether somebody still holds it when an operation has ended."""
        return self.freed_after is None or self.freed_after > operation


class Tensor(Data, frozen=True):
    """A view of a storage; several may share one, and to write in place is to write to a storage that others read.

    Attributes:
        shape: sizes in elements, the batch first where there is one.
        offset_bytes: where in the storage it begins.
    """

    storage: int
    shape: tuple[int, ...]
    element_type: str
    offset_bytes: int = 0


class Operand(Data, frozen=True, rename={"memory": "tensor"}):
    """Memory that an operation touches, and how; the first operands come first.

    Attributes:
        memory: of an operation of a step the number of a tensor, of a plan's that of a buffer.
        position: in the view of layers, which of several of its role it is, as the second input.
    """

    role: Role
    memory: int
    access: Access
    position: int = 0


class StepOperation(Data, frozen=True):
    """One operation of an iteration; a phase of a layer is one or several of them, one after the other.

    Attributes:
        name: of the operator, `aten.convolution.default`.
        module: the one that it belongs to.
        element_type: in which it computes, as PyTorch calls it.
        flop: by kind of arithmetic, by the direct method, a multiply and an add being two.
        bytes_moved: compulsory DRAM traffic: each operand read once, each result written once; 0 for one that launches
            nothing.
        temporary_bytes: memory that it takes and frees while it runs, beside its operands, whatever kernel computes it.
        forward: of a backward operation, the last operation of the forward that it is of, which may itself stand in
            backward where that was recomputed; None where it is of none.
        random: whether it draws random numbers.
        saves: the storages that autograd keeps of it for backward; of a capture parameters and inputs are among them,
            in the view of layers they are not.
        work: its shape, where a cost model knows such.
        known: whether its FLOPs follow from a rule; else they are those that PyTorch's counter knows, or none.
        layer: in the view of layers, the one that it belongs to.
        holds: in the view of layers, storages that the program still holds when it ends, though no operation reads
            them from it on.
        repeatable: whether a plan may run it again, which then makes the same bits.
    """

    name: str
    module: int
    phase: Phase
    operands: tuple[Operand, ...]
    element_type: str
    flop: dict[Arithmetic, int] = {}
    bytes_moved: int = 0
    temporary_bytes: int = 0
    forward: int | None = None
    random: bool = False
    saves: tuple[int, ...] = ()
    work: ConvolutionWork | ProductWork | None = None
    known: bool = True
    layer: int = -1
    holds: tuple[int, ...] = ()
    repeatable: bool = True

    def of_role(self, *roles: Role) -> tuple[Operand, ...]:
        """Return the operands of some roles, in order."""
        return tuple(each for each in self.operands if each.role in roles)

    @property
    def all_flop(self) -> int:
        """FLOPs of all kinds of arithmetic."""
        return sum(self.flop.values())


class Step(Data, frozen=True, dict=True):
    """One iteration of one GPU.

    Attributes:
        operations: in the order in which they run when nobody changes it.
    """

    modules: tuple[Module, ...]
    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    operations: tuple[StepOperation, ...]

    def path_of(self, operation: StepOperation) -> str:
        """Return the path of the module that an operation belongs to."""
        return self.modules[operation.module].path

    @cached_property
    def _by_layer(self) -> Mapping[tuple[int, Phase], tuple[int, ...]]:
        found: dict[tuple[int, Phase], list[int]] = {}
        for number, each in enumerate(self.operations):
            found.setdefault((each.layer, each.phase), []).append(number)
        return {where: tuple(numbers) for where, numbers in found.items()}

    @cached_property
    def _operations_by_layer(self) -> Mapping[tuple[int, Phase], tuple[StepOperation, ...]]:
        return {where: tuple(self.operations[each] for each in numbers) for where, numbers in self._by_layer.items()}

    def numbers_of(self, layer: int, phase: Phase) -> tuple[int, ...]:
        """Return the positions of the operations that are a phase of a layer, in their order; at least one."""
        return self._by_layer[layer, phase]

    def operations_of(self, layer: int, phase: Phase) -> tuple[StepOperation, ...]:
        """Return the operations that are a phase of a layer, in their order; at least one."""
        return self._operations_by_layer[layer, phase]

    def operation(self, layer: int, phase: Phase) -> StepOperation:
        """Return the one operation that is a phase of a layer, as in every network that we build."""
        (operation,) = self.operations_of(layer, phase)
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
