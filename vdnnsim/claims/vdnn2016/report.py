"""The report of a paper: figures from simulation, claims, and what stands behind them. One command makes it all.

Files: README.md, figureNN.png and .csv, claims.csv, readings.csv, sensitivity.csv, page_migration.csv, kernel_times.csv
(the cost model against every public measurement, those that the fit never used included) and run.json. Equal input
gives equal bytes.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from vdnnsim.claims.claim import ClaimsFile
from vdnnsim.claims.manifest import manifest
from vdnnsim.claims.row import ClaimRow, Verdict
from vdnnsim.claims.table import COLUMNS, cells
from vdnnsim.claims.vdnn2016.figures import figure_files, paper_figures
from vdnnsim.claims.vdnn2016.page import page_text
from vdnnsim.claims.vdnn2016.paging import COLUMNS as PAGING_COLUMNS
from vdnnsim.claims.vdnn2016.paging import paging_costs, paging_text
from vdnnsim.claims.vdnn2016.readings import READINGS, Reading, ReadingEffect, compare_readings
from vdnnsim.claims.vdnn2016.runs import PaperRuns
from vdnnsim.claims.vdnn2016.sensitivity import DRAWS, SEED, Sensitivity, sensitivity
from vdnnsim.cost.fit_rows import FitRow, read_fit_rows
from vdnnsim.cost.machine import Machine
from vdnnsim.element_type import ElementType
from vdnnsim.report.csv_file import csv_text

Table = list[tuple[str | float, ...]]

_READING_COLUMNS = ("reading", "id", "metric", "expected", "default", "alternative", "alternative_verdict")
_SENSITIVITY_COLUMNS = ("id", "draws_met_share", "least", "most", "unit", "driver", "rank_correlation")
_KERNEL_COLUMNS = ("role", "group", "subject", "phase", "algorithms", "observed_s", "predicted_s", "error", "origin")


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: PaperRuns,
    profile: Path,
    *,
    draws: int = DRAWS,
    readings: Sequence[Reading] = READINGS,
) -> dict[str, bytes]:
    """Return the content of every file of a paper's report by its name; `profile` is the file of its machine."""
    figures = paper_figures(runs)
    compared = compare_readings(file.claims, rows, runs.server, readings)
    drawn = sensitivity(file.claims, runs.server, draws)
    fit_rows = read_fit_rows(profile.with_suffix(".fit.csv"))
    machine = Machine.of_server(runs.server, ElementType.FLOAT32)
    paging = paging_costs(runs)
    sections = {
        "What would demand paging cost?": paging_text(paging),
        "What would other readings give?": _readings_text(compared),
        "Which claims are robust, which hang on one number?": _sensitivity_text(drawn, draws),
        "How good are the kernel times?": _kernels_text(fit_rows, machine),
    }
    tables = {
        "claims.csv": csv_text(COLUMNS, [cells(row) for row in rows]),
        "readings.csv": csv_text(_READING_COLUMNS, _reading_cells(compared)),
        "sensitivity.csv": csv_text(_SENSITIVITY_COLUMNS, [_sensitivity_cells(each) for each in drawn]),
        "page_migration.csv": csv_text(PAGING_COLUMNS, [each.cells for each in paging]),
        "kernel_times.csv": csv_text(_KERNEL_COLUMNS, [_kernel_cells(row, machine) for row in fit_rows]),
        "README.md": page_text(figures, rows, sections),
        "run.json": manifest(file, (profile, profile.with_suffix(".fit.csv")), seed=SEED, draws=draws),
    }
    return figure_files(figures) | {name: text.encode() for name, text in tables.items()}


def _readings_text(readings: Iterable[tuple[Reading, tuple[ReadingEffect, ...]]]) -> str:
    parts = []
    for reading, effects in readings:
        parts += [f"### `{reading.name}`", "", reading.question, ""]
        flipped = [each for each in effects if each.default.verdict is not each.alternative.verdict]
        lost = sum(each.default.verdict is Verdict.REPRODUCED for each in flipped)
        turned = "The rows whose verdict turns:" if flipped else "No verdict turns; readings.csv has the values."
        gained = len(flipped) - lost
        parts += [f"{len(effects)} rows move, {lost} are no longer met, {gained} are met that were not. {turned}", ""]
        if flipped:
            parts += ["| row | what | paper | default | alternative |", "| --- | --- | --- | --- | --- |"]
            parts += [
                f"| {e.default.id} | {e.default.metric} | {e.default.expected} | {e.default.simulated} "
                f"| {e.alternative.simulated} |"
                for e in flipped
            ]
            parts.append("")
    return "\n".join(parts)


def _reading_cells(readings: Iterable[tuple[Reading, tuple[ReadingEffect, ...]]]) -> Table:
    return [
        (
            reading.name,
            e.default.id,
            e.alternative.metric,
            e.default.expected,
            e.default.simulated,
            e.alternative.simulated,
            e.alternative.verdict.value,
        )
        for reading, effects in readings
        for e in effects
    ]


def _sensitivity_text(drawn: Sequence[Sensitivity], draws: int) -> str:
    robust = [each for each in drawn if each.met == 1]
    fragile = sorted((each for each in drawn if each.met < 1), key=lambda each: each.met)
    intro = (
        f"Every parameter of the cost model and the bandwidth of the link drawn within 20 %, {draws} draws, seed "
        f"{SEED}: {len(robust)} of {len(drawn)} rows hold under every draw. The others, with the parameter whose rank "
        "correlates most with the value:"
    )
    lines = [
        intro,
        "",
        "| row | holds under | least | most | hangs on | rank correlation |",
        "| --- | ---: | ---: | ---: | --- | ---: |",
    ]
    for each in fragile:
        least, most = ("" if value is None else f"{value:.3g}" for value in (each.least, each.most))
        driver = each.driver or ""
        strength = "" if each.rank_correlation is None else f"{each.rank_correlation:+.2f}"
        lines.append(f"| {each.claim.id} | {each.met:.0%} | {least} | {most} | {driver} | {strength} |")
    return "\n".join([*lines, ""])


def _sensitivity_cells(each: Sensitivity) -> tuple[str | float, ...]:
    numbers = ("" if number is None else number for number in (each.least, each.most))
    strength = "" if each.rank_correlation is None else each.rank_correlation
    return each.claim.id, each.met, *numbers, each.claim.unit, each.driver or "", strength


def _kernels_text(rows: Sequence[FitRow], machine: Machine) -> str:
    intro = (
        "The cost model against public measurements on this GPU. Rows of role `fit` shaped its parameters, the others "
        "never did; whole networks are held out as a whole. kernel_times.csv has every row with its origin."
    )
    lines = [
        intro,
        "",
        "| role | rows | number | mean absolute error | mean error |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for role, group in sorted({(row.role, row.group) for row in rows}):
        errors = [row.relative_error(machine) for row in rows if (row.role, row.group) == (role, group)]
        lines.append(f"| {role} | {group} | {len(errors)} | {fmean(map(abs, errors)):.1%} | {fmean(errors):+.1%} |")
    held_out = [row.relative_error(machine) for row in rows if row.role == "held_out"]
    lines += ["", f"Mean absolute error over all held-out rows: {fmean(map(abs, held_out)):.1%}.", ""]
    return "\n".join(lines)


def _kernel_cells(row: FitRow, machine: Machine) -> tuple[str | float, ...]:
    times = row.observed_s, row.predicted_s(machine)
    return (
        row.role,
        row.group,
        row.subject,
        row.phase.value,
        row.algorithms,
        *times,
        row.relative_error(machine),
        row.origin,
    )
