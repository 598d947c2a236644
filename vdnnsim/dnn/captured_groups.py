"""Grouping of the operations of a captured step into layers, with names and kinds.

A layer is a run of forward operations of one module: all operations of a module without submodules, and those that a
module runs between its submodules. Operations that write nothing that others read, as a view, belong to the layer
before them.

Backward of a layer consists of the operations that belong to its forward. Layers must run back in the order that was
captured, so an operation elsewhere in backward, as a recomputed forward, belongs to the layer whose backward follows,
or to the layer that wrote what it reads; as many operations as possible stay with their own layer.
"""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.step import BufferKind, Role, StepOperation

OPTIMIZER: Final = "optimizer"
"""The last layer of a step with an update."""

_KINDS: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"batch_norm", LayerKind.BN),
        (r"(layer|group|rms)_norm", LayerKind.LN),
        (r"lstm|gru|rnn", LayerKind.RNN),
        (r"attention", LayerKind.ATTENTION),
        (r"conv", LayerKind.CONV),
        (r"embedding", LayerKind.EMBEDDING),
        (r"dropout", LayerKind.DROPOUT),
        (r"pool|upsample", LayerKind.POOL),
        (r"loss|cross_entropy|nll|kl_div", LayerKind.LOSS),
        (r"addmm|linear|(^|_)b?mm$|matmul|addmv|(^|_)mv$|baddbmm|addbmm", LayerKind.FC),
        (r"^(cat|concat|stack)", LayerKind.CONCAT),
        (
            r"relu|gelu|silu|sigmoid|tanh|hardswish|hardtanh|mish|(^|_)elu|selu|celu|softplus|softmax|glu|clamp|threshold",
            LayerKind.ACTV,
        ),
        (r"^(add|sub)_?$", LayerKind.ADD),
        (r"^(mul|div)_?$", LayerKind.PRODUCT),
        (r"^_to_copy$|^to$", LayerKind.CAST),
    )
)
"""By the name of the main operation; the first match counts."""

_COPIES: Final = frozenset({"clone", "copy_", "_to_copy", "contiguous", "split_with_sizes_copy", "chunk_cat"})
"""Operations that only copy their input; the last two are FSDP's, between its buffers and weights and gradients."""


@dataclass(frozen=True, slots=True)
class Group:
    """The operations of one layer, by number, in order; `main` does most of its work."""

    name: str
    kind: LayerKind
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    update: tuple[int, ...]
    main: int

    @property
    def operations(self) -> tuple[int, ...]:
        return self.forward + self.backward + self.update


def operator_name(name: str) -> str:
    """Return the name of an operator without namespace and overload: `convolution` of `aten.convolution.default`."""
    _, colons, rest = name.rpartition("::")
    words = rest.split(".")
    return words[1] if not colons and len(words) > 1 and words[1] else words[0]


def kind_of(operation: StepOperation, step: CapturedStep) -> LayerKind:
    """Return the kind of the layer whose main operation this is; a product without weights counts as attention.

    PyTorch runs `instance_norm` as a batch normalization of one image, whose channels are those of all.
    """
    name = operator_name(operation.name)
    kind = next((kind for pattern, kind in _KINDS if pattern.search(name)), LayerKind.OTHER)
    if kind is LayerKind.BN and step.batch_size > 1 == step.tensors[operation.operands[0].memory].shape[0]:
        return LayerKind.LN
    if kind is LayerKind.FC:
        kinds = {step.storages[step.tensors[each.memory].storage].kind for each in operation.operands}
        roles = {each.role for each in operation.operands}
        return kind if BufferKind.WEIGHTS in kinds or Role.WEIGHTS in roles else LayerKind.ATTENTION
    return kind


def groups_of(step: CapturedStep) -> tuple[Group, ...]:
    """Return the layers of a step in the order of forward; that of the optimizer, if there is one, is the last."""
    phases: dict[Phase, list[int]] = {Phase.FORWARD: [], Phase.BACKWARD: [], Phase.UPDATE: []}
    for number, operation in enumerate(step.operations):
        phases[operation.phase].append(number)
    calls = groupby(phases[Phase.FORWARD], key=lambda number: step.operations[number].module)
    forward = _merged([list(call) for _, call in calls], step)
    backward = _backward(forward, phases[Phase.BACKWARD], step)
    names = _Names(step)
    groups = []
    for numbers, back in zip(forward, backward, strict=True):
        main = _main(numbers, step)
        name, kind = names.of(main), kind_of(step.operations[main], step)
        groups.append(Group(name, kind, tuple(numbers), tuple(back), (), main))
    if update := tuple(phases[Phase.UPDATE]):
        main = _main(update, step)
        groups.append(Group(names.unused(OPTIMIZER), LayerKind.OTHER, (), (), update, main))
    return tuple(groups)


def maps_written(numbers: Sequence[int], step: CapturedStep) -> list[int]:
    """Return the storages of feature maps that operations write, in order."""
    operands = (operand for number in numbers for operand in step.operations[number].operands)
    storages = dict.fromkeys(step.tensors[each.memory].storage for each in operands if each.access.writes)
    return [each for each in storages if step.storages[each].kind is BufferKind.FEATURE_MAP]


