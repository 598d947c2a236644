"""The folder of a run: its files computed first, then written together, whole or not at all.

A folder is that of one run. Only what an earlier run wrote there, by the word of its `run.json`, is replaced or
removed; whatever else is there comes from somebody else.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import RUN, result_rows
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.errors import OutputError
from vdnnsim.memory.choices import is_of_pytorch
from vdnnsim.replace import replace_files
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.earlier import named_files, refuse_others
from vdnnsim.report.labels import file_names
from vdnnsim.report.provenance import source_commit
from vdnnsim.report.run.manifest import manifest_text
from vdnnsim.report.run.page import page_text
from vdnnsim.report.run.perfetto import BEGINNING, perfetto_text
from vdnnsim.report.run.snapshot import snapshot_pickle

MANIFEST: Final = "run.json"
ALWAYS: Final = (MANIFEST, "results.csv", "report.md", "policies.png", "memory.png", "timeline.png")
"""What every run writes, whatever its policies are."""

_OF_POLICIES: Final = re.compile(r"trace_[\w.]+\.json|snapshot_[\w.]+\.pickle|(gpus|links)_[\w.]+\.png")
"""Names that a run gives to its other files; a manifest that names yet others is not believed."""


def earlier_files(folder: Path) -> frozenset[str]:
    """Return the names of the files that an earlier run wrote into a folder; none where there was none."""
    # A sweep writes a file of this name as well, but it has no scenario.
    named = named_files(folder / MANIFEST, frozenset(("format_version", "scenario", "results")))
    return frozenset(name for name in named if name in ALWAYS or _OF_POLICIES.fullmatch(name))


def refuse_foreign(folder: Path, names: Iterable[str]) -> None:
    """Refuse to write over what no earlier run wrote.

    Raises:
        OutputError: a file of one of these names is there, and no earlier run says that it is its own; nor is it a
            trace that a run before that has left, as those of older versions did.
    """
    ours = earlier_files(folder)
    refuse_others(folder, (name for name in names if not (ours and _is_trace(folder / name))), ours)


def _is_trace(path: Path) -> bool:
    beginning = BEGINNING.encode()
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(beginning)) == beginning
    except OSError:
        return False


def remove_outdated(folder: Path, names: Iterable[str]) -> int:
    """Remove files of an earlier run; return how many.

    Raises:
        OutputError: one of them cannot be removed.
    """
    removed = 0
    for name in names:
        path = folder / name
        try:
            if path.is_file() or path.is_symlink():
                path.unlink()
                removed += 1
        except OSError as failure:
            raise OutputError(f"{path}: cannot be removed: {failure.strerror or failure}") from failure
    return removed


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
    snapshots = snapshot_names(result)
    texts = {
        "results.csv": csv_text(RUN, result_rows(result)),
        "report.md": page_text(result, {each.name: each.description for each in pictures}, traces, snapshots),
        **{name: perfetto_text(result, rows) for name, rows in zip(traces, result.by_policy, strict=True)},
    }
    files = {name: text.encode() for name, text in texts.items()} | {each.name: each.png for each in pictures}
    files |= {name: snapshot_pickle(result, rows) for name, rows in zip(snapshots, result.by_policy, strict=False)}
    manifest = manifest_text(result, source_commit(), (*files, MANIFEST))
    return files | {MANIFEST: manifest.encode()}


def trace_names(results: tuple[PolicyResult, ...]) -> tuple[str, ...]:
    """Return a file name for the trace of each policy: `trace_vdnn_all_m.json`."""
    return file_names("trace", [each.policy for each in results], ".json")


def snapshot_names(result: ScenarioResult) -> tuple[str, ...]:
    """Return a file name for the memory snapshot of each policy; none but under PyTorch's allocator."""
    if not is_of_pytorch(result.memory_model):
        return ()
    return file_names("snapshot", [each.policy for each in result.slowest], ".pickle")
