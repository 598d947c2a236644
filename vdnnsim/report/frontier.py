"""The files of a frontier: its page, its table, its picture, and the manifest that says what they depend on."""

from pathlib import Path
from typing import Any, Final

from vdnnsim.analysis.frontier import Frontier
from vdnnsim.report import markdown
from vdnnsim.report.caveats import capture_lines, kernel_times
from vdnnsim.report.csv_file import csv_text
from vdnnsim.report.document import Bullets, Definitions, Heading, Note, Picture, Prose, plain_table, section
from vdnnsim.report.findings import caption
from vdnnsim.report.folder import Writer, write_folder
from vdnnsim.report.provenance import manifest
from vdnnsim.report.tables.frontier import FRONTIER, SHOWN, findings, frontier_rows, headline, shown_rows
from vdnnsim.scenario.scenario import Scenario

FORMAT_VERSION: Final = 1
"""Of `frontier.json`; raised when a key is renamed or removed."""

MANIFEST, PAGE, TABLE, PICTURE = FILES = ("frontier.json", "frontier.md", "frontier.csv", "frontier.png")
FRONTIER_WRITER: Final = Writer.of("frontier", FILES, "format_version", "scenario", "frontier")


def write_frontier(scenario: Scenario, frontier: Frontier, folder: Path) -> tuple[Path, ...]:
    """Write page, table, picture and manifest in the place of those of an earlier frontier.

    Raises:
        OutputError: the folder or a file in it cannot be written, or is not from an earlier one.
    """
    # Matplotlib takes longer to import than many a frontier to compute.
    from vdnnsim.report.plots.frontier import draw_frontier

    files = {
        MANIFEST: manifest(FORMAT_VERSION, scenario.sources, _said(scenario, frontier), FILES),
        PAGE: _page_text(scenario, frontier).encode(),
        TABLE: csv_text(tuple(FRONTIER), tuple(frontier_rows(frontier))).encode(),
        PICTURE: draw_frontier(scenario, frontier),
    }
    return write_folder(folder, files, FRONTIER_WRITER).files


def _page_text(scenario: Scenario, frontier: Frontier) -> str:
    notes = (*kernel_times(frontier.kernels), *capture_lines(scenario.captured))
    return markdown.page(
        (
            Heading(f"{scenario.name}: time of an iteration by memory", 1),
            Prose(f"{caption(scenario)}."),
            Bullets(findings(scenario, frontier)),
            Picture(headline(scenario, frontier), PICTURE),
            plain_table(SHOWN, shown_rows(frontier), left=0),
            *(Note(f"{note}.") for note in notes),
            Heading(f"What do the columns of {TABLE} mean?"),
            Definitions(tuple(FRONTIER.items())),
            *section(
                "Where do the numbers come from?",
                (
                    "times are simulated; between two capacities the picture joins them",
                    f"{MANIFEST}: versions, inputs with their hashes, every number",
                    *(f"input {name}, SHA-256 {sha256}" for name, sha256 in scenario.sources),
                ),
            ),
        )
    )


def _said(scenario: Scenario, frontier: Frontier) -> dict[str, Any]:
    workload = scenario.workload
    return {
        # Nothing is drawn by chance.
        "seed": None,
        "scenario": {
            "name": scenario.name,
            "network": workload.graph.name,
            "batch_size": workload.batch_size,
            "precision": workload.precision.value,
            "optimizer": workload.optimizer.value,
            "mode": workload.mode.value,
            "hardware": scenario.server.name,
            "memory_bytes": scenario.server.gpu.memory_bytes,
            "memory_model": scenario.memory_model.value,
            "gpus": scenario.gpus,
        },
        "kernel_times": {found.value: count for found, count in frontier.kernels.counts.items()},
        "frontier": [
            {name: None if value == "" else value for name, value in zip(FRONTIER, row, strict=True)}
            for row in frontier_rows(frontier)
        ],
        "declined": {each.policy: each.reason for each in frontier.declined},
    }
