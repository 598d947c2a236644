"""The report on the vDNN paper: figures from simulation, claims, and what stands behind them. One command makes it all.

Files: README.md, figureNN.png and .csv, claims.csv, readings.csv, sensitivity.csv, page_migration.csv, kernel_times.csv
(the cost model against every public measurement, those that the fit never used included) and run.json. Equal input
gives equal bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

from vdnnsim.claims.claim import ClaimsFile, Verdict
from vdnnsim.claims.readings import ReadingRows, effects_csv
from vdnnsim.claims.report import claims_table, figure_files, manifest, reasons
from vdnnsim.claims.row import COLUMNS, ClaimCount, ClaimRow, cells
from vdnnsim.claims.vdnn2016.figures import paper_figures
from vdnnsim.claims.vdnn2016.figures.figure import PaperFigure
from vdnnsim.claims.vdnn2016.paging import COLUMNS as PAGING_COLUMNS
from vdnnsim.claims.vdnn2016.paging import paging_costs, paging_text
from vdnnsim.claims.vdnn2016.readings import READINGS, VdnnReading, compare_readings
from vdnnsim.claims.vdnn2016.runs import VdnnRuns
from vdnnsim.claims.vdnn2016.sensitivity import DRAWS, SEED, Sensitivity, sensitivity
from vdnnsim.cost.fit_rows import FitRow, read_fit_rows
from vdnnsim.cost.machine import Machine
from vdnnsim.element_type import ElementType
from vdnnsim.report import markdown
from vdnnsim.report.csv_file import csv_text

_SENSITIVITY_COLUMNS = ("id", "draws_met_share", "least", "most", "unit", "driver", "rank_correlation")
_KERNEL_COLUMNS = ("role", "group", "subject", "phase", "algorithms", "observed_s", "predicted_s", "error", "origin")


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: VdnnRuns,
    profiles: Sequence[Path],
    *,
    draws: int = DRAWS,
    readings: Sequence[VdnnReading] = READINGS,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` has the file of its one machine."""
    (profile,) = profiles
    figures = paper_figures(runs)
    compared = compare_readings(file.claims, runs, readings)
    drawn = sensitivity(file.claims, runs.server, draws)
    fit_rows = read_fit_rows(profile.with_suffix(".fit.csv"))
    machine = Machine.of_server(runs.server, ElementType.FLOAT32)
    paging = paging_costs(runs)
    sections = {
        "What would demand paging cost?": paging_text(paging),
        "What would other readings give?": _readings_text(compared, rows),
        "Which claims are robust, which hang on one number?": _sensitivity_text(drawn, draws),
        "How good are the kernel times?": _kernels_text(fit_rows, machine),
    }
    tables = {
        "claims.csv": csv_text(COLUMNS, [cells(row) for row in rows]),
        "readings.csv": effects_csv(compared, rows),
        "sensitivity.csv": csv_text(_SENSITIVITY_COLUMNS, [_sensitivity_cells(each) for each in drawn]),
        "page_migration.csv": csv_text(PAGING_COLUMNS, [each.cells for each in paging]),
        "kernel_times.csv": csv_text(_KERNEL_COLUMNS, [_kernel_cells(row, machine) for row in fit_rows]),
        "README.md": page_text(figures, rows, sections),
        "run.json": manifest(file, profiles, seed=SEED, draws=draws),
    }
    return figure_files(figures) | {name: text.encode() for name, text in tables.items()}


def _readings_text(compared: Iterable[ReadingRows[VdnnReading]], rows: Sequence[ClaimRow]) -> str:
    parts = []
    for each in compared:
        effects = each.effects(rows)
        turned = [effect for effect in effects if effect.turns]
        lost = sum(effect.default.verdict is Verdict.REPRODUCED for effect in turned)
        gained = len(turned) - lost
        which = "The rows whose verdict turns:" if turned else "No verdict turns; readings.csv has the values."
        parts += [
            markdown.heading(markdown.code(each.reading.name), 3),
            each.reading.question,
            f"{len(effects)} rows move, {lost} are no longer met, {gained} are met that were not. {which}",
        ]
        if turned:
            cells_of_turned = [
                (e.default.id, e.default.metric, e.default.expected, e.default.simulated, e.alternative.simulated)
                for e in turned
            ]
            parts.append(markdown.table(("row", "what", "paper", "default", "alternative"), cells_of_turned))
    return "\n\n".join(parts)


