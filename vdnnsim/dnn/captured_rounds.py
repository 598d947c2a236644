"""Micro-batches of a captured step: how many there are, and the last of them as an iteration of its own."""

from msgspec.structs import replace

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, StepOperation, Storage


def rounds_of(step: CapturedStep) -> int:
    """Return how many micro-batches an iteration has: how often it runs forward and backward before it updates."""
    return max(1, len(_starts(step)))


def last_round(step: CapturedStep) -> CapturedStep:
    """Return the last micro-batch and the update, as an iteration that finds what those before it left.

    All but the first are alike: weight gradients are there, to which backward adds. So the last is the iteration that
    policies plan, and what they plan is done as often as there are micro-batches (`vdnnsim.plans.lowering`). Of the
    first it says a little too much memory: that of gradients which backward is about to make.
    """
    starts = _starts(step)
    return step if len(starts) < 2 else _from(step, starts[-1])


def _starts(step: CapturedStep) -> list[int]:
    phases = [each.phase for each in step.operations]
    before = [None, *phases]
    return [at for at, phase in enumerate(phases) if phase is Phase.FORWARD and before[at] is not Phase.FORWARD]


def _from(step: CapturedStep, first: int) -> CapturedStep:
    """Return the operations from one on, with the storages that they find or make, by new numbers."""

    def of(operations: tuple[StepOperation, ...], *, writes: bool = False) -> set[int]:
        operands = (operand for each in operations for operand in each.operands)
        return {step.tensors[each.memory].storage for each in operands if each.access.writes or not writes}

    def moved(number: int) -> Storage:
        each, is_found = step.storages[number], number in found
        # An input of another micro-batch is memory that the program holds, and no map.
        is_other = each.kind is BufferKind.FEATURE_MAP and is_found and number not in touched
        freed_after = None if each.freed_after is None else each.freed_after - first
        kind = BufferKind.LABELS if is_other else each.kind
        return replace(each, kind=kind, given=is_found, freed_after=freed_after)

    touched = of(step.operations[first:])
    given = {number for number, each in enumerate(step.storages) if each.given}
    found = given | of(step.operations[:first], writes=True)
    left = {number for number in found if step.storages[number].is_held_after(first - 1)}
    storages = {number: at for at, number in enumerate(sorted(touched | left))}
    kept = [number for number, each in enumerate(step.tensors) if each.storage in storages]
    tensors = {number: at for at, number in enumerate(kept)}
    return replace(
        step,
        storages=tuple(map(moved, storages)),
        tensors=tuple(replace(step.tensors[each], storage=storages[step.tensors[each].storage]) for each in kept),
        operations=tuple(
            replace(
                each,
                operands=tuple(replace(operand, memory=tensors[operand.memory]) for operand in each.operands),
                forward=None if each.forward is None else each.forward - first,
                saves=tuple(storages[saved] for saved in each.saves if saved in storages),
            )
            for each in step.operations[first:]
        ),
    )
