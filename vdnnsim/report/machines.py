"""The files of a ranking of machines: its page, its table, its picture, and what they depend on."""

import json
import re
from pathlib import Path
from typing import Final

from vdnnsim.analysis.machines import Ranking
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report import markdown
from vdnnsim.report.caveats import glossary, remarks
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.findings import workload_text
from vdnnsim.report.folder import Writer, Written, write_folder
from vdnnsim.report.provenance import origin, source_commit
from vdnnsim.report.tables.machines import MACHINES, findings, machine_rows, marks, shown, title
from vdnnsim.scenario.scenario import Scenario

_MANIFEST, _PAGE, _TABLE, _PICTURE = "machines.json", "machines.md", "machines.csv", "machines.png"
MACHINE_FILES: Final = (_MANIFEST, _PAGE, _TABLE, _PICTURE)
"""None of which a run has, so that they lie beside its results."""
MACHINES_WRITER: Final = Writer(
    noun="ranking of machines",
    manifest=_MANIFEST,
    wrote=lambda content: {"format_version", "machines", "files"} <= content.keys(),
    names=re.compile("|".join(map(re.escape, MACHINE_FILES))),
)
FORMAT_VERSION: Final = 1
"""Of machines.json; raised when a key is renamed or removed."""


def question(scenario: Scenario) -> str:
    """Return what is asked of every machine, in one line."""
    workload = scenario.workload
    sample = sample_of(workload.graph)
    length = f" {sample.names}{sample.length}" if sample.length else ""
    each = f" each on {scenario.gpus} GPUs" if scenario.gpus > 1 else ""
    return (
        f"{workload_text(scenario)}{length}, {workload.precision.value}, {workload.mode.value}{each} "
        f"({scenario.memory_model.value} memory model)"
    )


def write_machines(scenario: Scenario, ranking: Ranking, sources: tuple[tuple[str, str], ...], folder: Path) -> Written:
    """Write the files of a ranking in the place of those of an earlier one.

    Args:
        scenario: the question.
        ranking: the answer.
        sources: name and SHA-256 of every file that was read.
        folder: where they go.

    Raises:
        OutputError: they cannot be written, or something else has one of their names.
    """
    # Matplotlib takes long to import.
    from vdnnsim.report.plots.machines import draw_machines

    rows = machine_rows(ranking)
    manifest = {
        "format_version": FORMAT_VERSION,
        **origin(source_commit(), sources),
        "scenario": scenario.name,
        "policies": list(ranking.policies),
        "machines": [row[list(MACHINES).index("machine")] for row in rows],
        "files": sorted(MACHINE_FILES),
    }
    files = {
        _MANIFEST: (json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(),
        _PAGE: _page(scenario, ranking).encode(),
        _TABLE: csv_text(tuple(MACHINES), rows).encode(),
        _PICTURE: draw_machines(ranking, workload_text(scenario), question(scenario)),
    }
    return write_folder(folder, files, MACHINES_WRITER)


def _page(scenario: Scenario, ranking: Ranking) -> str:
    header, rows = shown(ranking, scenario.workload, scenario.gpus)
    notes = [*remarks(scenario.workload), *glossary(ranking.policies, of_speed=False), *marks(ranking)]
    return markdown.page(
        (
            markdown.heading(f"Which machine for {scenario.name}?", 1),
            markdown.escape(f"{question(scenario)}; tried: {', '.join(ranking.policies)}."),
            markdown.escape(f"{title(ranking, workload_text(scenario))}."),
            markdown.image(title(ranking, workload_text(scenario)), _PICTURE),
            markdown.table(header, rows),
            markdown.bullets(notes),
            markdown.bullets(findings(ranking)),
            markdown.heading(f"What do the columns of {_TABLE} mean?"),
            markdown.definitions(MACHINES.items()),
        )
    )
