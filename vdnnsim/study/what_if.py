"""What-if: a scenario before and after some of its values and figures are changed, and the differences as a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.analysis.kernel_origins import KernelOrigins, joined_origins, kernel_origins
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import needed_bytes
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import StudyError
from vdnnsim.files.messages import listed
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import plain_value
from vdnnsim.plans.trace import StallCause
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, remarks
from vdnnsim.report.document import Table, plain_table, titled_table
from vdnnsim.report.findings import caption, shared, whose
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import per_second, percents, rate_cells
from vdnnsim.report.tables.summary import FOOTNOTE, JUST, JUST_NOTE, NOT_FITTING
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.axes import Key, check_combination, find_key, study_keys
from vdnnsim.study.points.compute import OUTCOME, PointRunner
from vdnnsim.study.points.resolve import POLICY, Resolver, Value
from vdnnsim.study.results import StudyRow
from vdnnsim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class Replayed:
    """The kernels of a row, its metrics, None of one that failed, and whether it may only just fit, as in a run."""

    kernels: KernelOrigins
    metrics: RunMetrics | None
    is_tight: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """One policy of a scenario before and after."""

    label: str
    before: StudyRow
    after: StudyRow
    replayed_before: Replayed
    replayed_after: Replayed

    @property
    def sides(self) -> tuple[tuple[str, StudyRow, Replayed], ...]:
        return ("before", self.before, self.replayed_before), ("after", self.after, self.replayed_after)


def what_if(
    base: Scenario, folder: Path, settings: Sequence[str], policy_types: PolicyTypes, asked: str = "--set"
) -> tuple[Change, ...]:
    """Run every policy of a scenario as it is, and with settings as `link.bandwidth=300 GB/s`.

    `asked` is the word for a setting in messages.

    Raises:
        StudyError: a setting has a wrong name or value, or the settings are impossible under every policy.
    """
    values = _values(settings, study_keys(policy_types, folder), base.captured, asked)
    launched, resolver = list[Replayed](), Resolver(base, folder)

    def watch(simulator: Simulator, plans: Sequence[TrainingPlan], metrics: RunMetrics) -> None:
        memory = metrics.allocated_bytes, metrics.reserved_bytes
        needed = needed_bytes(plans[0], *memory, simulator.server.gpu, simulator.limits.model)
        is_tight = needed > replace(base, server=simulator.server).room_bytes
        launched.append(Replayed(kernel_origins(plans, simulator.cost_model), metrics, is_tight))

    runner = PointRunner(watch)

    def row(point: dict[str, Value]) -> tuple[StudyRow, Replayed]:
        resolved = resolver.resolve(point)
        launched.clear()
        found = StudyRow(point, resolved, runner.run(resolved))
        return found, launched[0] if launched else Replayed(KernelOrigins(), None)

    after = [row({**values, POLICY: policy}) for policy in base.policies]
    reasons = {each.resolved.error for each, _ in after}
    if len(reasons) == 1 and all(reasons):
        raise StudyError(f"{asked}: {reasons.pop()}")
    before = [row({POLICY: policy}) for policy in base.policies]
    return tuple(
        Change(policy.label, was, becomes, replayed_was, replayed_becomes)
        for policy, (was, replayed_was), (becomes, replayed_becomes) in zip(base.policies, before, after, strict=True)
    )


def _values(
    settings: Sequence[str], known: Mapping[str, Key], captured: CapturedModel | None, asked: str
) -> dict[str, Value]:
    keys = {name: key for name, key in known.items() if name != POLICY}
    values: dict[str, Value] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        entry = Entry(asked, name, plain_value(text), StudyError)
        whole = Entry(asked, "", setting, StudyError)
        if not equals or not text:
            raise whole.expected("KEY=VALUE, as link.bandwidth=300GB/s")
        key = find_key(name, keys, whole)
        if name in values:
            raise whole.wrong(f"{name} is set twice, expected once")
        values[name] = key.read(entry)
        check_combination(values, whole, captured)
    return values


_SAME: Final = "none"
_NOTICED: Final = 1e-3
"""Share of a step or its memory from which a part of a difference is named."""
_DIFFERENCES = (
    *("iteration_s", "server_samples_per_s", "allocated_bytes", "reserved_bytes", "stall_s"),
    "performance_ratio",
)


def change_table(changes: Sequence[Change], unit: str, everything: str) -> Table:
    """Return the table of changes, with the unit of throughputs and a note on where all columns are."""
    points = [point for change in changes for point in (change.before, change.after) if not point.error]
    rates = rate_cells([point.number("server_samples_per_s") for point in points])
    shares = percents(point.number("performance_ratio") for point in points)
    shown_of = {id(point): cells for point, *cells in zip(points, rates, shares, strict=True)}
    rows = [row for change in changes for row in _rows(change, shown_of)]
    time, share = COLUMNS["iteration_s"].short, COLUMNS["performance_ratio"].short
    allocated, reserved, stalled = (COLUMNS[name].short for name in ("allocated_bytes", "reserved_bytes", "stall_s"))
    header = ("policy", "", "fits", time, unit, allocated, reserved, stalled, share)
    return plain_table(header, rows, everything, (stalled, unit, share, reserved))


def _rows(change: Change, shown_of: dict[int, list[str]]) -> Iterator[tuple[str, ...]]:
    for label, (when, point, replayed) in zip((change.label, ""), change.sides, strict=True):
        if point.error:
            yield (label, when, "failed", *("",) * 6)
            continue
        rate, share = shown_of[id(point)]
        yield (
            label,
            when,
            _fits(point, replayed),
            format_seconds(point.number("iteration_s")),
            rate,
            format_bytes(point.number("allocated_bytes")),
            format_bytes(point.number("reserved_bytes")),
            format_seconds(point.number("stall_s")),
            share,
        )
    if change.before.error or change.after.error:
        return
    differences = (_fit_change(change), *(_difference(change, name) for name in _DIFFERENCES))
    if set(differences) != {_SAME}:
        yield ("", "difference", *differences)


def _fits(point: StudyRow, replayed: Replayed) -> str:
    return (JUST if replayed.is_tight else "yes") if point.cell("fits") else NOT_FITTING


def _fit_change(change: Change) -> str:
    before, after = change.before.cell("fits"), change.after.cell("fits")
    return _SAME if before == after else "fits now" if after else "fits no longer"


def _difference(change: Change, name: str) -> str:
    """Return a difference with its share: `-1.20 s, -5.1 %`."""
    before, after = change.before.number(name), change.after.number(name)
    if before == after:
        return _SAME
    if name == "performance_ratio":
        return f"{100 * (after - before):+.2g} points"
    share = f"{100 * (after / before - 1):+.1f} %" if before else ""
    if name == "server_samples_per_s":
        return share
    text: Callable[[float], str] = format_bytes if name.endswith("_bytes") else format_seconds
    amount = f"{'+' if after > before else '-'}{text(abs(after - before))}"
    return ", ".join(filter(None, (amount, share)))


def change_result(asked: Scenario, changes: Sequence[Change], settings: Sequence[str], has_all: str) -> ResultTable:
    """Return changes of a scenario by settings as a table with its findings."""
    rows = [(each.label, *side[:2]) for each in changes for side in each.sides]
    cells = [
        (label, when, *("" if (cell := row.cell(name)) is None else cell for name in OUTCOME), row.error)
        for label, when, row in rows
    ]
    gpus = max((each.gpus for _, _, row in rows if (each := row.resolved.scenario) is not None), default=1)
    unit = per_second(sample_of(asked.workload.graph)) + whose(asked.workload, gpus)
    table = change_table(changes, unit, has_all)
    notes = [FOOTNOTE] if any(row.cell("refusal") for _, _, row in rows) else []
    notes += [JUST_NOTE] * any(_fits(point, took) == JUST for each in changes for _, point, took in each.sides)
    title = f"{caption(asked)}, before and after {', '.join(settings)}"
    said = (
        *(sentence(changes, settings), *_reasons(changes), *filter(None, map(made_of, changes))),
        *(*_kernel_times(changes), *capture_lines(asked), *_other_notes(changes)),
    )
    marks = [*remarks(asked.workload), *glossary((change.label for change in changes), asked.workload), *notes]
    return ResultTable(("policy", "when", *OUTCOME, "error"), cells, titled_table(title, table, marks, said))


def sentence(changes: Sequence[Change], settings: Sequence[str]) -> str:
    """Return how a change affects the fastest policy that fits, and how many fit."""
    what = ", ".join(settings)
    fit_before = [found for each in changes for found in _fitting(each.label, each.before)]
    fit_after = [found for each in changes for found in _fitting(each.label, each.after)]
    total = len(changes)
    fits = f"{len(fit_after)} of {total} {'policy fits' if total == 1 else 'policies fit'}, {len(fit_before)} before"
    if len(fit_before) == len(fit_after):
        fits = f"{len(fit_after)} of {total} fit, as before"
    if not fit_before or not fit_after:
        return f"With {what} {fits}"
    (old_s, old), (new_s, new) = min(fit_before), min(fit_after)
    if old_s == new_s:
        return f"With {what} the fastest that fits takes as long as before, {format_seconds(new_s)}; {fits}"
    way = f"{abs(100 * (new_s / old_s - 1)):.1f} % {'less' if new_s < old_s else 'more'}"
    who = f"under {new}" if old == new else f"under {new} instead of {old}"
    takes = f"takes {format_seconds(new_s)} {who}, {way} than {format_seconds(old_s)}"
    return f"With {what} the fastest that fits {takes}; {fits}"


def _fitting(label: str, point: StudyRow) -> list[tuple[float, str]]:
    return [(point.number("iteration_s"), label)] if not point.error and point.cell("fits") else []


def _reasons(changes: Sequence["Change"]) -> list[str]:
    """Return a line for each reason for which policies do not fit or fail."""
    found: list[tuple[str, str]] = []
    for change in changes:
        before, after = (row.error or str(row.cell("refusal") or "") for row in (change.before, change.after))
        whens = ((before, "before and after"),) if before == after else ((before, "before"), (after, "after"))
        found += [(reason, f"{change.label} {when}") for reason, when in whens if reason]
    return [f"{', '.join(which)}: {reason}" for reason, which in shared(found).items()]


def _kernel_times(changes: Sequence["Change"]) -> tuple[str, ...]:
    """Return the origins of kernel times, before and after separately where they differ."""
    before = kernel_times(joined_origins(change.replayed_before.kernels for change in changes))
    after = kernel_times(joined_origins(change.replayed_after.kernels for change in changes))
    both = (*(f"before: {line}" for line in before), *(f"after: {line}" for line in after))
    return before if before == after else both


def made_of(change: Change) -> str:
    """Return of which kernels, waits and buffers the differences of a policy consist; empty where nothing differs."""
    before, after = change.replayed_before, change.replayed_after
    if before.metrics is None or after.metrics is None:
        return ""
    seconds = [("kernels", _kernels_s(after.kernels) - _kernels_s(before.kernels))]
    seconds += _changes(before.metrics.stall_by_cause, after.metrics.stall_by_cause)
    iteration_s = after.metrics.iteration_s - before.metrics.iteration_s
    seconds.append(("other", iteration_s - sum(each for _, each in seconds)))
    nbytes = _changes(before.metrics.peak_by_kind, after.metrics.peak_by_kind)
    times = listed(_signed(seconds, format_seconds, _NOTICED * before.metrics.iteration_s))
    sizes = listed(_signed(nbytes, format_bytes, _NOTICED * before.metrics.allocated_bytes))
    parts = (f"time: {times}" if times else "", f"memory at the peak: {sizes}" if sizes else "")
    return f"{change.label}: {'; '.join(filter(None, parts))}" if any(parts) else ""


def _kernels_s(kernels: KernelOrigins) -> float:
    return sum(kernels.seconds.values()) / max(1, kernels.plans)


def _changes(
    before: Sequence[tuple[StallCause | BufferKind, float]], after: Sequence[tuple[StallCause | BufferKind, float]]
) -> list[tuple[str, float]]:
    was, becomes = dict(before), dict(after)
    return [
        (each.value if isinstance(each, StallCause) else each.words, becomes.get(each, 0) - was.get(each, 0))
        for each in dict.fromkeys((*was, *becomes))
    ]


def _signed(parts: Sequence[tuple[str, float]], text: Callable[[float], str], least: float) -> list[str]:
    """Return parts of which a difference consists, the largest first: `-1.20 s kernels`."""
    noticed = sorted((each for each in parts if abs(each[1]) > least), key=lambda each: -abs(each[1]))
    return [f"{'+' if amount > 0 else '-'}{text(abs(amount))} {name}" for name, amount in noticed]


def _other_notes(changes: Sequence[Change]) -> list[str]:
    """Return notes of captures that only the changed scenario has."""
    notes = [
        dict.fromkeys(
            note
            for row in rows
            if (scenario := row.resolved.scenario) is not None and isinstance(scenario.workload, CapturedWorkload)
            for note in (f"captured as {scenario.workload.captured.device}", *scenario.workload.captured.notes)
        )
        for rows in ([each.before for each in changes], [each.after for each in changes])
    ]
    return [f"after: {note}" for note in notes[1] if note not in notes[0]]
