"""`report.html`: a run to look into, in a browser, without a network; what needs no script is there without one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from vdnnsim.analysis.memory import alive_at_peak, peak_operation
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.plans.trace import StallCause
from vdnnsim.report.caveats import glossary, known, remarks
from vdnnsim.report.document import Bullets, Table, plain_table, section
from vdnnsim.report.findings import caption, comparison, conclusions, headline
from vdnnsim.report.html import environment
from vdnnsim.report.palette import STALL_COLORS
from vdnnsim.report.run.page import columns, footnotes, questions, sources
from vdnnsim.report.run.perfetto import operation_text
from vdnnsim.report.run.recording import numbers, recorded, recording
from vdnnsim.report.run.rendered_images import RIGHT, areas, capacity_height, dots
from vdnnsim.report.scale import percent, rate_text
from vdnnsim.report.tables.summary import summary
from vdnnsim.units import format_bytes, format_seconds


@dataclass(frozen=True, slots=True)
class Shown:
    """What a page shows of all policies, and what lies beside it.

    Attributes:
        said: its verdict in sentences, the first of which is its title.
        heading: what stands above all policies.
        notes: what the marks of the table mean, and what is to be known of its numbers.
    """

    said: tuple[str, ...]
    heading: str
    table: Table
    notes: tuple[str, ...]
    beside: str


def html_text(result: ScenarioResult, of_all: Shown | None = None) -> str:
    """Return the page of a run; of a comparison with what that shows of all policies."""
    if of_all is None:
        notes = *footnotes(result), *known(result)
        beside = "report.md, results.csv and run.json lie"
        of_all = Shown(conclusions(result), comparison(result), summary(result), notes, beside)
    shown, gpu = result.subject, result.server.gpu
    rows = recorded(sorted(result.slowest, key=lambda row: row is not shown))
    rival = _rival(rows)
    verdict, *more = (sentence for text in of_all.said for sentence in _sentences(text))
    return environment().get_template("run.html.j2").render(
        title=result.name,
        caption=caption(result),
        verdict=verdict,
        more=more,
        words=(*remarks(result.workload), *glossary(row.policy for row in result.slowest)),
        facts=_facts(result, shown),
        shown=shown,
        needs=result.needs,
        advice=section("What would make it fit?", result.advice),
        heading=of_all.heading,
        table=(of_all.table,),
        notes=of_all.notes,
        dots=dots(result),
        right=RIGHT,
        capacity=capacity_height(result),
        capacity_text=format_bytes(gpu.memory_bytes),
        slowest=format_seconds(max(row.metrics.iteration_s for row in result.slowest)),
        fastest=format_seconds(min(row.metrics.iteration_s for row in result.slowest)),
        headline=headline(result, shown),
        layers=areas(result, shown),
        stalls=stalls_title(shown),
        causes=[(cause.value, seconds, STALL_COLORS[cause]) for cause, seconds in shown.metrics.stall_by_cause],
        waits=sorted(shown.trace.stalls, key=lambda stall: (stall.start_s - stall.end_s, stall.start_s)),
        told=partial(operation_text, shown.trace.plan),
        peak=_peak_title(shown),
        alive=sorted(alive_at_peak(shown.trace).items(), key=lambda each: (-each[1], each[0])),
        rival=rival,
        held=[numbers(row) for row in (shown, rival)],
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


def _rival(rows: Sequence[PolicyResult]) -> PolicyResult:
    """Return what the first of some results is held against: the fastest that is not as fast, else the last."""
    others = [row for row in rows if row.metrics.iteration_s != rows[0].metrics.iteration_s]
    return min(others, key=lambda row: row.metrics.iteration_s, default=rows[-1])


def _sentences(text: str) -> Iterator[str]:
    """Yield the first sentence of a text, which is its title, and the rest."""
    first, stop, rest = text.partition(". ")
    yield f"{first}." if stop else first
    if rest:
        yield rest


def _facts(result: ScenarioResult, shown: PolicyResult) -> Iterator[tuple[str, str]]:
    """Yield the numbers that a reader looks for first, and what each is."""
    metrics = shown.metrics
    enough = "" if shown.fits else ", had it memory enough"
    yield format_seconds(metrics.iteration_s), f"per iteration of {shown.policy}{enough}"
    yield rate_text(sample_of(result.workload.graph), metrics.images_per_s).partition(",")[0], "throughput"
    yield percent(shown.performance_ratio), "of the oracular speed"
    yield format_bytes(metrics.max_memory_bytes), "in use at the most"
    yield percent(metrics.stall_s / metrics.iteration_s), "of the time waiting"


def stalls_title(shown: PolicyResult) -> str:
    """Return how long the compute stream waits, and for what: `Of 26.0 s, 259 ms are lost: 254 ms ...`."""
    causes = shown.metrics.stall_by_cause
    whole, lost = format_seconds(shown.metrics.iteration_s), format_seconds(shown.metrics.stall_s)
    if not causes:
        return f"{shown.policy} never waits in {whole}"
    told = ", ".join(f"{format_seconds(seconds)} {_lost_to(cause)}" for cause, seconds in causes)
    return f"Of {whole}, {shown.policy} loses {lost}: {told}"


def _lost_to(cause: StallCause) -> str:
    return {StallCause.PINNING: "while the host pins memory"}.get(
        cause, cause.value.replace("waits for", "waiting for")
    )


def _peak_title(shown: PolicyResult) -> str:
    kinds = ", ".join(f"{kind.value} {format_bytes(nbytes)}" for kind, nbytes in shown.metrics.peak_by_kind[:3])
    return f"{format_bytes(shown.metrics.max_memory_bytes)} are alive in {peak_operation(shown.trace)[1]}: {kinds}"


def _pool_title(shown: PolicyResult) -> str:
    gaps = shown.trace.pool_bytes - shown.metrics.max_memory_bytes
    told = f"{format_bytes(gaps)} more than is ever in use" if gaps > 0 else "not a byte more than is in use"
    return f"The pool of {shown.policy} takes {format_bytes(shown.trace.pool_bytes)}, {told}"


def _nearby_title(result: ScenarioResult) -> str:
    """Return what a link twice as fast would do for the best of the policies that were tried; of none, what memory."""
    times = {(each.policy, each.bandwidth): dict(each.iteration_s) for each in result.nearby}
    capacity = result.server.gpu.memory_bytes
    for policy, _ in times:
        now, then = (times[policy, factor].get(capacity) for factor in (1.0, 2.0))
        if now is not None and then is not None and now != then:
            told = f"{format_seconds(then)} instead of {format_seconds(now)}"
            return f"Over a link twice as fast {policy} would take {told}"
    fitting = {size: each.policy for each in reversed(result.nearby) for size, seconds in each.iteration_s if seconds}
    if fitting and capacity not in fitting:
        return f"With {format_bytes(min(fitting))} of memory {fitting[min(fitting)]} would fit"
    return "No other link would make a policy faster that fits"
