"""Summary of a calibration: a short table of figures, and warnings."""

from collections.abc import Iterator
from statistics import fmean, median
from typing import Final

from calibration.measure.calibrate import Calibration
from calibration.measure.statistics import WARNED_SPREAD, Sample, percent
from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.cost.measured import left_out_errors

COLUMNS: Final = ("what", "value", "how it was found")
_NAMED: Final = 5
"""Warnings of one kind that are listed; the tables have all."""


def summary_rows(calibration: Calibration) -> list[tuple[str, str, str]]:
    figures = [(figure.path, figure.text, figure.source) for figure in calibration.server.figures]
    return [*figures, *_kernels(calibration.rows), *_predictions(calibration)]


def warning_lines(calibration: Calibration) -> list[str]:
    """Return the warnings of a calibration, a line each; of many of one kind, the worst."""
    copies, kernels = (file.name for file in calibration.files[:2])
    samples = sorted(calibration.unsteady.items(), key=lambda item: -item[1].spread)
    unused = [row for row in calibration.rows if row.seconds is None]
    unsteady = sorted(
        (row for row in calibration.rows if row.seconds is not None and row.spread > WARNED_SPREAD),
        key=lambda row: -row.spread,
    )
    # Kernels that were run once are much slower than others, on purpose.
    remarked = [row for row in calibration.rows if row.seconds is not None and row.count > 1 and row.note]
    lines = [
        *calibration.warnings,
        *_worst(
            [f"{name}: {_judgement(sample)}" for name, sample in samples],
            f"unsteady measurements, of copies see {copies}",
        ),
        *_worst([f"{_text(row)}: {row.note}, so it is predicted" for row in unused], f"such kernels, see {kernels}"),
        *_worst(
            [f"{_text(row)}: spread {percent(row.spread)}" for row in unsteady], f"unsteady kernels, see {kernels}"
        ),
        *_worst([f"{_text(row)}: {row.note}" for row in remarked], f"kernels with remarks, see {kernels}"),
    ]
    return [f"warning: {line}" for line in lines]


def _worst(lines: list[str], rest: str) -> list[str]:
    return lines if len(lines) <= _NAMED else [*lines[:_NAMED], f"{len(lines) - _NAMED} further {rest}"]


def _judgement(sample: Sample) -> str:
    return f"{sample.runs}{'; not used where a profile can do without' if sample.is_refused else ''}"


def _text(row: KernelRow) -> str:
    return f"{row.shape.operator} of {row.shape.inputs_text}, {row.shape.phase.value}, {row.algorithm}"


def _kernels(rows: tuple[KernelRow, ...]) -> list[tuple[str, str, str]]:
    used = [row for row in rows if row.seconds is not None]
    shapes = len({row.shape for row in rows})
    spreads = sorted(row.spread for row in used)
    middle, worst = median(spreads), spreads[-1]
    runs = sum(row.count for row in used)
    return [
        ("kernels", f"{len(used)} of {len(rows)}", f"algorithms of {shapes} distinct shapes, in {runs} runs"),
        ("spread of kernels", percent(middle, digits=1), f"in the middle; {percent(worst)} at worst"),
    ]


def _predictions(calibration: Calibration) -> Iterator[tuple[str, str, str]]:
    """Return the error of predicting kernels from others; nothing where there are too few to leave one out."""
    if errors := left_out_errors(calibration.rows, calibration.server):
        error, bias, count = 100 * fmean(map(abs, errors)), 100 * fmean(errors), len(errors)
        how = f"mean absolute error, mean error {bias:+.0f} %, of {count} kernels each predicted from other layers"
        yield ("predictions", f"{error:.0f} %", how)
