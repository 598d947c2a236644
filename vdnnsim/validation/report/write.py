"""The folder of a validation: page, table, pictures and manifest."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from vdnnsim.report.folder import Writer, write_folder
from vdnnsim.report.picture import Pair, Parity, Picture
from vdnnsim.report.result_table import csv_text
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes, format_seconds
from vdnnsim.validation.report.page import page_text
from vdnnsim.validation.report.tables import cells, column_names
from vdnnsim.validation.row import Row, Side, compared, mean_absolute_error, requirements
from vdnnsim.validation.validate import Validation

VALIDATION_WRITER: Final = Writer.of(
    "validation",
    ("README.md", "validation.csv", "run.json"),
    *("method", "requirements", "files"),
    others=r"\w+\.png",
)


def write_validation(validation: Validation, warnings: Sequence[str], folder: Path) -> tuple[Path, ...]:
    return write_folder(folder, validation_files(validation, warnings), VALIDATION_WRITER).files


def validation_files(validation: Validation, warnings: Sequence[str]) -> dict[str, bytes]:
    pictures = draw_validation(validation)
    method = validation.method
    said = {
        "device": {"name": validation.device, **dict(validation.provenance)},
        "profile": {"name": validation.server.name, **dict(validation.server.provenance)},
        "warnings": list(warnings),
        "method": {
            "pacing": None if method.pacing is None else asdict(method.pacing),
            "free_runs": method.free_runs,
            "free_s": method.free_s,
            "tolerance": asdict(method.tolerance),
        },
        "requirements": [
            {"name": each.name, "required": each.required, "found": each.found, "holds": each.holds}
            for each in requirements(validation.rows, method.tolerance)
        ],
        "rows": [_row(row) for row in validation.rows],
    }
    contents: dict[str, str | bytes] = {
        "README.md": page_text(validation, {each.name: each.description for each in pictures}, warnings),
        "validation.csv": csv_text(column_names(), [cells(row) for row in validation.rows]),
        **{each.name: each.png for each in pictures},
    }
    return VALIDATION_WRITER.with_manifest(validation.sources, said, contents)


def _row(row: Row) -> dict[str, Any]:
    """Return the cells of a row, its runs, and the trials of its policy."""
    named = dict(zip(column_names(), cells(row), strict=True))
    passes = row.simulated.trace.plan.passes if row.simulated else ()
    return {
        **{name: None if value == "" else value for name, value in named.items()},
        "runs_s": list(row.runs_s),
        "passes": [{"name": one.name, "fits": one.fits, "cost_s": one.cost_s} for one in passes],
    }


def draw_validation(validation: Validation) -> tuple[Picture, ...]:
    # Importing matplotlib takes longer than most replays.
    from vdnnsim.report.plots.validation import draw_memories, draw_parity, draw_timelines

    rows = compared(validation.rows)
    if not rows:
        return ()
    parity, shown = _parity(validation, rows), instructive_row(rows)
    measured, simulated = shown.measured, shown.simulated
    assert measured is not None
    assert simulated is not None
    traces = measured.trace, simulated.trace
    timelines, memory = _timeline_title(shown, measured, simulated), _memory_title(shown, measured, simulated)
    subtitle = f"{shown.label}, {shown.task.label} on {validation.device}{_how(validation)}"
    return (
        Picture("iteration_time.png", parity.title, draw_parity(parity)),
        Picture("timelines.png", timelines, draw_timelines(timelines, subtitle, *traces)),
        Picture("memory.png", memory, draw_memories(memory, subtitle, *traces)),
    )


def instructive_row(rows: Sequence[Row]) -> Row:
    """Return the row with the largest share of stalls for copies."""
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


def _timeline_title(row: Row, measured: Side, simulated: Side) -> str:
    stalls = (percent(side.stall_s / side.iteration_s) for side in (measured, simulated))
    return (
        f"{row.policy}: {format_seconds(measured.iteration_s)} measured, {format_seconds(simulated.iteration_s)} "
        f"simulated; the compute stream waits {' and '.join(stalls)} of it"
    )


def _memory_title(row: Row, measured: Side, simulated: Side) -> str:
    one, other = measured.peaks.requested_bytes, simulated.peaks.requested_bytes
    return f"{row.policy}: peak requested memory {format_bytes(one)}, " + (
        "as simulated" if one == other else f"simulated {format_bytes(other)}"
    )
