"""Gradient accumulation of a captured step: one micro-batch as the last of several.

Backward makes a gradient of its own, which autograd adds in place to the one that is there, after the node and the sums
that the node completes (`AccumulateGrad`, torch/csrc/autograd/functions/accumulate_grad.h). So the gradients of
parameters are there throughout, and each is there twice from the kernel that makes it until it is added. A capture of
several micro-batches is as this step, but for the division of the loss by their number, two kernels on one number.
"""

from math import prod
from typing import Final

from msgspec.structs import replace

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, StepOperation, Storage

_SUMS: Final = ("aten.add.Tensor", "aten.add_.Tensor")
"""By which autograd sums the gradients of an activation; they are of no operation of forward."""


def accumulating(step: CapturedStep, rounds: int) -> CapturedStep:
    """Return a step of one micro-batch as the last of so many, with the inputs of the others beside it."""
    spans = _made(step)
    made = {gradient: len(step.storages) + at for at, gradient in enumerate(spans)}
    views = [number for number, view in enumerate(step.tensors) if view.storage in made]
    twins = {view: len(step.tensors) + at for at, view in enumerate(views)}
    operations: list[StepOperation] = []
    moved: list[int] = []
    added: dict[int, int] = {}
    for position, each in enumerate(step.operations):
        operands = (
            replace(one, memory=twins[one.memory])
            if position in spans.get(step.tensors[one.memory].storage, ())
            else one
            for one in each.operands
        )
        moved.append(len(operations))
        forward = None if each.forward is None else moved[each.forward]
        operations.append(replace(each, operands=tuple(operands), forward=forward))
        # Autograd adds the gradient of a bias before that of the weight, which was made before it.
        for gradient, span in reversed(spans.items()):
            if position == span[-1]:
                added[gradient] = len(operations)
                view = next(number for number in views if step.tensors[number].storage == gradient)
                operations.append(_addition(step, view, twins[view]))
    storages = (
        replace(each, given=each.given or number in spans, freed_after=_at(moved, each.freed_after))
        for number, each in enumerate(step.storages)
    )
    own = (replace(step.storages[gradient], freed_after=added[gradient]) for gradient in spans)
    return replace(
        step,
        storages=(*storages, *own, *_inputs_of_others(step, rounds)),
        tensors=(
            *step.tensors,
            *(replace(step.tensors[each], storage=made[step.tensors[each].storage]) for each in views),
        ),
        operations=tuple(operations),
    )


def with_gradients(step: CapturedStep) -> CapturedStep:
    """Return a step of a loop whose gradients are there already, with as many operations.

    The memory of a gradient that backward makes to add it is counted as temporary memory of the operation.
    """
    spans = _made(step)
    more: dict[int, int] = {}
    for gradient, span in spans.items():
        more[span.start] = more.get(span.start, 0) + step.storages[gradient].nbytes
    return replace(
        step,
        storages=tuple(replace(each, given=each.given or at in spans) for at, each in enumerate(step.storages)),
        operations=tuple(
            replace(each, temporary_bytes=each.temporary_bytes + more[at]) if at in more else each
            for at, each in enumerate(step.operations)
        ),
    )


def _made(step: CapturedStep) -> dict[int, range]:
    """Return the operations from the first that writes a gradient to the end of the node of the last, by gradient.

    Gradients are those that the update reads.
    """
    phases = [each.phase for each in step.operations]
    update = phases.index(Phase.UPDATE) if Phase.UPDATE in phases else len(phases) - 1
    found: dict[int, range] = {}
    for position, each in enumerate(step.operations):
        for operand in each.operands if each.phase is Phase.BACKWARD else ():
            number = step.tensors[operand.memory].storage
            storage = step.storages[number]
            is_gradient = storage.kind is BufferKind.WEIGHT_GRADIENT and storage.is_held_after(update - 1)
            if operand.access.writes and is_gradient and not storage.given:
                first = found[number].start if number in found else position
                found[number] = range(first, _end_of_node(step, position))
    return found


def _end_of_node(step: CapturedStep, position: int) -> int:
    """Return the position after the operations of a node of autograd and the sums that follow."""
    forward = step.operations[position].forward
    for at in range(position + 1, len(step.operations)):
        each = step.operations[at]
        is_of_node = each.forward == forward if each.forward is not None else each.name in _SUMS
        if each.phase is not Phase.BACKWARD or not is_of_node:
            return at
    return len(step.operations)


def _addition(step: CapturedStep, total: int, own: int) -> StepOperation:
    view = step.tensors[total]
    nbytes = step.storages[view.storage].nbytes
    return StepOperation(
        name="aten.add_.Tensor",
        module=0,
        phase=Phase.BACKWARD,
        operands=(Operand(Role.WEIGHT_GRADIENT, total, Access.UPDATE), Operand(Role.WEIGHT_GRADIENT, own, Access.READ)),
        element_type=view.element_type,
        flop={Arithmetic.ELEMENTWISE: prod(view.shape)},
        bytes_moved=3 * nbytes,
    )


def _inputs_of_others(step: CapturedStep, rounds: int) -> tuple[Storage, ...]:
    return tuple(
        Storage(
            f"{each.name} of other micro-batches",
            BufferKind.LABELS,
            (rounds - 1) * each.nbytes,
            each.element_type,
            given=True,
        )
        for each in step.storages
        if each.given and not each.constant and each.kind in (BufferKind.FEATURE_MAP, BufferKind.LABELS)
    )


def _at(moved: list[int], operation: int | None) -> int | None:
    return None if operation is None else moved[operation]
