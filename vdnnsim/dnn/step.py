"""One iteration as plain data: storages, tensors as views of them, and operations in order.

The step of a built network is made of its layers (`vdnnsim.dnn.layer_step`); a captured model or a recorded trace is a
step with metadata (`vdnnsim.dnn.captured_step`), which is also its file. Nothing in it assumes that backward is forward
reversed, that a layer has one output, or that shapes are C, H, W. Numbers refer to positions: an operand to `tensors`,
a tensor and `saves` to `storages`, an operation to `modules`, `forward` and `freed_after` to `operations`.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cached_property
from typing import Final

import msgspec

from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.kernel_work import NO_SECTORS, ConvolutionWork, ProductWork, RecurrentWork, Sectors
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
"""Bytes of an element of each of PyTorch's types but for quantized ones."""

INDEX_BYTES: Final = ELEMENT_BYTES["int64"]
"""Of a label and of a row index in PyTorch."""


class BufferKind(Enum):
    """What a buffer holds: the kinds of Fig. 4 of the vDNN paper, optimizer states, labels, and statistics.

    Statistics are what forward saves beside maps: moments of a batch, masks, reserves.
    """

    FEATURE_MAP = "feature maps"
    GRADIENT_MAP = "gradient maps"
    WEIGHTS = "weights"
    WEIGHT_GRADIENT = "weight gradients"
    OPTIMIZER_STATE = "optimizer states"
    STATISTICS = "statistics"
    WORKSPACE = "workspace"
    LABELS = "labels"

    # As that of `Phase`.
    __hash__ = object.__hash__

    @property
    def words(self) -> str:
        """The name in what people read, which fits convolutions and transformers; files keep the value."""
        return _WORDS.get(self, self.value)


_WORDS: Final = {
    BufferKind.FEATURE_MAP: "activations",
    BufferKind.GRADIENT_MAP: "activation gradients",
    BufferKind.STATISTICS: "saved by forward",
}
RESIDENT: Final = (BufferKind.WEIGHTS, BufferKind.OPTIMIZER_STATE)
"""Kinds that stay allocated from iteration to iteration."""


class WeightGradients(Enum):
    """How weight gradients are allocated.

    `held`: allocated throughout, and written by the kernels of backward, as in Caffe and the papers. `dropped`: made by
    backward and freed before the next iteration (PyTorch's default, `zero_grad(set_to_none=True)`). `kept`: allocated
    throughout; backward computes gradients in temporary memory and adds them (`set_to_none=False`).
    """

    HELD = "held"
    DROPPED = "dropped"
    KEPT = "kept"


class Role(Enum):
    """Role of an operand in its operation."""

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

    # As that of `Phase`.
    __hash__ = object.__hash__


class Access(Enum):
    """How an operation accesses an operand; adding to a gradient is an update."""

    READ = "read"
    WRITE = "write"
    UPDATE = "update"

    def __init__(self, word: str) -> None:
        # Plans ask for these millions of times.
        self.reads, self.writes = word != "write", word != "read"


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
    """Memory that is allocated and freed as a whole.

    Attributes:
        name: the path of a parameter, or the operator that made it.
        element_type: as PyTorch calls it, `float32`, `int64`, `bool`.
        given: whether it exists when the iteration begins: parameters, buffers, optimizer states, inputs.
        freed_after: the operation after which it is freed; None if it outlives the iteration.
        constant: whether it is given, and a tensor that a model has beside its parameters and buffers.
        on_host: whether it is given in pinned memory of the host, which no kernel reads.
        stage: the part of the network that it belongs to.
        owner: in the layer view, its feature map, or the layer of its weights, weight gradient, state or statistics.
    """

    name: str
    kind: BufferKind
    nbytes: int
    element_type: str
    given: bool = False
    freed_after: int | None = None
    constant: bool = False
    on_host: bool = False
    stage: Stage = Stage.FEATURES
    owner: int = -1

    def is_held_after(self, operation: int) -> bool:
        return self.freed_after is None or self.freed_after > operation


class Tensor(Data, frozen=True):
    """A view of a storage, which several tensors may share.

    Attributes:
        shape: sizes in elements, the batch first where there is one.
        offset_bytes: where in the storage it begins.
    """

    storage: int
    shape: tuple[int, ...]
    element_type: str
    offset_bytes: int = 0


class Operand(Data, frozen=True, rename={"memory": "tensor"}):
    """Memory that an operation accesses.

    Attributes:
        memory: number of a tensor in a step, of a buffer in a plan.
        position: in the layer view, its position among those of its role.
    """

    role: Role
    memory: int
    access: Access
    position: int = 0


