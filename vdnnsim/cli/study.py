"""The command `sweep`, and help on studies and their keys."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.options import POLICY_MODULE, FilePath, NamedFile, out_option, policies_with, prints_table
from vdnnsim.cli.output import Output, check_file, print_result
from vdnnsim.errors import InputError, OutputError, StudyError
from vdnnsim.files.packaged import STUDIES

if TYPE_CHECKING:
    from vdnnsim.study.results import Progress
    from vdnnsim.study.store import Store
    from vdnnsim.study.study import Study
    from vdnnsim.study.sweep import Workers

# Click keeps the lines of a paragraph that begins with \b.
_VALUES: Final = """\b
What can be varied, the values of a scenario as they stand there:
  workload.network, workload.step (a file of a captured model),
  workload.batch_size, workload.tokens (of a sequence),
  workload.precision (or workload.element_type, its older name),
  workload.optimizer, workload.mode, hardware, gpus, gradients,
  memory_model, pinned_memory, execution
and figures of the machine, as in its profile:
  gpu.compute_speed         a factor: kernels take their time over it
  link.bandwidth            h2d and d2h at once, as 300 GB/s
  link.nvlink               joins all GPUs of a server, as 300 GB/s
"""

STUDY: Final = """\b
A study:
  schema_version: 1
  scenario: vgg416.yaml       # from this file; or a scenario as a mapping
  axes:                       # the grid; the last one varies fastest
    policy: [vdnn_conv(p), checkpoint, {policy: accumulate, steps: 2}]
    gpu.memory: [12 GiB, 24 GiB]
    link.bandwidth: {from: 16 GB/s, to: 512 GB/s, factor: 2}
                              # or step: 8 GB/s, or count: 5
  where: policy != checkpoint or gpu.memory >= 24 GiB
                              # optional: which points to compute, a condition
  pictures:                   # optional: DIR/speed.png, of columns of results
    - name: speed
      title: What a faster link buys
      kind: lines             # or heat_map with value, or pareto
      x: link.bandwidth_bytes_per_s
      y: performance_ratio
      by: policy              # also: panels, subtitle, x_label, y_label
      where: {gpu.memory_bytes: 12884901888}
                              # optional: what to draw, a mapping of columns
      marks: {PCIe gen4: 26 GB/s}
"""


class StudyCommand(click.Command):
    """A command whose help ends with the keys that can be varied."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        click.Command(None, epilog=keys_help()).format_epilog(ctx, formatter)


def keys_help() -> str:
    from vdnnsim.hardware.figures import FIGURES

    lines = [_VALUES]
    for figure in FIGURES:
        if figure.stated.decides:
            paths = [f"{figure.path}.{name}" for name in figure.names or ["NAME"]] if figure.below else [figure.path]
            lines += [f"  {path:<24}  {figure.stated.words}, as {figure.stated.range.example}\n" for path in paths]
    return "".join(lines)


_COLUMNS = ("done", "failed", "missing")
_RESULTS = "results.csv"


@click.command(cls=StudyCommand, epilog=STUDY)
@click.argument("study", type=NamedFile(STUDIES))
@out_option("reports/<study name>/")
@click.option("--status", is_flag=True, help="Say how many points are done, and compute nothing.")
@prints_table
@click.option("--parquet", metavar="FILE", type=FilePath(), help="Also write results to FILE as Parquet.")
@click.option("--workers", type=click.IntRange(1, 1024), metavar="N", help="Processes; by default one for each core.")
@click.option("--cluster", metavar="ADDRESS", help="Compute on a Dask cluster; the address of its scheduler.")
@click.option("--retry-failed", is_flag=True, help="Compute failed points again.")
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
    """Compute the grid of STUDY, and draw it; continue where it stopped.

    Printed is the fastest policy that fits for each choice of the other axes. DIR gets results.csv, with all points,
    and the pictures that STUDY asks for. Finished points are kept there, so that a study that is repeated, extended or
    killed continues where it stopped. Points that failed are rows that say why; then the exit status is 1.
    """
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.study.fastest import sweep_page
    from vdnnsim.study.folder import SWEEP_WRITER, file_names
    from vdnnsim.study.read import read_study
    from vdnnsim.study.results import check_parquet, results_table, study_rows
    from vdnnsim.study.store import reading, writing
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
        check_file(parquet)
        check_parquet()
    refuse_foreign(folder, file_names(asked), SWEEP_WRITER)
    with writing(folder) as kept:
        if retry_failed:
            kept.forget([row.resolved.key for row in study_rows(asked, kept) if row.error])
        fault = _compute(asked, kept, _workers(workers, cluster))
        undrawn = ""
        try:
            _write(asked, kept, folder, None if output.is_for_programs else output.csv_file, parquet)
        except OutputError:
            raise
        except InputError as failure:  # a picture that cannot be drawn of what came out
            undrawn = str(failure)
        progress = _progress(asked, kept)
        page = sweep_page(asked, kept, progress, f"{_RESULTS} has all")
        wrote = () if undrawn else (f"wrote {folder / _RESULTS}",)
        if output.is_for_programs:
            output.show(results_table(asked, kept, page), *wrote)
        else:
            print_result(page, *wrote)
    if undrawn:
        raise StudyError(f"{study}: {undrawn}")
    if progress.missing:
        why = fault or f"{folder} no longer has them"
        raise StudyError(f"{study}: {progress.missing} points are missing: {why}; the same command tries them again")
    if progress.failed:
        why = f"{progress.failed} points failed, the first: {progress.first_error}"
        raise StudyError(f"{study}: {why}; --retry-failed tries them again")


def _progress(study: "Study", store: "Store") -> "Progress":
    from vdnnsim.report.progress import StudyBar
    from vdnnsim.study.results import progress_of

    with StudyBar(study.grid_size, "looking up what is kept") as bar:
        return progress_of(study, store, bar.advance)


def _compute(study: "Study", store: "Store", workers: "Workers") -> str:
    """Return why points are missing; empty where none is."""
    from vdnnsim.report.progress import StudyBar
    from vdnnsim.study.sweep import sweep as compute

    before = _progress(study, store)
    if not before.missing:
        return ""
    try:
        with StudyBar(before.missing) as bar:
            return compute(study, store, workers, bar.advance)
    except KeyboardInterrupt:
        after = _progress(study, store)
        kept = after.done + after.failed
        raise StudyError(
            f"interrupted: kept {kept} of {kept + after.missing} points; the same command continues"
        ) from None


def _write(study: "Study", store: "Store", folder: Path, csv_file: Path | None, parquet: Path | None) -> None:
    from vdnnsim.files.atomic import replace_file
    from vdnnsim.study.folder import write_report
    from vdnnsim.study.results import results_csv, write_parquet

    if csv_file is not None:
        replace_file(csv_file, results_csv(study, store))
    if parquet is not None:
        write_parquet(parquet, study, store)
    write_report(study, store, folder)


def _workers(count: int | None, cluster: str | None) -> "Workers":
    from vdnnsim.study.cluster import cluster_workers
    from vdnnsim.study.sweep import local_workers

    return local_workers(count or os.cpu_count() or 1) if cluster is None else cluster_workers(cluster)


def _counts(progress: "Progress") -> tuple[int, int, int]:
    return progress.done, progress.failed, progress.missing
