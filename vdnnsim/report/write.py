"""The folder of a run: its files computed first, then written together, whole or not at all."""

from dataclasses import dataclass
from pathlib import Path

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.replace import replace_files
from vdnnsim.report.columns import column_names, result_rows
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.earlier_run import MANIFEST, earlier_files, refuse_foreign, remove_outdated
from vdnnsim.report.labels import file_names
from vdnnsim.report.manifest import manifest_text
from vdnnsim.report.markdown import markdown_text
from vdnnsim.report.perfetto import perfetto_text
from vdnnsim.report.provenance import source_commit


@dataclass(frozen=True, slots=True)
class Written:
    """What became of a folder.

    Attributes:
        files: the paths of what was written.
        nbytes: of all of them.
        removed: how many files of an earlier run are no longer there.
    """

    files: tuple[Path, ...]
    nbytes: int
    removed: int


def write_report(result: ScenarioResult, folder: Path) -> Written:
    """Write tables, report, pictures and traces of a scenario in the place of those of an earlier run.

    Whatever else is in the folder stays there.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier run.
    """
    files = report_files(result)
    refuse_foreign(folder, files)
    outdated = earlier_files(folder) - files.keys()
    # First what says whose the others are: should the writing end between two of them, the next run knows them.
    paths = replace_files(folder, {MANIFEST: files[MANIFEST]} | files)
    nbytes = sum(len(content) for content in files.values())
    return Written(paths, nbytes, remove_outdated(folder, sorted(outdated)))


def report_files(result: ScenarioResult) -> dict[str, bytes]:
    """Return the content of every file of a report by its name."""
    # Matplotlib takes longer to import than most scenarios to simulate.
    from vdnnsim.report.plots import draw_pictures

    pictures = draw_pictures(result)
    traces = trace_names(result.slowest)
    texts = {
        "results.csv": csv_text(column_names(), result_rows(result)),
        "report.md": markdown_text(result, {each.name: each.description for each in pictures}, traces),
        **{name: perfetto_text(result, rows) for name, rows in zip(traces, result.by_policy, strict=True)},
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    manifest = manifest_text(result, source_commit(), (*files, MANIFEST))
    return files | {MANIFEST: manifest.encode()}


def trace_names(results: tuple[PolicyResult, ...]) -> tuple[str, ...]:
    """Return a file name for the trace of each policy: `trace_vdnn_all_m.json`."""
    return file_names("trace", [each.policy for each in results], ".json")
