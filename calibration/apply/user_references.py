"""What a program holds itself: a plan of a live loop can move what autograd alone holds, and nothing else."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from msgspec import structs

from calibration.capture.tape import Tape
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.plans.buffers import states_of_update


def movable(workload: CapturedWorkload, tape: Tape) -> dict[int, range]:
    """Return by storage between which operations autograd alone holds it: after the first, before the last.

    What other streams than the step's touch is left out: nobody knows what they are still about.
    """
    step = workload.step
    storages, operations = step.storages, step.operations
    taken: dict[int, int] = {}
    for take in tape.takes:
        taken.setdefault(tape.saves[take.save].storage, take.issued)
    spans: dict[int, range] = {}
    for save in tape.saves:
        number = save.storage
        if storages[number].given or number not in taken or number not in tape.let_go or number in tape.aside:
            continue
        # Autograd saves an input before its operation, which counts too, and a result after its own.
        following = operations[save.issued : save.issued + 1]
        is_read = any(step.tensors[each.memory].storage == number for one in following for each in one.operands)
        last = save.issued if is_read else save.issued - 1
        start = max(tape.let_go[number], last, spans[number].start if number in spans else -1)
        spans[number] = range(start, taken[number])
    return {number: span for number, span in spans.items() if len(span) > 1 and span.start < len(operations)}


def as_held(workload: CapturedWorkload, free: Mapping[int, range]) -> CapturedWorkload:
    """Return a workload whose operations hold all that the program holds while they run, and autograd from its take.

    States that the update alone touches nobody holds: they can be streamed. Gradients of weights are the parameters'.

    Args:
        workload: of a step.
        free: what autograd alone holds, as of `movable`.
    """
    step = workload.step
    held = defaultdict[int, list[int]](list)
    made: dict[int, int] = {}
    for position, operation in enumerate(step.operations):
        for operand in operation.operands:
            made.setdefault(step.tensors[operand.memory].storage, position)
    phases = [each.phase for each in step.operations]
    streamed = states_of_update(step)
    for number, storage in enumerate(step.storages):
        begin = 0 if storage.given else made.get(number)
        if begin is None or number in streamed:
            continue
        if storage.given and storage.kind is BufferKind.WEIGHTS:
            # Every plan holds them throughout.
            continue
        if phases[begin] is not Phase.FORWARD and storage.kind is not BufferKind.WEIGHT_GRADIENT:
            continue
        last = len(step.operations) - 1 if storage.freed_after is None else storage.freed_after
        span = free.get(number, range(last + 1, last + 1))
        for position in (*range(begin, min(span.start, last) + 1), *range(span.stop, last + 1)):
            held[position].append(number)
    operations = tuple(
        structs.replace(each, holds=tuple(dict.fromkeys((*each.holds, *held[position]))))
        for position, each in enumerate(step.operations)
    )
    return replace(workload, step=structs.replace(step, operations=operations))