def _sensitivity_text(drawn: Sequence[Sensitivity], draws: int) -> str:
    robust = [each for each in drawn if each.met == 1]
    fragile = sorted((each for each in drawn if each.met < 1), key=lambda each: each.met)
    intro = (
        f"Every parameter of the cost model and the bandwidth of the link drawn within 20 %, {draws} draws, seed "
        f"{SEED}: {len(robust)} of {len(drawn)} rows hold under every draw. The others, with the parameter whose rank "
        "correlates most with the value:"
    )
    columns = ("row", "holds under", "least", "most", "hangs on", "rank correlation")
    lines = []
    for each in fragile:
        least, most = ("" if value is None else f"{value:.3g}" for value in (each.least, each.most))
        strength = "" if each.rank_correlation is None else f"{each.rank_correlation:+.2f}"
        lines.append((each.claim.id, f"{each.met:.0%}", least, most, each.driver or "", strength))
    return f"{intro}\n\n{markdown.table(columns, lines, left=1)}"


def _sensitivity_cells(each: Sensitivity) -> tuple[str | float, ...]:
    numbers = ("" if number is None else number for number in (each.least, each.most))
    strength = "" if each.rank_correlation is None else each.rank_correlation
    return each.claim.id, each.met, *numbers, each.claim.unit, each.driver or "", strength


def _kernels_text(rows: Sequence[FitRow], machine: Machine) -> str:
    intro = (
        "The cost model against public measurements on this GPU. Rows of role `fit` shaped its parameters, the others "
        "never did; whole networks are held out as a whole. kernel_times.csv has every row with its origin."
    )
    lines = []
    for role, group in sorted({(row.role, row.group) for row in rows}):
        errors = [row.relative_error(machine) for row in rows if (row.role, row.group) == (role, group)]
        lines.append((role, group, str(len(errors)), f"{fmean(map(abs, errors)):.1%}", f"{fmean(errors):+.1%}"))
    table = markdown.table(("role", "rows", "number", "mean absolute error", "mean error"), lines, left=2)
    held_out = [row.relative_error(machine) for row in rows if row.role == "held_out"]
    return f"{intro}\n\n{table}\n\nMean absolute error over all held-out rows: {fmean(map(abs, held_out)):.1%}."


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


def page_text(figures: Sequence[PaperFigure], claim_rows: Sequence[ClaimRow], sections: Mapping[str, str]) -> str:
    """Return the page as Markdown.

    Args:
        figures: in the order in which to walk through them; their files lie beside the page.
        claim_rows: the checked numbers.
        sections: what else there is to say, ready Markdown by heading.
    """
    parts = [
        "# The figures of the vDNN paper, from simulation",
        _introduction(figures, claim_rows),
        *(part for figure in figures for part in _figure(figure)),
        "## Every number that the paper states",
        claims_table(claim_rows),
        *reasons(claim_rows),
        *(part for heading, text in sections.items() for part in (f"## {heading}", text.strip())),
    ]
    return markdown.page(parts)


def _introduction(figures: Sequence[PaperFigure], rows: Sequence[ClaimRow]) -> str:
    missed = sum(row.verdict is Verdict.NOT_REPRODUCED for row in rows)
    return (
        f"{ClaimCount.of(rows)}, each with all of its numbers: {len(rows)}, of which {missed} are not met. Below are "
        f"{len(figures)} figures in the form of the paper's own, each with what the paper says, what the replay shows, "
        "and where and why they differ. What the paper shows in its pictures alone is not compared, for its numbers "
        "were not published. GB in the paper means GiB. Every picture has its numbers beside it as CSV, in SI units."
    )


def _figure(figure: PaperFigure) -> tuple[str, ...]:
    return (
        f"## {figure.name}",
        markdown.image(figure.chart.title, f"{figure.stem}.png"),
        f"{markdown.escape(figure.caption)} Numbers: [{figure.stem}.csv]({figure.stem}.csv).",
        *(markdown.bold("What the paper says"), markdown.bullets(figure.paper_says)),
        *(markdown.bold("What the replay shows"), markdown.bullets(figure.replay_shows)),
        *(markdown.bold("Where and why they differ"), markdown.bullets(figure.differs)),
    )
