"""The files of a ranking of machines: its page, its table, its picture, and what they depend on."""

from pathlib import Path
from typing import Final

from vdnnsim.analysis.machines import Ranking
from vdnnsim.dnn.samples import sample_of
from vdnnsim.report import markdown
from vdnnsim.report.caveats import glossary, remarks
from vdnnsim.report.document import Definitions, Document, Heading, Picture, Prose, plain_table, titled_table
from vdnnsim.report.findings import workload_text
from vdnnsim.report.folder import Writer, Written, write_folder
from vdnnsim.report.provenance import manifest
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.tables.machines import LEFT_OUT_FIRST, MACHINES, findings, machine_rows, marks, shown, title
from vdnnsim.scenario.scenario import Scenario

_MANIFEST, _PAGE, _TABLE, _PICTURE = "machines.json", "machines.md", "machines.csv", "machines.png"
MACHINE_FILES: Final = (_MANIFEST, _PAGE, _TABLE, _PICTURE)
"""None of which a run has, so that they lie beside its results."""
MACHINES_WRITER: Final = Writer.of("ranking of machines", MACHINE_FILES, "format_version", "machines", "files")
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


def machines_table(scenario: Scenario, ranking: Ranking, has_all: str) -> ResultTable:
    """Return a ranking as a table, which says where all columns are that it has no room for."""
    header, rows = shown(ranking, scenario.workload, scenario.gpus)
    table = plain_table(header, rows, has_all, LEFT_OUT_FIRST)
    said = (f"{title(ranking, workload_text(scenario))}.", *findings(ranking))
    notes = [*remarks(scenario.workload), *glossary(ranking.policies, of_speed=False), *marks(ranking)]
    return ResultTable(tuple(MACHINES), machine_rows(ranking), titled_table(question(scenario), table, notes, said))


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

    named = [row[list(MACHINES).index("machine")] for row in machine_rows(ranking)]
    said = {"scenario": scenario.name, "policies": list(ranking.policies), "machines": named}
    table, titled = machines_table(scenario, ranking, ""), title(ranking, workload_text(scenario))
    assert isinstance(table.shown, Document), "as it was made"
    page = (
        Heading(f"Which machine for {scenario.name}?", 1),
        Prose(f"{question(scenario)}; tried: {', '.join(ranking.policies)}."),
        Picture(titled, _PICTURE),
        *table.shown.blocks[1:],
        Heading(f"What do the columns of {_TABLE} mean?"),
        Definitions(tuple(MACHINES.items())),
    )
    files = {
        _MANIFEST: manifest(FORMAT_VERSION, sources, said, MACHINE_FILES),
        _PAGE: markdown.page(page).encode(),
        _TABLE: table.to_csv().encode(),
        _PICTURE: draw_machines(ranking, workload_text(scenario), question(scenario)),
    }
    return write_folder(folder, files, MACHINES_WRITER)
