"""Printed table of the memory of a captured step."""

from typing import Final

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.report.document import Document, plain_table, titled_table
from vdnnsim.units import format_bytes

COLUMNS: Final = ("memory", "how many", "bytes", "what it is")
"""Columns of the CSV."""
_GIVEN: Final = (
    (BufferKind.STATISTICS, "buffers", "of the model, as running means"),
    (BufferKind.OPTIMIZER_STATE, "optimizer states", "held from iteration to iteration"),
    (BufferKind.FEATURE_MAP, "inputs", "of the model, and labels"),
    (BufferKind.LABELS, "labels", "of the loss"),
)


def captured_rows(step: CapturedStep) -> list[tuple[str, str, int, str]]:
    rows = [("parameters", f"{step.parameters:,}", step.parameter_bytes, "each once")]
    for kind, name, meaning in _GIVEN:
        sizes = [each.nbytes for each in step.storages if each.given and each.kind is kind and each.nbytes]
        if sizes:
            rows.append((name, str(len(sizes)), sum(sizes), meaning))
    saved = {number for each in step.operations for number in each.saves if not step.storages[number].given}
    if step.mode is Mode.TRAINING:
        beside = "beside parameters, buffers and inputs"
        rows.append(("saved for backward", str(len(saved)), step.saved_bytes, beside))
    return [*rows, ("peak of live bytes", "", step.peak_live_bytes, _place_of_peak(step))]


def captured_table(step: CapturedStep, has_all: str) -> Document:
    rows = [(name, count, format_bytes(nbytes), meaning) for name, count, nbytes, meaning in captured_rows(step)]
    table = plain_table(COLUMNS, rows, has_all)
    return titled_table(_caption(step), table, (), [_operations(step), *step.notes])


def _caption(step: CapturedStep) -> str:
    sample = f" of {step.sample_elements} tokens" if step.sample == "sequence" else ""
    update = f", {step.update}" if step.update else ""
    how = f"{step.mode.value}, {step.precision.value}{update}"
    plural = "" if step.batch_size == 1 else "s"
    return f"{step.model}: {step.batch_size} {step.sample}{plural}{sample}, {how}, as {step.device}, {step.framework}"


def _place_of_peak(step: CapturedStep) -> str:
    live = [bytes_ + each.temporary_bytes for bytes_, each in zip(step.live_bytes, step.operations, strict=True)]
    if not live:
        return ""
    operation = step.operations[live.index(max(live))]
    path = step.modules[operation.module].path
    where = f" of {path}" if path else ""
    return f"all of these and temporaries, in {_phase(operation.phase)}{where}, {operation.name}"


def _operations(step: CapturedStep) -> str:
    phases = [_phase(each.phase) for each in step.operations]
    counts = ", ".join(f"{phases.count(phase)} of {phase}" for phase in dict.fromkeys(phases))
    return f"{len(phases):,} operations{f': {counts}' if counts else ''}"


def _phase(phase: Phase) -> str:
    return phase.value.partition(" ")[0]
