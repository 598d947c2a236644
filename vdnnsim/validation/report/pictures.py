"""The pictures of a validation: all rows at a glance, and one of them in full."""

from collections.abc import Sequence

from vdnnsim.report.chart import Pair, Parity, Picture
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes, format_seconds
from vdnnsim.validation.row import Row
from vdnnsim.validation.run.side import Side
from vdnnsim.validation.validate import Validation
from vdnnsim.validation.verdict import compared, mean_absolute_error


def draw_validation(validation: Validation) -> tuple[Picture, ...]:
    """Draw a validation; nothing where no row has both sides."""
    # Matplotlib takes longer to import than most rows to replay.
    from vdnnsim.report.plots.validation.overlay import draw_memories, draw_timelines
    from vdnnsim.report.plots.validation.parity import draw_parity

    rows = compared(validation.rows)
    if not rows:
        return ()
    parity, shown = _parity(validation, rows), instructive_row(rows)
    measured, simulated = shown.measured, shown.simulated
    assert measured is not None
    assert simulated is not None
    traces = measured.trace, simulated.trace
    timelines, memory = _timeline_title(shown, measured, simulated), _memory_title(shown, measured, simulated)
    subtitle = f"{_subject(shown)} on {validation.device}{_how(validation)}"
    return (
        Picture("iteration_time.png", parity.title, draw_parity(parity)),
        Picture("timelines.png", timelines, draw_timelines(timelines, subtitle, *traces)),
        Picture("memory.png", memory, draw_memories(memory, subtitle, *traces)),
    )


def instructive_row(rows: Sequence[Row]) -> Row:
    """Return the row in which the compute stream waits for copies the largest part of its time, the first of equals."""
    return max(rows, key=lambda row: row.simulated.copy_stall_s / row.simulated.iteration_s if row.simulated else 0.0)


def _parity(validation: Validation, rows: Sequence[Row]) -> Parity:
    tolerance = validation.method.tolerance.calibrated
    inside = sum(abs(row.time_error or 0.0) <= tolerance for row in rows)
    return Parity(
        title=(
            f"Simulated iteration times are {percent(mean_absolute_error(rows))} off in the mean, "
            f"{inside} of {len(rows)} rows within {100 * tolerance:g} %"
        ),
        subtitle=f"every policy that ran on {validation.device}{_how(validation)}; a red rim marks what is outside",
        pairs=tuple(
            Pair(row.task.label, int(not row.calibrated), row.measured.iteration_s, row.simulated.iteration_s)
            for row in rows
            if row.measured and row.simulated
        ),
        kinds=("kernels calibrated", "kernels never calibrated"),
        tolerance=tolerance,
        band=f"within {100 * tolerance:g} %",
    )


def _how(validation: Validation) -> str:
    return ", whose durations were given" if validation.method.pacing else ""


def _subject(row: Row) -> str:
    return f"{row.label}, {row.task.label}"


def _timeline_title(row: Row, measured: Side, simulated: Side) -> str:
    stalls = (percent(side.stall_s / side.iteration_s) for side in (measured, simulated))
    return (
        f"{row.policy}: {format_seconds(measured.iteration_s)} measured, {format_seconds(simulated.iteration_s)} "
        f"simulated; the compute stream stands still {' and '.join(stalls)} of it"
    )


def _memory_title(row: Row, measured: Side, simulated: Side) -> str:
    one, other = measured.peaks.requested_bytes, simulated.peaks.requested_bytes
    if one == other:
        return f"{row.policy}: the device was asked for {format_bytes(one)} at most, as simulated"
    return f"{row.policy}: the device was asked for {format_bytes(one)} at most, simulated {format_bytes(other)}"
