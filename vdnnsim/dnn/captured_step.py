"""A captured step: one iteration of a PyTorch model as plain data, as it is written to a file `NAME.step.json`.

Whoever captures (`calibration.capture`) writes this and nothing else; whoever replays reads this and nothing else: no
code of a user's, no PyTorch. Numbers refer to positions: an operand to `tensors`, a tensor to `storages`, an operation
to `modules`, `saves` to `storages`, `forward` and `freed_after` to `operations`.

Operations stand in the order in which the framework issued them: forward, backward, the update of the weights. All
memory that an operation takes for its results is taken when it begins; what nobody holds after it is freed when it has
ended.
"""

import re
from itertools import accumulate
from math import prod
from typing import Final

import msgspec

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import Access, BufferKind, Role
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

VERSION = 1
"""Of the file; raised when a key is renamed, removed or means something else."""

_CUDA: Final = re.compile(r"cuda (\d{1,3})\.(\d{1,3})", re.ASCII)


class _Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Plain data, whose keys are all known."""


class CapturedModule(_Data, frozen=True):
    """A module of the model.

    Attributes:
        path: from the model down, `layer1.0.conv1`; empty for the model itself.
        kind: its class, `torch.nn.modules.conv.Conv2d`.
    """

    path: str
    kind: str


class CapturedStorage(_Data, frozen=True):
    """Memory that lives as one.

    Attributes:
        name: for people: the path of a parameter, or what made it.
        element_type: as PyTorch calls it, `float32`, `int64`, `bool`.
        given: whether its content is there when the iteration begins: parameters, buffers, optimizer states, inputs.
        freed_after: the operation after which nobody holds it; None for what is held beyond the iteration.
        constant: whether it is given, and is none of those: a tensor that a model keeps beside its parameters and
            buffers.
    """

    name: str
    kind: BufferKind
    nbytes: int
    element_type: str
    given: bool = False
    freed_after: int | None = None
    constant: bool = False

    def is_held_after(self, operation: int) -> bool:
        """Whether somebody still holds it when an operation has ended."""
        return self.freed_after is None or self.freed_after > operation


class CapturedTensor(_Data, frozen=True):
    """A view of a storage; shape in elements."""

    storage: int
    shape: tuple[int, ...]
    element_type: str
    offset_bytes: int = 0


class CapturedOperand(_Data, frozen=True):
    """What an operation touches, and how; the first operands come first."""

    role: Role
    tensor: int
    access: Access


class ConvolutionWork(_Data, frozen=True, tag="convolution", tag_field="kind"):
    """A convolution in one to three dimensions, of whatever phase, in the sizes of its forward.

    Attributes:
        input_size, kernel, stride, padding, dilation: by spatial dimension.
        computes: for a backward, what of `input`, `weight`, `bias` it computes gradients of; empty in forward.
    """

    batch_size: int
    input_channels: int
    output_channels: int
    input_size: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    transposed: bool = False
    bias: bool = False
    channels_last: bool = False
    computes: tuple[str, ...] = ()

    @property
    def output_size(self) -> tuple[int, ...]:
        """Sizes of the output, by spatial dimension."""
        sizes = zip(self.input_size, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        if self.transposed:
            return tuple((x - 1) * s - 2 * p + d * (k - 1) + 1 for x, k, s, p, d in sizes)
        return tuple((x + 2 * p - d * (k - 1) - 1) // s + 1 for x, k, s, p, d in sizes)

    @property
    def weights(self) -> int:
        """Elements of the filters, bias aside."""
        return self.input_channels * self.output_channels // self.groups * prod(self.kernel)

    @property
    def is_depthwise(self) -> bool:
        """Whether each filter sees one channel."""
        return self.groups == self.input_channels > 1

    @property
    def gradients(self) -> tuple[str, ...]:
        """Of what a backward computes gradients that are products, `input` first."""
        return tuple(each for each in ("input", "weight") if each in self.computes)

    @property
    def flop(self) -> int:
        """FLOPs: each weight is a factor at each place of the smaller map, for every image and every gradient."""
        places = prod(self.input_size if self.transposed else self.output_size)
        products = len(self.gradients) if self.computes else 1
        return 2 * products * self.batch_size * places * self.weights


class ProductWork(_Data, frozen=True, tag="product", tag_field="kind"):
    """`batch` products of matrices, m x k by k x n."""

    batch: int
    m: int
    n: int
    k: int

    @property
    def flop(self) -> int:
        """FLOPs of all of them."""
        return 2 * self.batch * self.m * self.n * self.k


class CapturedOperation(_Data, frozen=True):
    """One operation that was dispatched.

    Attributes:
        name: of the operator, `aten.convolution.default`.
        forward: of a backward operation, the last operation of the forward that it is of, which may itself stand in
            backward where that was computed again; None where it is of none.
        element_type: in which it computes, as PyTorch calls it.
        flop: by kind of arithmetic, by the direct method, a multiply and an add being two.
        bytes_moved: compulsory DRAM traffic: each operand read once, each result written once; 0 for one that launches
            nothing.
        temporary_bytes: memory that it takes and gives back while it runs, beside its operands.
        random: whether it draws random numbers.
        saves: the storages that autograd keeps of it for backward, parameters and inputs among them.
        work: its shape, where a cost model knows such.
        known: whether its FLOPs follow from a rule; else they are those that PyTorch's counter knows, or none.
    """

    name: str
    module: int
    phase: Phase
    operands: tuple[CapturedOperand, ...]
    element_type: str
    flop: dict[Arithmetic, int] = {}
    bytes_moved: int = 0
    temporary_bytes: int = 0
    forward: int | None = None
    random: bool = False
    saves: tuple[int, ...] = ()
    work: ConvolutionWork | ProductWork | None = None
    known: bool = True


class CapturedStep(_Data, frozen=True):
    """One iteration of a model on one GPU.

    Attributes:
        version: of the file.
        model: what was captured, as it was named.
        framework: `torch 2.13.0`, with the versions of what the model is from.
        device: what it was captured as: `cuda 8.9` by the rules of a compute capability, or `cpu`.
        batch_size: how many samples.
        sample: what one of the batch is, `image` or `sequence`.
        sample_elements: of a sequence, its tokens; 1 for an image.
        optimizer: its name, as `adamw`; `none` without an update.
        parameters: how many there are, each once.
        notes: what was assumed, in sentences.
        lifetimes: whether it tells what lives when; a trace of a profiler does not, and only times can be asked of it.
    """

    version: int
    model: str
    framework: str
    device: str
    batch_size: int
    sample: str
    sample_elements: int
    mode: Mode
    precision: Precision
    optimizer: str
    parameters: int
    modules: tuple[CapturedModule, ...]
    storages: tuple[CapturedStorage, ...]
    tensors: tuple[CapturedTensor, ...]
    operations: tuple[CapturedOperation, ...]
    notes: tuple[str, ...] = ()
    lifetimes: bool = True

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Of the CUDA device by whose rules it was captured; None where that was a CPU, or is not told so."""
        told = _CUDA.fullmatch(self.device)
        return (int(told[1]), int(told[2])) if told else None

    @property
    def saved_bytes(self) -> int:
        """Bytes that forward keeps for backward, each storage once, beside parameters, buffers and inputs.

        Constants are among them, though the model keeps them too; what was saved and freed before backward begins is
        not. Of micro-batches the most that one keeps.
        """
        most, saved = 0, set[int]()
        for position, operation in enumerate(self.operations):
            saved.update(operation.saves)
            following = self.operations[position + 1].phase if position + 1 < len(self.operations) else None
            if operation.phase is Phase.FORWARD and following is not Phase.FORWARD:
                storages = (self.storages[each] for each in saved)
                kept = (each for each in storages if each.constant or not each.given)
                most = max(most, sum(each.nbytes for each in kept if each.is_held_after(position)))
                saved.clear()
        return most

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters of the model."""
        return sum(each.nbytes for each in self.storages if each.given and each.kind is BufferKind.WEIGHTS)

    @property
    def live_bytes(self) -> tuple[int, ...]:
        """Bytes that are alive while each operation runs: what is given, what it touches, and what is held beyond."""
        first: dict[int, int] = {}
        for position, operation in enumerate(self.operations):
            for operand in operation.operands:
                first.setdefault(self.tensors[operand.tensor].storage, position)
        change = [0] * (len(self.operations) + 1)
        for number, storage in enumerate(self.storages):
            begin = 0 if storage.given else first.get(number)
            if begin is not None:
                change[begin] += storage.nbytes
                if storage.freed_after is not None:
                    change[storage.freed_after + 1] -= storage.nbytes
        return tuple(accumulate(change[:-1]))

    @property
    def peak_live_bytes(self) -> int:
        """The most bytes that are alive at once, temporary memory of operations among them."""
        pairs = zip(self.live_bytes, self.operations, strict=True)
        return max((live + operation.temporary_bytes for live, operation in pairs), default=0)
