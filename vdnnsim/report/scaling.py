"""The best layout of a model on several numbers of GPUs: its table, findings and folder of files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Row
from vdnnsim.analysis.layouts import LayoutRanking, gpu_rates, rate_unit
from vdnnsim.report import markdown
from vdnnsim.report.document import Definitions, Document, Heading, Picture, plain_table, titled_table
from vdnnsim.report.folder import QUESTION, Writer, Written, with_manifest, write_folder
from vdnnsim.report.layouts import LAYOUTS, layout_rows
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import percent, rate_cells
from vdnnsim.units import format_bytes, format_seconds

SCALING: Final[Mapping[str, str]] = {
    "gpus": "how many train together",
    "machine": "the server, or the hosts of a cluster",
    "efficiency_ratio": "throughput of a GPU over that on the fewest GPUs that hold the model",
    **{name: meaning for name, meaning in LAYOUTS.items() if name != "rank"},
}
"""Columns of `scaling.csv` and their meanings."""

_, _PAGE, _TABLE, _PICTURE = SCALING_FILES = ("scaling.json", "scaling.md", "scaling.csv", "scaling.png")
SCALING_WRITER: Final = Writer.of("throughput by number of GPUs", SCALING_FILES, "format_version", "gpus", "files")
_FORMAT_VERSION: Final = 1
_WAITS: Final = ("waits for collectives",)


def scaling_table(rankings: Sequence[LayoutRanking], what: str, has_all: str) -> ResultTable:
    """Return the first layout of each ranking, of a model and its batch, `what`."""
    header = "GPUs", "layout", "checkpoints", "time", rate_unit(rankings), "of the fewest", *_WAITS, "process"
    rates = gpu_rates(rankings)
    fewest = next(filter(None, rates), 1.0)
    shown, refused, cells = [], [], list[Row]()
    for ranking, rate, text in zip(rankings, rates, rate_cells(rates), strict=True):
        row, *_ = layout_rows(ranking)
        cells.append((ranking.gpus, ranking.machine, "" if rate is None else rate / fewest, *row[1:]))
        if rate is None:
            refused.append(f"{ranking.gpus} GPUs: {ranking.refused[0].setup.label}: {ranking.refused[0].reason}")
            continue
        best = ranking.ranked[0]
        shown.append(
            (
                str(ranking.gpus),
                best.setup.layout or "one GPU",
                best.setup.checkpointing,
                format_seconds(best.iteration_s),
                text,
                percent(rate / fewest, 0),
                percent(best.exposed_s / best.iteration_s, 0),
                format_bytes(best.held_bytes),
            )
        )
    table = plain_table(header, shown, has_all, ()) if shown else None
    return ResultTable(tuple(SCALING), tuple(cells), titled_table(what, table, (), (title(rankings), *refused)))


def title(rankings: Sequence[LayoutRanking]) -> str:
    """Return the throughput of a GPU on the fewest and the most that hold the model."""
    fitting = [each for each in rankings if each.ranked]
    if not fitting:
        return f"Nothing fits on up to {rankings[-1].gpus} GPUs of {rankings[-1].machine}."
    first, last = fitting[0], fitting[-1]
    rates = rate_cells(gpu_rates(fitting))
    kept = f", {rates[-1]} on {last.gpus}" if last is not first else "; it fits on no other number"
    return f"{rates[0]} {rate_unit(fitting)} on {first.gpus} of {last.machine}{kept}."


def write_scaling(
    rankings: Sequence[LayoutRanking], table: ResultTable, name: str, sources: tuple[tuple[str, str], ...], folder: Path
) -> Written:
    """Write the files, replacing earlier ones; `sources` has name and SHA-256 of each input."""
    from vdnnsim.report.plots.scaling import draw_scaling

    assert isinstance(table.shown, Document)
    heading = table.shown.blocks[0]
    assert isinstance(heading, Heading)
    gpus = [each.gpus for each in rankings]
    said = {QUESTION: heading.text, "gpus": gpus, "machines": list(dict.fromkeys(each.machine for each in rankings))}
    page = (
        Heading(f"{name} on {gpus[0]} to {gpus[-1]} GPUs", 1),
        Picture(title(rankings), _PICTURE),
        *table.shown.blocks[1:],
        Heading(f"What do the columns of {_TABLE} mean?"),
        Definitions(tuple(SCALING.items())),
    )
    contents: dict[str, str | bytes] = {
        _PAGE: markdown.page(page),
        _TABLE: table.to_csv(),
        _PICTURE: draw_scaling(rankings, title(rankings).removesuffix("."), heading.text),
    }
    return write_folder(folder, with_manifest(SCALING_WRITER, _FORMAT_VERSION, sources, said, contents), SCALING_WRITER)
