"""What is live at the peak of a captured step, in words and bytes."""

from collections import Counter

from vdnnsim.dnn.captured_groups import operator_name
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import ELEMENT_BYTES, BufferKind, Storage
from vdnnsim.dnn.training_loops import logits_bytes

_NUMBERS = {2: "twice", 3: "three times", 4: "four times"}
_KINDS = {
    BufferKind.WEIGHT_GRADIENT: "gradients of parameters",
    BufferKind.GRADIENT_MAP: "gradients of activations",
    BufferKind.LABELS: "labels",
}


def binding(step: CapturedStep) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the phase in which most is live, and what that is with its bytes, the most first."""
    live = [held + each.temporary_bytes for held, each in zip(step.live_bytes, step.operations, strict=True)]
    at = max(range(len(live)), key=live.__getitem__)
    operation = step.operations[at]
    tokens_and_classes = logits_bytes(step) // ELEMENT_BYTES["float32"]
    found, copies = Counter[str](), Counter[str]()
    for number, storage in enumerate(step.storages):
        begin = -1 if storage.given else step.first_use.get(number, len(live))
        if begin > at or not storage.is_held_after(at - 1):
            continue
        elements = storage.nbytes // ELEMENT_BYTES[storage.element_type]
        if not storage.given and tokens_and_classes and elements == tokens_and_classes:
            copies[storage.element_type] += 1
            found["logits"] += storage.nbytes
        else:
            found[_word(storage, step, step.operations[begin].phase)] += storage.nbytes
    if operation.temporary_bytes:
        found[f"temporaries of {operator_name(operation.name)}"] += operation.temporary_bytes
    named = {
        f"logits of the loss in {' and '.join(_times(kind, count) for kind, count in copies.items())}"
        if what == "logits"
        else what: nbytes
        for what, nbytes in found.items()
    }
    return operation.phase.value, tuple(sorted(named.items(), key=lambda each: -each[1]))


def _word(storage: Storage, step: CapturedStep, phase: Phase) -> str:
    if storage.kind is BufferKind.WEIGHTS:
        return "parameters" if storage.given else "narrow copies of parameters"
    if storage.kind is BufferKind.OPTIMIZER_STATE:
        return f"states of {step.optimizer}"
    if storage.kind is BufferKind.WORKSPACE:
        return f"temporaries of {storage.name.partition(' ')[0]}"
    if storage.given and storage.kind is not BufferKind.WEIGHT_GRADIENT:
        return "inputs and constants"
    if phase is Phase.BACKWARD and storage.kind is BufferKind.FEATURE_MAP:
        return "recomputed activations"
    return _KINDS.get(storage.kind, "saved tensors and activations")


def _times(kind: str, count: int) -> str:
    return kind if count == 1 else f"{kind} {_NUMBERS.get(count, f'{count} times')}"
