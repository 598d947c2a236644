"""`report.html`, an interactive page of a run without network access."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import inf, log10

from vdnnsim.analysis.comparison import pareto_front
from vdnnsim.analysis.memory import peak_operation
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.plans.trace import StallCause
from vdnnsim.report.caveats import glossary, known, remarks
from vdnnsim.report.document import Bullets, Table, plain_table
from vdnnsim.report.findings import caption, comparison, conclusions, headline, report_title, whose
from vdnnsim.report.html import environment
from vdnnsim.report.palette import STALL_COLORS
from vdnnsim.report.run.page import answer_parts, columns, footnotes, questions, sources
from vdnnsim.report.run.recording import numbers, recorded, recording
from vdnnsim.report.scale import percent, rate_text
from vdnnsim.report.tables.answer import first_line
from vdnnsim.report.tables.summary import summary
from vdnnsim.units import format_bytes, format_seconds

_FAR = 2.5
_LINE = 0.078
"""Height of a label."""
_CHARACTER = 0.019
"""Width of a character."""
_MOST_TOGETHER = 2
_MOST_NAMES = 12
"""Of more dots only those on the Pareto front are labelled at first."""
RIGHT = 0.6
"""Dots further right have their labels on the left."""


@dataclass(frozen=True, slots=True)
class Dot:
    """Policies of equal time and process memory; `x`, `y` and `label`, the height of the label, are from 0 to 1.

    The label of a `quiet` one is shown on hover.
    """

    names: tuple[str, ...]
    words: str
    x: float
    y: float
    fits: bool
    quiet: bool
    label: float = 0.0

    @property
    def name(self) -> str:
        more = len(self.names) - _MOST_TOGETHER
        return ", ".join(self.names) if more <= 0 else f"{self.names[0]} and {more + 1} of the same"


def dots(result: ScenarioResult) -> list[Dot]:
    """Return the dots of iteration time against process memory, on a logarithmic scale."""
    places: dict[tuple[str, str], list[PolicyResult]] = {}
    for row in result.slowest:
        key = format_seconds(row.metrics.iteration_s), format_bytes(result.needed_bytes(row))
        places.setdefault(key, []).append(row)
    times = [row.metrics.iteration_s for row in result.slowest]
    low, high = _memory_range(result)
    best = result.leader
    firsts = [rows[0] for rows in places.values()]
    front = pareto_front([(row.metrics.iteration_s, result.needed_bytes(row) if row.fits else inf) for row in firsts])
    found = (
        Dot(
            tuple(sorted((row.policy for row in rows), key=lambda name: best is None or name != best.policy)),
            f"{time}, {memory}{'' if rows[0].fits else ', does not fit'}",
            (rows[0].metrics.iteration_s - min(times)) / ((max(times) - min(times)) or 1.0),
            (log10(max(1, result.needed_bytes(rows[0]))) - low) / (high - low),
            rows[0].fits,
            quiet=len(places) > _MOST_NAMES and not (on_front and rows[0].fits),
        )
        for ((time, memory), rows), on_front in zip(places.items(), front, strict=True)
    )
    return _labelled(found, capacity_text(result), capacity_height(result))


def _labelled(found: Iterable[Dot], capacity: str, height: float) -> list[Dot]:
    """Return dots with their labels at the nearest heights that are clear of labels, dots and that of the capacity."""
    placed: list[Dot] = []
    written = 1 - _CHARACTER * len(capacity)
    ordered = sorted(found, key=lambda each: (each.quiet, each.y))
    for dot in ordered:
        if dot.quiet:
            placed.append(replace(dot, label=dot.y))
            continue
        left, right = _extent(dot)
        taken = [each.label for each in placed if _extent(each)[0] < right and left < _extent(each)[1]]
        taken += [height + _LINE / 2] * (right > written)
        taken += [each.y for each in ordered if each is not dot and left < each.x < right]
        steps = (number * sign * _LINE / 4 for number in range(200) for sign in (1, -1))
        heights = (dot.y + step for step in steps)
        free = (each for each in heights if each > 0.03 and all(abs(each - other) >= _LINE for other in taken))
        placed.append(replace(dot, label=next(free)))
    return placed


def _extent(dot: Dot) -> tuple[float, float]:
    width = _CHARACTER * (2 + len(dot.name))
    return (dot.x, dot.x + width) if dot.x < RIGHT else (dot.x - width, dot.x)


def _memory_range(result: ScenarioResult) -> tuple[float, float]:
    """Return both ends of the scale; a capacity far above all use is left out."""
    sizes = [max(1, result.needed_bytes(row)) for row in result.slowest]
    near = [capacity] if (capacity := result.server.gpu.memory_bytes) < _FAR * max(sizes) else []
    low, high = log10(min(sizes + near)), log10(max(sizes + near))
    return low - 0.08 * (high - low + 0.1), high + 0.12 * (high - low + 0.1)


def capacity_text(result: ScenarioResult) -> str:
    return f"capacity {format_bytes(result.server.gpu.memory_bytes)}"


def capacity_height(result: ScenarioResult) -> float:
    """Return the capacity on the scale of the dots; above 1 where it is left out."""
    low, high = _memory_range(result)
    return (log10(result.server.gpu.memory_bytes) - low) / (high - low)


@dataclass(frozen=True, slots=True)
class Shown:
    """The part of a page on all policies: verdict (its first sentence is the title), heading, table and notes.

    `beside` names the other files of the folder.
    """

    said: tuple[str, ...]
    heading: str
    table: Table
    notes: tuple[str, ...]
    beside: str


def html_text(result: ScenarioResult, of_all: Shown | None = None) -> str:
    """Return the page of a run, or of a comparison by its part on all policies."""
    if of_all is None:
        notes = *footnotes(result), *known(result)
        beside = "report.md, results.csv and run.json lie"
        of_all = Shown(conclusions(result), comparison(result), summary(result), notes, beside)
    shown, gpu = result.subject, result.server.gpu
    rows = recorded(sorted(result.slowest, key=lambda row: row is not shown))
    # The first policy to compare with: the fastest with another time, else the last.
    others = [row for row in rows if row.metrics.iteration_s != shown.metrics.iteration_s]
    rival = min(others, key=lambda row: row.metrics.iteration_s, default=rows[-1])
    verdict, *more = (sentence for text in of_all.said for sentence in _sentences(text))
    first, last = answer_parts(result)
    if first:
        verdict, more = first_line(result), [verdict, *more]
    has_beside = any(result.needed_bytes(row) != row.metrics.allocated_bytes for row in result.slowest)
    kinds = ", ".join(f"{kind.words} {format_bytes(nbytes)}" for kind, nbytes in shown.metrics.peak_by_kind[:3])
    return environment().get_template("run.html.j2").render(
        title=report_title(result),
        caption=caption(result),
        verdict=verdict,
        more=more,
        words=(*remarks(result.workload), *glossary((row.policy for row in result.slowest), result.workload)),
        facts=_facts(result, shown),
        shown=shown,
        needs=result.needs,
        first=first[1:],
        last=last,
        heading=of_all.heading,
        table=(of_all.table,),
        notes=of_all.notes,
        dots=dots(result),
        right=RIGHT,
        capacity=capacity_height(result),
        capacity_text=capacity_text(result),
        memory="process memory" if has_beside else "allocated memory",
        slowest=format_seconds(max(row.metrics.iteration_s for row in result.slowest)),
        fastest=format_seconds(min(row.metrics.iteration_s for row in result.slowest)),
        headline=headline(result, shown),
        stalls=stalls_title(result, shown),
        busy_s=shown.metrics.iteration_s - shown.metrics.stall_s,
        causes=[(cause.value, seconds, STALL_COLORS[cause]) for cause, seconds in shown.metrics.stall_by_cause],
        peak=f"{format_bytes(shown.metrics.allocated_bytes)} are live in {peak_operation(shown.trace)[1]}: {kinds}",
        rival=rival,
        held=[numbers(row, gpu) for row in (shown, rival)],
        placed=any(change.offset is not None for row in rows for change in row.trace.memory),
        pool=_pool_title(shown),
        nearby=[
            {"policy": each.policy, "bandwidth": each.bandwidth, "times": each.iteration_s} for each in result.nearby
        ],
        nearby_title=_nearby_title(result),
        questions=questions(result),
        origins=(
            Bullets(sources(result)),
            plain_table(
                ("figure", "value", "origin", "source"),
                [(each.path, each.text, each.origin.value, each.source) for each in result.server.figures],
                left=4,
            ),
        ),
        meanings=columns(result),
        recording=recording(result, rows),
        beside=of_all.beside,
        left_out=len(result.slowest) - len(rows),
    )  # fmt: skip


def _sentences(text: str) -> Iterator[str]:
    """Yield the first sentence of a text, and the rest."""
    first, stop, rest = text.partition(". ")
    yield f"{first}." if stop else first
    if rest:
        yield rest


def _facts(result: ScenarioResult, shown: PolicyResult) -> Iterator[tuple[str, str]]:
    metrics = shown.metrics
    enough = "" if shown.fits else " with unlimited memory"
    if lacking := lacking_bytes(result, shown):
        yield format_bytes(lacking), f"more than {shown.policy} can have"
    yield format_seconds(metrics.iteration_s), f"per iteration of {shown.policy}{enough}"
    rate = rate_text(sample_of(result.workload.graph), metrics.samples_per_s).partition(",")[0]
    yield rate, f"throughput{whose(result.workload, 1)}"
    if shown.fits:
        yield percent(shown.performance_ratio), "of the speed with unlimited memory"
    yield format_bytes(metrics.allocated_bytes), f"allocated at most{enough}"
    if (needed := result.needed_bytes(shown)) != metrics.allocated_bytes:
        yield format_bytes(needed), "process memory"
    yield percent(metrics.stall_s / metrics.iteration_s), "stalled"


def lacking_bytes(result: ScenarioResult, shown: PolicyResult) -> int:
    """Return by how much a policy that does not fit exceeds the memory of the GPU; 0 where that is not why."""
    return 0 if shown.fits else max(0, result.needed_bytes(shown) - result.server.gpu.memory_bytes)


def stalls_title(result: ScenarioResult, shown: PolicyResult) -> str:
    """Return what a policy waits for; of one that does not fit first that, and by how much."""
    causes = shown.metrics.stall_by_cause
    whole, lost = format_seconds(shown.metrics.iteration_s), format_seconds(shown.metrics.stall_s)
    if not shown.fits:
        lacking = lacking_bytes(result, shown)
        by = f" by {format_bytes(lacking)}" if lacking else ""
        waits = f", {lost} of it waiting" if causes else ""
        return f"{shown.policy} does not fit{by}; with unlimited memory it would take {whole}{waits}"
    if not causes:
        return f"{shown.policy} never waits in {whole}"
    words = {cause: cause.value.replace("waits for", "waiting for") for cause in StallCause}
    words[StallCause.PINNING] = "while the host pins memory"
    parts = ", ".join(f"{format_seconds(seconds)} {words[cause]}" for cause, seconds in causes)
    return f"Of {whole}, {shown.policy} loses {lost}: {parts}"


def _pool_title(shown: PolicyResult) -> str:
    gaps = shown.trace.pool_bytes - shown.metrics.allocated_bytes
    more = f"{format_bytes(gaps)} more than " if gaps > 0 else ""
    return f"{shown.policy} reserves {format_bytes(shown.trace.pool_bytes)}, {more}its peak of allocated memory"


def _nearby_title(result: ScenarioResult) -> str:
    """Return the effect of twice the link bandwidth, or the least memory in which a policy would fit."""
    times = {(each.policy, each.bandwidth): dict(each.iteration_s) for each in result.nearby}
    capacity = result.server.gpu.memory_bytes
    for policy, _ in times:
        now, then = (times[policy, factor].get(capacity) for factor in (1.0, 2.0))
        if now is not None and then is not None and now != then:
            times_text = f"{format_seconds(then)} instead of {format_seconds(now)}"
            return f"Over a link twice as fast {policy} would take {times_text}"
    fitting = {size: each.policy for each in reversed(result.nearby) for size, seconds in each.iteration_s if seconds}
    if fitting and capacity not in fitting:
        return f"With {format_bytes(min(fitting))} of memory {fitting[min(fitting)]} would fit"
    return "No other link makes a policy that fits faster"