def _main(numbers: Sequence[int], step: CapturedStep) -> int:
    """Return the main operation: a product, else a loss, else no copy; of equals the first that moves most bytes."""

    def rank(number: int) -> tuple[bool, bool, bool, int, int]:
        operation = step.operations[number]
        is_loss = kind_of(operation, step) is LayerKind.LOSS
        is_copy = operator_name(operation.name) in _COPIES or operation.aside
        return operation.work is not None, is_loss, not is_copy, operation.bytes_moved, -number

    return max(numbers, key=rank)


def _merged(calls: Sequence[list[int]], step: CapturedStep) -> list[list[int]]:
    """Merge runs that write no map that others read into the run before, at the beginning into the next."""
    last_use = dict[int, int]()
    for number, operation in enumerate(step.operations):
        for operand in operation.operands:
            last_use[step.tensors[operand.memory].storage] = number
    groups: list[list[int]] = []
    pending: list[int] = []
    for call in calls:
        maps = maps_written(call, step)
        passes_on = any(last_use[each] > call[-1] or step.storages[each].freed_after is None for each in maps)
        if passes_on or (call is calls[-1] and (maps or not groups)):
            groups.append(pending + call)
            pending = []
        elif groups:
            groups[-1] += call
        else:
            pending += call
    return groups


def _backward(groups: Sequence[Sequence[int]], numbers: Sequence[int], step: CapturedStep) -> list[list[int]]:
    found = {number: index for index, group in enumerate(groups) for number in group}
    if step.micro_batches > 1:
        return _backward_as_captured(found, numbers, step, len(groups))
    # A recomputed operation stands for the forward operation that it repeats.
    twins = {(step.operations[each].module, step.operations[each].name): index for each, index in found.items()}
    wanted = []
    for number in numbers:
        forward = step.operations[number].forward
        if forward is None:
            continue
        group = found.get(forward, len(groups) - 1)
        if step.operations[forward].phase is Phase.BACKWARD:
            group = twins.get((step.operations[forward].module, step.operations[forward].name), group)
        found[number] = group
        wanted.append((number, group))
    kept = {wanted[at][0]: wanted[at][1] for at in _longest_descent([group for _, group in wanted])}
    latest: list[int] = []
    for number in numbers:
        latest.append(kept.get(number, latest[-1] if latest else len(groups) - 1))
    maker = {storage: index for index, group in enumerate(groups) for storage in maps_written(group, step)}
    backward: list[list[int]] = [[] for _ in groups]
    group = 0 if not kept else min(kept.values())
    for number, limit in zip(reversed(numbers), reversed(latest), strict=True):
        read = (step.tensors[each.memory].storage for each in step.operations[number].operands if each.access.reads)
        group = kept.get(number, min(limit, max((group, *(maker[each] for each in read if each in maker)))))
        backward[group].append(number)
    return [group[::-1] for group in backward]


def _backward_as_captured(
    found: dict[int, int], numbers: Sequence[int], step: CapturedStep, groups: int
) -> list[list[int]]:
    """Return backward by its forward alone, for all micro-batches are replayed in the order of the capture."""
    backward: list[list[int]] = [[] for _ in range(groups)]
    group = groups - 1
    for number in numbers:
        forward = step.operations[number].forward
        found[number] = group = group if forward is None else found.get(forward, group)
        backward[group].append(number)
    return backward


def _longest_descent(values: Sequence[int]) -> list[int]:
    """Return the positions of the longest sequence of values that never rises; of equals the last."""
    ends: list[int] = []
    at: list[int] = []
    before: list[int | None] = []
    for position, value in enumerate(values):
        length = bisect_right(ends, -value)
        before.append(at[length - 1] if length else None)
        ends[length : length + 1] = [-value]
        at[length : length + 1] = [position]
    chosen: list[int] = []
    last = at[-1] if at else None
    while last is not None:
        chosen.append(last)
        last = before[last]
    return chosen[::-1]


class _Names:
    """Unique names of layers: of a module, or of an operation between the submodules of one."""

    def __init__(self, step: CapturedStep) -> None:
        self._step = step
        paths = (module.path for module in step.modules)
        self._has_parts = {path[:at] for path in paths for at, sign in enumerate(path) if sign == "."}
        self._used: set[str] = set()
        self._counts: dict[str, int] = {}

    def of(self, main: int) -> str:
        operation = self._step.operations[main]
        path, word = self._step.modules[operation.module].path, operator_name(operation.name).strip("_")
        if not path:
            return self.unused(word)
        return self.unused(f"{path} ({word})" if path in self._has_parts else path)

    def unused(self, name: str) -> str:
        """Return a name, with a number appended from its second use on."""
        while True:
            count = self._counts[name] = self._counts.get(name, 0) + 1
            numbered = name if count == 1 else f"{name} {count}"
            if numbered not in self._used:
                self._used.add(numbered)
                return numbered
