"""The report on the vDNN paper: simulated figures, claims, readings and sensitivity.

Files: README.md, figureNN.png and .csv, claims.csv, readings.csv, sensitivity.csv, page_migration.csv, kernel_times.csv
(the cost model against every public measurement, those that the fit never used included) and run.json. Equal input
gives equal bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from reports.page import SimulatedFigure, figure_files, page, report_files
from reports.readings import effects_csv
from reports.vdnn2016.figure_parts import Builder
from reports.vdnn2016.layer_figures import figure_05, figure_06, figure_13
from reports.vdnn2016.memory_figures import figure_01, figure_04, figure_11
from reports.vdnn2016.policy_figures import figure_12, figure_14, figure_15, power_section
from reports.vdnn2016.readings import DRAWS, READINGS, SEED, VdnnReading, compare_readings, sensitivity
from vdnnsim.claims.check import ClaimRow
from vdnnsim.claims.claim import ClaimsFile, read_claims
from vdnnsim.claims.vdnn2016.runs import CONVENTIONAL, VdnnRuns
from vdnnsim.cost.fit.least_squares import FitRow
from vdnnsim.cost.fit.maxwell import read_fit_rows
from vdnnsim.cost.machine import Machine
from vdnnsim.report.result_table import attributes_csv, csv_text
from vdnnsim.units import ElementType

BUILDERS: Final[tuple[Builder, ...]] = (
    *(figure_01, figure_04, figure_05, figure_06, figure_11, figure_12, figure_13, figure_14, figure_15),
    power_section,
)
"""The figures in the order of the paper."""
_PAGE_LATENCIES: Final = ("20 us", "50 us")
"""The range that the paper gives for a page of 4 KB (II-C)."""
_SENSITIVITY: Final = {
    "id": "claim.id",
    "draws_met_share": "met",
    "least": "least",
    "most": "most",
    "unit": "claim.unit",
    "driver": "driver",
    "rank_correlation": "rank_correlation",
}
"""Columns of `sensitivity.csv`, and what they show."""
_KERNEL_COLUMNS = ("role", "group", "subject", "phase", "algorithms", "observed_s", "predicted_s", "error", "origin")


def paper_figures(runs: VdnnRuns) -> tuple[SimulatedFigure, ...]:
    """Return all figures; replays that several need are run once."""
    return tuple(build(runs) for build in BUILDERS)


class PagingCost(NamedTuple):
    """One network under paging beside vDNN_dyn: a row of `page_migration.csv`."""

    network: str
    batch_size: int
    page_latency: str
    iteration_s: float
    performance_ratio: float
    vdnn_dyn_performance_ratio: float


def paging_costs(runs: VdnnRuns) -> Iterator[PagingCost]:
    """Replay page migration on the six networks of Fig. 11, at both ends of the paper's range."""
    for case in CONVENTIONAL:
        dyn = runs.result(*case, "vdnn_dyn").performance_ratio
        for latency in _PAGE_LATENCIES:
            paged = runs.result(*case, f"page_migration(p, page_latency={latency})")
            yield PagingCost(*case, latency, paged.metrics.iteration_s, paged.performance_ratio, dyn)


def paper_report(
    file: ClaimsFile,
    rows: Sequence[ClaimRow],
    runs: VdnnRuns,
    profiles: Sequence[Path],
    progress: Callable[[str], object] = str,
    *,
    draws: int = DRAWS,
    readings: Sequence[VdnnReading] = READINGS,
) -> dict[str, bytes]:
    """Return the content of every file of the report by its name; `profiles` has the file of its one machine."""
    (profile,) = profiles
    figures = paper_figures(runs)
    compared = compare_readings(file.claims, runs.server, readings, lambda line: progress(f"other readings: {line}"))
    drawn = sensitivity(file.claims, runs.server, draws, lambda line: progress(f"draws: {line}"))
    fit_rows = read_fit_rows(profile.with_suffix(".fit.csv"))
    machine = Machine.of_server(runs.server, ElementType.FLOAT32)
    paging = list(paging_costs(runs))
    texts = {
        "readings.csv": effects_csv(compared, rows),
        "sensitivity.csv": attributes_csv(_SENSITIVITY, drawn),
        "page_migration.csv": csv_text(PagingCost._fields, paging),
        "kernel_times.csv": csv_text(_KERNEL_COLUMNS, [_kernel(row, machine) for row in fit_rows]),
    }
    readme = page(
        "vdnn2016/page.md.j2",
        rows,
        stated={claim.id: claim.expected or claim.at_most for claim in read_claims("vdnn2016").claims},
        figures={each.stem: each for each in figures},
        paging=paging,
        readings=compared,
        drawn=drawn,
        draws=draws,
        seed=SEED,
        kernels=_kernel_errors(fit_rows, machine),
        held_out=fmean(abs(row.relative_error(machine)) for row in fit_rows if row.role == "held_out"),
    )
    return (
        figure_files(figures)
        | report_files(file, profiles, rows, texts, seed=SEED, draws=draws)
        | {"README.md": readme}
    )


def _kernel_errors(rows: Sequence[FitRow], machine: Machine) -> list[tuple[str, ...]]:
    """Return by role and group of rows how many there are, and how far off the model is."""
    lines: list[tuple[str, ...]] = []
    for role, group in sorted({(row.role, row.group) for row in rows}):
        errors = [row.relative_error(machine) for row in rows if (row.role, row.group) == (role, group)]
        lines.append((role, group, str(len(errors)), f"{fmean(map(abs, errors)):.1%}", f"{fmean(errors):+.1%}"))
    return lines


def _kernel(row: FitRow, machine: Machine) -> tuple[str | float, ...]:
    """Return a row of `kernel_times.csv`."""
    found = row.observed_s, row.predicted_s(machine), row.relative_error(machine)
    return row.role, row.group, row.subject, row.phase.value, row.algorithms, *found, row.origin
