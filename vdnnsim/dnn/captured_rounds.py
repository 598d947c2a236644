"""Micro-batches: an iteration that runs forward and backward several times before it updates, and what repeats of it.

All but the first are alike: weight gradients are there, to which backward adds. So the last is the iteration that
policies plan, and what they plan is done as often as there are micro-batches (`vdnnsim.plans.lowering`). Of the first
it says a little too much memory: that of gradients which backward is about to make.
"""

from dataclasses import dataclass

import msgspec

from vdnnsim.dnn.captured_step import CapturedOperation, CapturedStep, CapturedStorage
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind


def rounds_of(step: CapturedStep) -> int:
    """Return how many micro-batches an iteration has."""
    return max(1, len(_starts(step)))


def last_round(step: CapturedStep) -> CapturedStep:
    """Return the last micro-batch and the update, as an iteration that finds what those before it left."""
    starts = _starts(step)
    if len(starts) < 2:
        return step
    return _Cut(step, starts[-1]).rest()


def _starts(step: CapturedStep) -> list[int]:
    phases = [each.phase for each in step.operations]
    before = [None, *phases]
    return [at for at, phase in enumerate(phases) if phase is Phase.FORWARD and before[at] is not Phase.FORWARD]


@dataclass
class _Cut:
    """A step, and the first of the operations that stay."""

    step: CapturedStep
    first: int

    def rest(self) -> CapturedStep:
        """Return the operations that stay, with the storages that they find or make, by new numbers."""
        step, kept = self.step, self.step.operations[self.first :]
        touched = {step.tensors[each.tensor].storage for operation in kept for each in operation.operands}
        made = self._made_before()
        stays = [
            number
            for number, each in enumerate(step.storages)
            if number in touched or (number in made and each.is_held_after(self.first - 1))
        ]
        storages = {number: at for at, number in enumerate(stays)}
        tensors = [number for number, each in enumerate(step.tensors) if each.storage in storages]
        views = {number: at for at, number in enumerate(tensors)}
        return msgspec.structs.replace(
            step,
            storages=tuple(self._storage(number, found=number in made, read=number in touched) for number in stays),
            tensors=tuple(
                msgspec.structs.replace(step.tensors[number], storage=storages[step.tensors[number].storage])
                for number in tensors
            ),
            operations=tuple(self._operation(each, storages, views) for each in kept),
        )

    def _made_before(self) -> set[int]:
        """Return the storages that are there when the first operation begins."""
        given = {number for number, each in enumerate(self.step.storages) if each.given}
        tensors = self.step.tensors
        written = (each for operation in self.step.operations[: self.first] for each in operation.operands)
        return given | {tensors[each.tensor].storage for each in written if each.access.writes}

    def _storage(self, number: int, *, found: bool, read: bool) -> CapturedStorage:
        each = self.step.storages[number]
        # An input of another micro-batch is memory that the program holds, and no map.
        kind = BufferKind.LABELS if each.kind is BufferKind.FEATURE_MAP and found and not read else each.kind
        freed_after = None if each.freed_after is None else each.freed_after - self.first
        return msgspec.structs.replace(each, kind=kind, given=found, freed_after=freed_after)

    def _operation(
        self, operation: CapturedOperation, storages: dict[int, int], views: dict[int, int]
    ) -> CapturedOperation:
        return msgspec.structs.replace(
            operation,
            operands=tuple(msgspec.structs.replace(each, tensor=views[each.tensor]) for each in operation.operands),
            forward=None if operation.forward is None else operation.forward - self.first,
            saves=tuple(storages[each] for each in operation.saves if each in storages),
        )
