"""Throughput against the number of GPUs, for each policy: of the whole server, and of each GPU."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from vdnnsim.analysis.columns import COLUMNS, Measured
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report.caveats import peaks_note
from vdnnsim.report.findings import workload_text
from vdnnsim.report.palette import MUTED
from vdnnsim.report.plots.series import DASHES, look, series_handle
from vdnnsim.report.plots.style import as_png, new_figure, point_handle, ruled, write_legend
from vdnnsim.report.scale import per_second, rate_text
from vdnnsim.units import format_rate

_LARGEST, _SMALLER = 19, 4
"""Points of the first policy's markers, and by how many each next policy's are smaller, so that equal ones are seen."""


def scaling_title(runs: Sequence[ScenarioResult]) -> str:
    """Return what the picture says: what the fastest and the slowest policy do on most GPUs."""
    last = runs[-1]
    speeds = {row.policy: _speed(last, row, "server_samples_per_s") for row in last.slowest}
    best, worst = max(speeds, key=lambda policy: speeds[policy]), min(speeds, key=lambda policy: speeds[policy])
    other = "" if best == worst else f", {worst} {format_rate(speeds[worst])}"
    return f"{best} does {rate_text(sample_of(last.workload.graph), speeds[best])} on {last.gpus} GPUs{other}"


def scaling_figure(runs: Sequence[ScenarioResult]) -> Figure:
    """Draw runs of the same policies, in the order of their numbers of GPUs."""
    first = runs[0]
    subtitle = f"{workload_text(first)} on each {first.server.gpu.name}, all as fast as the slowest of them"
    figure = new_figure(scaling_title(runs), subtitle + peaks_note(first.kernels))
    whole, each = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.075, right=0.975, top=0.84, bottom=0.2, wspace=0.2)
    policies = [row.policy for row in first.slowest]
    for number, policy in enumerate(policies):
        rows = [next(row for row in run.slowest if row.policy == policy) for run in runs]
        _draw(whole, runs, rows, number, "server_samples_per_s")
        _draw(each, runs, rows, number, "samples_per_s")
    alone = max(_speed(first, row, "samples_per_s") for row in first.slowest)
    counts = [run.gpus for run in runs]
    whole.plot(counts, [alone * count for count in counts], color=MUTED, linestyle=DASHES, linewidth=2, zorder=1)
    each.axhline(alone, color=MUTED, linestyle=DASHES, linewidth=2, zorder=1)
    unit = per_second(sample_of(first.workload.graph))
    for axes, label in ((whole, f"{unit} of all GPUs"), (each, f"{unit} of each GPU")):
        axes.set_xticks(counts)
        axes.set_xlabel("GPUs")
        axes.set_ylabel(label)
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        ruled(axes, "y")
    _write_legend(figure, policies, unfit=any(not row.fits for run in runs for row in run.slowest), first=first.gpus)
    return figure


draw_scaling = as_png(scaling_figure)


def _draw(axes: Axes, runs: Sequence[ScenarioResult], rows: list[PolicyResult], number: int, column: str) -> None:
    color, marker = look(number)
    places = [run.gpus for run in runs]
    size = max(7, _LARGEST - number * _SMALLER)
    speeds = [_speed(run, row, column) for run, row in zip(runs, rows, strict=True)]
    axes.plot(places, speeds, color=color, linewidth=2.5, zorder=2)
    for place, speed, row in zip(places, speeds, rows, strict=True):
        face = color if row.fits else "white"
        axes.plot(place, speed, marker, color=color, markersize=size, markerfacecolor=face, markeredgewidth=2, zorder=3)


def _speed(run: ScenarioResult, row: PolicyResult, column: str) -> float:
    return COLUMNS[column].number(Measured.of(run, row))


def _write_legend(figure: Figure, policies: list[str], *, unfit: bool, first: int) -> None:
    handles = [series_handle(number, policy, 10) for number, policy in enumerate(policies)]
    as_fast = f"each as fast as the fastest on {first}"
    handles.append(Line2D([], [], color=MUTED, linestyle=DASHES, linewidth=2, label=as_fast))
    if unfit:
        handles.append(point_handle("does not fit", MUTED, markerfacecolor="white"))
    write_legend(figure, handles, rows=-(-len(handles) // 4))
