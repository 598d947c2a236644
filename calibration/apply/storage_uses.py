"""Which operations of a captured step make, write and read its storages."""

from collections import defaultdict

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase


def made_by(captured: CapturedStep) -> dict[int, list[int]]:
    """Return by operation of forward the storages that it makes, in order."""
    made: dict[int, list[int]] = defaultdict(list)
    seen = {number for number, each in enumerate(captured.storages) if each.given}
    for position, operation in enumerate(captured.operations):
        for operand in operation.operands:
            number = captured.tensors[operand.memory].storage
            if number not in seen:
                seen.add(number)
                made[position].append(number)
    return made


def touched_by(captured: CapturedStep, *, writes: bool) -> dict[int, list[int]]:
    """Return by storage the operations of forward that write it, or that read it."""
    found: dict[int, list[int]] = defaultdict(list)
    for position, operation in enumerate(captured.operations):
        if operation.phase is not Phase.FORWARD:
            continue
        for operand in operation.operands:
            number = captured.tensors[operand.memory].storage
            does = operand.access.writes if writes else operand.access.reads
            if does and position not in found[number]:
                found[number].append(position)
    return {number: operations for number, operations in found.items() if operations}
