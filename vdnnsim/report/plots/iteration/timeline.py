"""Streams over time: kernels by phase, copies by direction, and what the compute stream waited for.

The upper half is the whole iteration. The lower half magnifies where most time is lost to waits for copies, which
shows whether copies hide behind kernels or kernels wait for copies. Where nothing is copied it magnifies the turn from
forward to backward, or the first layers where there is none.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import place, workload_text
from vdnnsim.report.plots.iteration.spans import (
    Bar,
    Window,
    color_patches,
    draw_halves,
    magnified_window,
    trace_bars,
    waits_for_copies,
    write_on,
)
from vdnnsim.report.plots.style import new_figure, write, write_legend
from vdnnsim.report.scale import percent
from vdnnsim.units import format_seconds

_ROWS = {Stream.COMPUTE: 2.0, Stream.MEMORY: 0.0, Stream.COMMUNICATION: -1.0, None: 1.0}
"""Where each stream lies, and the stalls, which are of none."""
_HEIGHT = 0.8
_POINTS = 13


def timeline_subject(result: ScenarioResult) -> PolicyResult:
    """Return the policy to show: the subject of the other pictures.

    Where that copies nothing it gives way to the fastest of those that do and fit, if there are any.
    """
    shown = result.subject
    if shown.trace.spans_on(Stream.MEMORY):
        return shown
    copying = [each for each in result.slowest if each.fits and each.trace.spans_on(Stream.MEMORY)]
    return min(copying, key=lambda each: each.metrics.iteration_s, default=shown)


def timeline_figure(result: ScenarioResult, shown: PolicyResult) -> Figure:
    """Draw the streams of one policy."""
    trace = shown.trace
    figure = new_figure(timeline_title(result, shown), f"{place(result, shown)}{_subtitle(result, shown)}")
    left = 0.18 if trace.spans_on(Stream.COMMUNICATION) else 0.135
    figure.subplots_adjust(left=left, right=0.97, top=0.79, bottom=0.2, hspace=0.3)
    iteration, window = Window(0.0, trace.iteration_s), magnified_window(trace)
    bars = trace_bars(trace, _ROWS)
    halves = draw_halves(figure, bars, iteration, window, heights=(2, 3), height=_HEIGHT)
    rows = {name: row for stream, row in _ROWS.items() if (name := _row_name(trace, stream))}
    for axes in halves:
        axes.set_ylim(min(rows.values()) - 0.6, max(rows.values()) + 0.6)
        axes.set_yticks([*rows.values()], [*rows])
    part = halves[1]
    if waits_for_copies(trace):
        part.set_xlabel(f"{part.get_xlabel()}, where copies are waited for most")
    _write_names(part, list(filter(window.shows, bars)), window)
    write_legend(figure, color_patches((trace,), (iteration, window)), fontsize=14, rows=2)
    return figure


def _row_name(trace: IterationTrace, stream: Stream | None) -> str:
    """Return what stands beside the row of a stream; nothing where no gradients are exchanged."""
    if stream is None:
        return "stalls"
    return f"{stream.value} stream" if stream is not Stream.COMMUNICATION or trace.spans_on(stream) else ""


def timeline_title(result: ScenarioResult, shown: PolicyResult) -> str:
    """Return what the picture says."""
    stalled = percent(shown.metrics.stall_s / shown.metrics.iteration_s)
    return f"{shown.policy}: the compute stream of {workload_text(result)} stands still {stalled} of the time"


def _subtitle(result: ScenarioResult, shown: PolicyResult) -> str:
    causes = ", ".join(f"{cause.value} {format_seconds(seconds)}" for cause, seconds in shown.metrics.stall_by_cause)
    unfit = "" if shown.fits else ", replayed without a capacity because it does not fit"
    best = result.subject
    instead = shown is not best and not best.trace.spans_on(Stream.MEMORY)
    rival = f"; {best.policy} copies nothing: {format_seconds(best.metrics.iteration_s)}" if instead else ""
    note = peaks_note(result.kernels)
    return f"one iteration of {format_seconds(shown.metrics.iteration_s)}{unfit}; {causes or 'no stalls'}{rival}{note}"


def _write_names(axes: Axes, shown: list[Bar], window: Window) -> None:
    """Write on each bar that is wide enough what it is, and beside the longest stall in any case how long it is."""
    stalls = [bar for bar in shown if bar.row == _ROWS[None]]
    longest = max(stalls, key=lambda bar: bar.end_s - bar.start_s, default=None)
    for bar in shown:
        if not write_on(axes, window, bar, _POINTS) and bar is longest:
            write(axes, bar.text, (sum(window.bar(bar)), bar.row), (6, 0), va="center", fontweight="bold")
