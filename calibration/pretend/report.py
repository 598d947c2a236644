"""Report of a command on pretended GPUs: table rows, and findings as sentences."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from calibration.pretend.card import Card, OperatorRates
from calibration.pretend.session import Gpu, Holder, Outcome, Place, Process
from vdnnsim.hardware.server import Origin
from vdnnsim.units import format_bytes, format_seconds

MEMORY_COLUMNS: Final = ("GPU", "allocated", "reserved", "driver shows", "of its memory")
HOLDER_COLUMNS: Final = ("at the peak", "share", "asked for in", "module", "line")
STEP_COLUMNS: Final = ("rank", "step", "gpu", "allocated_bytes", "reserved_bytes", "driver_bytes")
_NUMBER: Final = re.compile(r"(?<=[._])\d+(?=\.|$)")
_SHOWN_HOLDERS: Final = 8
_SHOWN_READS: Final = 3
_ORIGINS: Final = {
    Origin.DATASHEET: "the peaks of its data sheet, which no kernel reaches",
    Origin.ASSUMED: "rates that are assumed",
    Origin.FITTED: "rates fitted to measured kernels",
}


def memory_rows(outcome: Outcome, memory_bytes: int) -> list[tuple[str, ...]]:
    several = len(outcome.processes) > 1
    return [
        (
            f"{gpu.gpu} of rank {process.rank}" if several else str(gpu.gpu),
            format_bytes(gpu.allocated_bytes),
            format_bytes(gpu.reserved_bytes),
            format_bytes(gpu.driver_bytes),
            f"{gpu.driver_bytes / memory_bytes:.0%}",
        )
        for process in outcome.processes
        for gpu in process.gpus
    ]


def fullest(outcome: Outcome) -> tuple[Process, Gpu] | None:
    """Return the process and GPU with the most memory by the driver; None where no GPU was used."""
    each = ((process, gpu) for process in outcome.processes for gpu in process.gpus)
    return max(each, key=lambda found: found[1].driver_bytes, default=None)


def holder_rows(gpu: Gpu) -> list[tuple[str, ...]]:
    """Return the holders of memory at the peak of a GPU, the largest first, and the rest in one row.

    Modules whose paths differ only in numbers are one row: `Net.blocks.*.linear`.
    """
    peak = gpu.peak
    if peak is None:
        return []
    alike: dict[tuple[str, str, str], list[Holder]] = {}
    for each in peak.holders:
        alike.setdefault((each.phase, _NUMBER.sub("*", each.module), each.line), []).append(each)
    merged = [(sum(each.nbytes for each in same), key, same) for key, same in alike.items()]
    merged.sort(key=lambda each: -each[0])
    shown = merged[:_SHOWN_HOLDERS]
    rows: list[tuple[str, ...]] = [
        (
            format_bytes(nbytes),
            f"{nbytes / peak.nbytes:.0%}",
            "" if phase == "elsewhere" else phase,
            pattern if len(same) > 1 else same[0].module,
            _short(line),
        )
        for nbytes, (phase, pattern, line), same in shown
    ]
    rest = peak.nbytes - sum(nbytes for nbytes, _, _ in shown)
    if rest > 0:
        rows.append((format_bytes(rest), f"{rest / peak.nbytes:.0%}", "all else", "", ""))
    return rows


def step_rows(outcome: Outcome) -> list[tuple[int, ...]]:
    """Return the peaks up to the end of each step, on each GPU that was used."""
    return [
        (process.rank, number, gpu, most.allocated_bytes, most.reserved_bytes, most.driver_bytes)
        for process in outcome.processes
        for number, step in enumerate(process.steps, 1)
        for gpu, most in enumerate(step)
        if most.reserved_bytes
    ]


def findings(outcome: Outcome, card: Card, rates: OperatorRates) -> list[str]:
    found = fullest(outcome)
    if found is None:
        return ["no process of the command used a GPU, or its Python ignores PYTHONPATH"]
    process, gpu = found
    lines = [*_peak(gpu), *_steps(process), *_time(process, rates), *_values(process), *_end(process)]
    if card.context_assumed:
        lines.append(
            f"memory by the driver includes a CUDA context, assumed to take {format_bytes(card.context_bytes)}"
        )
    return lines


def refusal(outcome: Outcome, again: Outcome | None, cards: Mapping[str, Card]) -> list[str]:
    """Return why a command ran out of memory, and what it needs; empty if it did not.

    `again` is the outcome with unlimited memory, if the command was run again; `cards`, by the names of their profiles,
    are to choose from.
    """
    found = outcome.out_of_memory
    if found is None:
        return []
    _, refused = found
    unused = refused.reserved_bytes - refused.allocated_bytes
    first = (
        f"does not fit: in step {refused.after_steps + 1}, in {_place_text(refused.place)}, PyTorch requested "
        f"{format_bytes(refused.asked_bytes)} from GPU {refused.gpu}, which had {format_bytes(refused.free_bytes)} "
        f"free; {format_bytes(refused.allocated_bytes)} were allocated, and {format_bytes(unused)} only reserved"
    )
    if again is None or (most := fullest(again)) is None:
        return [first]
    ended = most[0]
    if ended.ended not in {"steady", "by itself"} and not ended.steps:
        return [first, f"run again with unlimited memory, it ended with {ended.error or ended.ended}"]
    gpu = most[1]
    missing = gpu.driver_bytes - refused.memory_bytes
    needed = (
        f"with unlimited memory it takes {format_bytes(gpu.allocated_bytes)} allocated, "
        f"{format_bytes(gpu.reserved_bytes)} reserved, {format_bytes(gpu.driver_bytes)} by the driver"
        + (f": {format_bytes(missing)} more than there are" if missing > 0 else "")
    )
    fitting = [
        (card.memory_bytes, name)
        for name, card in cards.items()
        if gpu.reserved_bytes + card.context_bytes <= card.memory_bytes
    ]
    smallest = (
        f"{min(fitting)[1]} ({format_bytes(min(fitting)[0])}) is the smallest known card on which it fits"
        if fitting
        else "it fits on no known card"
    )
    how = "to find what fits here, try the same command with a smaller batch, or with checkpointing"
    return [first, needed, smallest, how]


def _peak(gpu: Gpu) -> list[str]:
    peak = gpu.peak
    if peak is None:
        return []
    phases = ", ".join(
        f"{format_bytes(nbytes)} {_phase(phase)}"
        for phase, nbytes in sorted(peak.phase_bytes.items(), key=lambda each: -each[1])
    )
    lines = [f"the peak of allocated memory is in {_place_text(peak.place)}; requested: {phases}"]
    if not peak.history_is_whole:
        lines.append("PyTorch's memory history does not reach back to the beginning: an earlier peak has no place")
    return lines


def _place_text(place: Place) -> str:
    module = f" of {place.module}" if place.module else ""
    phase = "code outside of modules" if place.phase == "elsewhere" else place.phase
    return f"{phase}{module}" + (f" ({_short(place.line)})" if place.line else "")


def _phase(phase: str) -> str:
    return "outside of modules" if phase == "elsewhere" else f"in {phase}"


def _steps(process: Process) -> list[str]:
    steps = len(process.steps)
    if not steps:
        if process.ended == "out of memory":
            return []
        return ["no optimizer of torch.optim made a step, so later steps may need more"]
    if process.steady_from_step is None:
        return [f"reserved memory may still grow: {_count(steps, 'step')} are too few"]
    return [
        f"reserved memory did not grow after step {process.steady_from_step} of {steps}"
        + ("; there the program was ended" if process.ended == "steady" else "")
    ]


def _time(process: Process, rates: OperatorRates) -> list[str]:
    if process.step_s is None:
        return []
    most = sorted(process.operator_s.items(), key=lambda each: -each[1])[:3]
    total = sum(process.operator_s.values())
    shares = ", ".join(f"{name} {seconds / total:.0%}" for name, seconds in most)
    source = _ORIGINS.get(rates.origin, rates.origin.value)
    predicted = (
        f"predicted: {format_seconds(process.step_s)} a step, by {source}; host time of Python and data loading is not "
        f"counted. Of the GPU's time: {shares}"
    )
    return [predicted]


def _values(process: Process) -> list[str]:
    lines = list(dict.fromkeys(process.refused))
    if process.zeros_read:
        times = sum(count for _, count in process.zeros_read)
        places = [_short(line) for line, _ in process.zeros_read if line]
        shown = ", ".join(places[:_SHOWN_READS]) + (" and elsewhere" if len(places) > _SHOWN_READS else "")
        lines.append(
            f"values are not computed: the program read a number from the GPU {_count(times, 'time')}, and got 0"
            + (f" ({shown})" if shown else "")
        )
    return lines


def _end(process: Process) -> list[str]:
    texts = {
        "time": "ended because its time was over (--minutes); a loop may wait for values, which are not computed",
        "interrupted": "interrupted: the report is of the part that ran",
        "error": f"the program ended with {process.error}",
    }
    return [texts[process.ended]] if process.ended in texts else []


def _short(line: str) -> str:
    """Return a line with its path from the working directory, or from the folder of packages."""
    path, _, number = line.rpartition(":")
    if "-packages/" in path:
        return f"{path.rpartition('-packages/')[2]}:{number}"
    here = f"{Path.cwd()}/"
    return line.removeprefix(here)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def snapshot_names(processes: Sequence[Process]) -> tuple[str, ...]:
    if len(processes) == 1:
        return ("snapshot.pickle",)
    return tuple(f"snapshot_{number}.pickle" for number in range(len(processes)))
