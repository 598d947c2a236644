"""The command `sweep`."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import POLICY_MODULE, FilePath, NamedFile, policies_with, prints_table
from vdnnsim.cli.output import Output, check_file, print_result
from vdnnsim.cli.study_help import STUDY, StudyCommand
from vdnnsim.errors import InputError, OutputError, StudyError
from vdnnsim.files.packaged import STUDIES

if TYPE_CHECKING:
    from vdnnsim.study.results.rows import Progress
    from vdnnsim.study.results.store import Store
    from vdnnsim.study.study import Study
    from vdnnsim.study.workers.chunk import Workers

_COLUMNS = ("done", "failed", "missing")
_RESULTS = "results.csv"


@click.command(cls=StudyCommand, epilog=STUDY)
@click.argument("study", type=NamedFile(STUDIES))
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to keep results; by default reports/<study name>/.")
@click.option("--status", is_flag=True, help="Say how many points are done, and compute nothing.")
@prints_table
@click.option("--parquet", metavar="FILE", type=FilePath(), help="Also write results to FILE as Parquet.")
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Processes; by default one for each core.")
@click.option("--cluster", metavar="ADDRESS", help="Compute on the Dask cluster whose scheduler listens there.")
@click.option("--retry-failed", is_flag=True, help="Compute points anew that failed.")
@click.option("--yes", is_flag=True, help="Compute a grid of more than a million points.")
@POLICY_MODULE
def sweep(  # noqa: PLR0913  # one for each option
    study: Path,
    *,
    out: Path | None,
    status: bool,
    output: Output,
    parquet: Path | None,
    workers: int | None,
    cluster: str | None,
    retry_failed: bool,
    yes: bool,
    policy_modules: Sequence[str],
) -> None:
    """Compute the grid of STUDY, and draw it; goes on where it was.

    DIR has results.csv and the pictures that STUDY asks for. What was computed is kept there, so a study that is
    repeated, extended or killed goes on where it was. Points that failed are rows that say why, and exit with 1.
    """
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.study.file.read import read_study
    from vdnnsim.study.results.report import SWEEP_WRITER, file_names
    from vdnnsim.study.results.rows import study_rows
    from vdnnsim.study.results.store import reading, writing
    from vdnnsim.study.study import MOST_POINTS

    asked = read_study(study, policies_with(policy_modules))
    if asked.grid_size > MOST_POINTS and not yes:
        raise StudyError(f"{study}: axes: found a grid of {asked.grid_size} points; --yes computes more than a million")
    folder = Path("reports") / asked.name if out is None else out
    if status:
        with reading(folder) as store:
            output.show_list(_COLUMNS, [_counts(_progress(asked, store))])
        return
    if parquet is not None:
        _check(parquet)
    refuse_foreign(folder, file_names(asked), SWEEP_WRITER)
    with writing(folder) as kept:
        if retry_failed:
            kept.forget([row.resolved.key for row in study_rows(asked, kept) if row.error])
        fault = _compute(asked, kept, _workers(workers, cluster))
        try:
            _write(asked, kept, folder, None if output.is_for_programs else output.csv_file, parquet)
        except OutputError:
            raise
        except InputError as failure:  # a picture that cannot be drawn of what came out
            raise StudyError(f"{study}: {failure}") from None
        progress = _progress(asked, kept)
        _show(asked, kept, progress, output, f"wrote {folder / _RESULTS}")
    if progress.missing:
        why = fault or f"{folder} no longer has them"
        raise StudyError(f"{study}: {progress.missing} points are missing: {why}; the same command tries them again")
    if progress.failed:
        why = f"{progress.failed} points failed, the first: {progress.first_error}"
        raise StudyError(f"{study}: {why}; --retry-failed tries them again")


def _progress(study: "Study", store: "Store") -> "Progress":
    from vdnnsim.cli.progress import LookingBar
    from vdnnsim.study.results.rows import progress_of

    with LookingBar(study.grid_size) as bar:
        return progress_of(study, store, bar.advance)


def _compute(study: "Study", store: "Store", workers: "Workers") -> str:
    """Return why a point is still missing; empty where none is."""
    from vdnnsim.cli.progress import StudyBar
    from vdnnsim.study.sweep import sweep as compute

    before = _progress(study, store)
    if not before.missing:
        return ""
    try:
        with StudyBar(before.missing) as bar:
            return compute(study, store, workers, bar.advance)
    except KeyboardInterrupt:
        raise _interrupted(before, bar.finished) from None


def _write(study: "Study", store: "Store", folder: Path, csv_file: Path | None, parquet: Path | None) -> None:
    from vdnnsim.files.atomic import replace_file
    from vdnnsim.report.folder import write_folder
    from vdnnsim.study.results.export import results_csv, write_parquet
    from vdnnsim.study.results.report import SWEEP_WRITER, report_files

    if csv_file is not None:
        replace_file(csv_file, results_csv(study, store))
    if parquet is not None:
        write_parquet(parquet, study, store)
    write_folder(folder, report_files(study, store), SWEEP_WRITER)


def _interrupted(before: "Progress", finished: int) -> StudyError:
    kept = before.done + before.failed + finished
    points = before.done + before.failed + before.missing
    return StudyError(f"interrupted: kept {kept} of {points} points; the same command goes on")


def _check(parquet: Path) -> None:
    from vdnnsim.study.results.export import check_parquet

    check_file(parquet)
    check_parquet()


def _workers(count: int | None, cluster: str | None) -> "Workers":
    from vdnnsim.study.workers.cluster import cluster_workers
    from vdnnsim.study.workers.local import local_workers

    if cluster is not None:
        return cluster_workers(cluster)
    return local_workers(count or os.cpu_count() or 1)


def _show(study: "Study", store: "Store", progress: "Progress", output: Output, talk: str) -> None:
    """Print how far the study is; for programs, its results."""
    from vdnnsim.report.document import plain_table
    from vdnnsim.study.results.rows import results_table

    counts = plain_table(_COLUMNS, [[str(count) for count in _counts(progress)]], f"{_RESULTS} has all")
    if output.is_for_programs:
        output.show(results_table(study, store, counts), talk)
    else:
        print_result(counts, talk)


def _counts(progress: "Progress") -> tuple[int, int, int]:
    return progress.done, progress.failed, progress.missing