class StepOperation(Data, frozen=True):
    """One operation of an iteration; a phase of a layer is one or several of them, one after the other.

    Attributes:
        name: of the operator, `aten.convolution.default`.
        element_type: in which it computes, as PyTorch calls it.
        flop: by kind of arithmetic, by the direct method, a multiply and an add being two.
        bytes_moved: compulsory DRAM traffic: each operand read once, each result written once; 0 if none is launched.
        temporary_bytes: memory that it allocates and frees while it runs, whichever kernel computes it.
        copied_bytes: of its temporary memory that of copies of operands which lie otherwise than its kernels need.
        sectors: that its kernel moves, or the copies before it.
        forward: of a backward operation, its last forward operation, which may be recomputed; None if it has none.
        saves: storages that autograd saves; those of a capture include parameters and inputs.
        work: its shape, if it is a convolution, a product or of recurrent layers.
        known: whether its FLOPs follow from a rule; else they are those of PyTorch's counter, or none.
        layer: in the layer view, the layer that it belongs to.
        holds: in the layer view, storages that the program frees after it, though no operation reads them from it on.
        repeatable: whether a plan may recompute it, with the same bits as result.
        collective: what it exchanges with other ranks, if it does.
        aside: whether it runs on a communication stream: a collective that overlaps, or a copy into its buffers.
    """

    name: str
    module: int
    phase: Phase
    operands: tuple[Operand, ...]
    element_type: str
    flop: dict[Arithmetic, int] = {}
    bytes_moved: int = 0
    temporary_bytes: int = 0
    copied_bytes: int = 0
    sectors: Sectors = NO_SECTORS
    forward: int | None = None
    random: bool = False
    saves: tuple[int, ...] = ()
    work: ConvolutionWork | ProductWork | RecurrentWork | None = None
    known: bool = True
    layer: int = -1
    holds: tuple[int, ...] = ()
    repeatable: bool = True
    collective: Collective | None = None
    aside: bool = False

    @property
    def all_flop(self) -> int:
        return sum(self.flop.values())


class Step(Data, frozen=True, dict=True):
    """One iteration of one GPU."""

    modules: tuple[Module, ...]
    storages: tuple[Storage, ...]
    tensors: tuple[Tensor, ...]
    operations: tuple[StepOperation, ...]

    def path_of(self, operation: StepOperation) -> str:
        return self.modules[operation.module].path

    @cached_property
    def _by_layer(self) -> Mapping[tuple[int, Phase], tuple[tuple[int, ...], tuple[StepOperation, ...]]]:
        found: dict[tuple[int, Phase], list[int]] = {}
        for number, each in enumerate(self.operations):
            found.setdefault((each.layer, each.phase), []).append(number)
        return {where: (tuple(at), tuple(self.operations[each] for each in at)) for where, at in found.items()}

    def numbers_of(self, layer: int, phase: Phase) -> tuple[int, ...]:
        """Return the positions of the operations that are a phase of a layer, in their order; at least one."""
        return self._by_layer[layer, phase][0]

    def operations_of(self, layer: int, phase: Phase) -> tuple[StepOperation, ...]:
        """Return the operations that are a phase of a layer, in their order; at least one."""
        return self._by_layer[layer, phase][1]

    def operation(self, layer: int, phase: Phase) -> StepOperation:
        """Return the one operation that is a phase of a layer, as in every network that we build."""
        (operation,) = self.operations_of(layer, phase)
        return operation

    @cached_property
    def _by_owner(self) -> Mapping[tuple[BufferKind, int], int]:
        return {(each.kind, each.owner): number for number, each in enumerate(self.storages)}

    def storage(self, kind: BufferKind, owner: int) -> int:
        """Return the number of the storage of a kind and owner; of several optimizer states the last."""
        return self._by_owner[kind, owner]

    def storages_of(self, operands: Iterable[Operand]) -> tuple[Storage, ...]:
        return tuple(self.storages[self.tensors[each.memory].storage] for each in operands)

    @cached_property
    def first_use(self) -> Mapping[int, int]:
        """By storage the first operation that touches it, in order."""
        found: dict[int, int] = {}
        for position, operation in enumerate(self.operations):
            for operand in operation.operands:
                found.setdefault(self.tensors[operand.memory].storage, position)
        return found

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """Numbers of the saved storages, each once."""
        return tuple(dict.fromkeys(storage for each in self.operations for storage in each.saves))

    @property
    def saved_bytes(self) -> int:
        return sum(self.storages[each].nbytes for each in self.saved)
