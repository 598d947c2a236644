"""What is live at the peak of a captured model, in words and bytes."""

from collections import Counter
from typing import Final

from vdnnsim.analysis.memory import live_at_peak, peak_kernel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import ELEMENT_BYTES, BufferKind
from vdnnsim.dnn.training_loops import logits_elements
from vdnnsim.plans.trace import IterationTrace

_NUMBERS: Final = {2: "twice", 3: "three times", 4: "four times"}
_KINDS: Final = {
    BufferKind.WEIGHT_GRADIENT: "gradients of parameters",
    BufferKind.GRADIENT_MAP: "gradients of activations",
    BufferKind.LABELS: "labels",
}


def binding(trace: IterationTrace) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the phase of the first peak, and what is live there with its bytes, the most first."""
    plan = trace.plan
    assert isinstance(plan.workload, CapturedWorkload), "of a captured model"
    step = plan.workload.captured_round
    tokens_and_classes = logits_elements(step)
    found, copies = Counter[str](), Counter[str]()
    for buffer, nbytes in live_at_peak(trace).items():
        number = plan.buffers[buffer].storage
        if number is None:
            found["workspaces"] += nbytes
            continue
        storage = step.storages[number]
        elements = storage.nbytes // ELEMENT_BYTES[storage.element_type]
        if not storage.given and tokens_and_classes and elements == tokens_and_classes:
            copies[storage.element_type] += 1
            found["logits"] += nbytes
        else:
            found[_word(step, number)] += nbytes
    logits = f"logits of the loss in {' and '.join(_times(kind, count) for kind, count in copies.items())}"
    named = {logits if what == "logits" else what: nbytes for what, nbytes in found.items()}
    _, kernel = peak_kernel(trace)
    return kernel.phase.value, tuple(sorted(named.items(), key=lambda each: -each[1]))


def _word(step: CapturedStep, number: int) -> str:
    storage = step.storages[number]
    if storage.kind is BufferKind.WEIGHTS:
        return "parameters" if storage.given else "narrow copies of parameters, saved by forward"
    if storage.kind is BufferKind.OPTIMIZER_STATE:
        return f"states of {step.optimizer}"
    if storage.kind is BufferKind.WORKSPACE:
        return f"temporaries of {storage.name.partition(' ')[0]}"
    if storage.given and storage.kind is not BufferKind.WEIGHT_GRADIENT:
        return "inputs and constants"
    first = step.first_use.get(number)
    if storage.kind is BufferKind.FEATURE_MAP and first is not None and step.operations[first].phase is Phase.BACKWARD:
        return "recomputed activations"
    return _KINDS.get(storage.kind, "saved tensors and activations")


def _times(kind: str, count: int) -> str:
    return kind if count == 1 else f"{kind} {_NUMBERS.get(count, f'{count} times')}"
