"""The folder of a run: its files computed first, then written together, whole or not at all."""

import re
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import RUN, result_rows
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.memory.choices import is_of_pytorch
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.folder import Writer, Written, write_folder
from vdnnsim.report.labels import file_names
from vdnnsim.report.run.manifest import run_manifest
from vdnnsim.report.run.page import page_text
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.report.run.snapshot import snapshot_pickle

MANIFEST: Final = "run.json"
ALWAYS: Final = (MANIFEST, "results.csv", "report.md", "report.html", "policies.png", "memory.png", "timeline.png")
"""What every run writes, whatever its policies are."""

RUN_WRITER: Final = Writer(
    noun="run",
    manifest=MANIFEST,
    wrote=lambda content: {"format_version", "scenario", "results", "files"} <= content.keys(),
    names=re.compile(
        "|".join(
            (*map(re.escape, ALWAYS), r"trace_[\w.]+\.json", r"snapshot_[\w.]+\.pickle", r"(gpus|links)_[\w.]+\.png")
        )
    ),
)


def write_report(result: ScenarioResult, folder: Path) -> Written:
    """Write tables, report, pictures and traces of a scenario in the place of those of an earlier run.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier run.
    """
    return write_folder(folder, report_files(result), RUN_WRITER)


def report_files(result: ScenarioResult) -> dict[str, bytes]:
    """Return the content of every file of a report by its name."""
    # Matplotlib takes longer to import than most scenarios to simulate.
    from vdnnsim.report.plots import draw_pictures
    from vdnnsim.report.run.browser import html_text

    pictures = draw_pictures(result)
    traces = trace_names(result.slowest)
    snapshots = snapshot_names(result)
    texts = {
        "results.csv": csv_text(RUN, result_rows(result)),
        "report.md": page_text(result, {each.name: each.description for each in pictures}, traces, snapshots),
        "report.html": html_text(result),
        **{name: perfetto_text(result, rows) for name, rows in zip(traces, result.by_policy, strict=True)},
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    files |= {name: snapshot_pickle(result, rows) for name, rows in zip(snapshots, result.by_policy, strict=False)}
    return files | {MANIFEST: run_manifest(result, (*files, MANIFEST))}


def trace_names(results: tuple[PolicyResult, ...]) -> tuple[str, ...]:
    """Return a file name for the trace of each policy: `trace_vdnn_all_m.json`."""
    return file_names("trace", [each.policy for each in results], ".json")


def snapshot_names(result: ScenarioResult) -> tuple[str, ...]:
    """Return a file name for the memory snapshot of each policy; none but under PyTorch's allocator."""
    if not is_of_pytorch(result.memory_model):
        return ()
    return file_names("snapshot", [each.policy for each in result.slowest], ".pickle")
