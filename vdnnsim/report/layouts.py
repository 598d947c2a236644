"""Ranking of layouts over several GPUs: its table, findings and folder of files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.analysis.layouts import LayoutRanking, Setup
from vdnnsim.report import markdown
from vdnnsim.report.document import Code, Definitions, Document, Heading, Picture, plain_table, titled_table
from vdnnsim.report.folder import QUESTION, Writer, Written, with_manifest, write_folder
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import percent, rate_cells, rate_text
from vdnnsim.units import format_bytes, format_seconds

LAYOUTS: Final[Mapping[str, str]] = {
    "rank": "place in the order; empty where it does not fit or cannot be",
    "layout": "as `run --parallel` takes it",
    "checkpointing": "the fewest checkpoints that fit, as `run --checkpointing` takes them",
    "batch_size": "samples of one rank, or of those of tp together, in a pipeline of a micro-batch; each layout trains "
    "as many in a step of all GPUs",
    "micro_batches": "of a pipeline; 1 without",
    "iteration_s": "seconds of a step",
    "server_images_per_s": "samples per second of all GPUs",
    "tokens_per_s": "tokens per second of one GPU; empty for images",
    "flop_ratio": "model FLOPs utilization (MFU): FLOPs without recomputation over what the GPU can do at its peak in "
    "the type in which products are computed, tf32 where those of float32 are; empty where there is no such peak, or "
    "where convolutions by Winograd's method take fewer FLOPs than are counted",
    "kernel_s": "seconds of kernels on the compute stream",
    "communication_s": "seconds of collectives, in part beside kernels",
    "exposed_s": "seconds in which the compute stream waits for collectives",
    "bubble_s": "seconds in which the stages of a pipeline wait for each other, a mean of all ranks",
    "max_memory_bytes": "allocated: peak of the GPU memory in live buffers of a rank",
    "pool_bytes": "reserved: what the allocator takes from the device, gaps included",
    "runtime_bytes": "process: what nvidia-smi shows, with the context of CUDA",
    "memory_bytes": "of one GPU",
    "reason": "why it does not fit, or cannot be",
}
"""Columns of `layouts.csv` and their meanings."""

_, _PAGE, _TABLE, _PICTURE, _MEMORY_PICTURE = LAYOUT_FILES = (
    *("layouts.json", "layouts.md", "layouts.csv", "layouts.png"),
    "layouts_memory.png",
)
LAYOUTS_WRITER: Final = Writer.of("ranking of layouts", LAYOUT_FILES, "format_version", "layouts", "files")
FORMAT_VERSION: Final = 1
_MEMORY: Final = ("allocated", "reserved", "process")


def layout_rows(ranking: LayoutRanking) -> tuple[Row, ...]:
    rows: list[dict[str, Value]] = []
    memory_bytes = ranking.memory_bytes
    for rank, (each, rate) in enumerate(zip(ranking.ranked, ranking.rates, strict=True), start=1):
        rows.append(
            {
                "rank": rank,
                **_named(each.setup),
                "iteration_s": each.iteration_s,
                "server_images_per_s": each.samples_per_s,
                "tokens_per_s": rate if ranking.sample.tokens else "",
                "flop_ratio": "" if each.flop_ratio is None else each.flop_ratio,
                "kernel_s": each.kernels_s,
                "communication_s": each.communication_s,
                "exposed_s": each.exposed_s,
                "bubble_s": each.bubble_s,
                "max_memory_bytes": each.asked_bytes,
                "pool_bytes": each.reserved_bytes,
                "runtime_bytes": each.held_bytes,
                "memory_bytes": memory_bytes,
            }
        )
    rows += [{**_named(each.setup), "memory_bytes": memory_bytes, "reason": each.reason} for each in ranking.refused]
    return tuple(tuple(row.get(name, "") for name in LAYOUTS) for row in rows)


def _named(setup: Setup) -> dict[str, Value]:
    said: dict[str, Value] = {"layout": setup.layout, "checkpointing": setup.checkpointing}
    return said | {"batch_size": setup.batch_size, "micro_batches": setup.micro_batches}


def layouts_table(ranking: LayoutRanking, what: str, command: str, has_all: str) -> ResultTable:
    """Return a ranking of layouts of a model and its batch, `what`, as a table.

    A command runs the first of them; `has_all` says where columns are that do not fit a terminal.
    """
    rates = rate_cells(ranking.rates)
    has_bubble = any(each.bubble_s for each in ranking.ranked)
    waits = ("waits for collectives", *(["bubble"] if has_bubble else ()))
    header = ("layout", "checkpoints", "time", ranking.unit, "MFU", *waits, *_MEMORY)
    rows = [
        (
            each.setup.layout,
            each.setup.checkpointing,
            format_seconds(each.iteration_s),
            rate,
            "" if each.flop_ratio is None else percent(each.flop_ratio, 0),
            percent(each.exposed_s / each.iteration_s, 0),
            *([percent(each.bubble_s / each.iteration_s, 0)] if has_bubble else ()),
            *map(format_bytes, (each.asked_bytes, each.reserved_bytes, each.held_bytes)),
        )
        for each, rate in zip(ranking.ranked, rates, strict=True)
    ]
    table = plain_table(header, rows, has_all, _MEMORY[:2])
    refusals = (f"{each.setup.label}: {each.reason}" for each in ranking.refused)
    has_mfu = any(each.flop_ratio is not None for each in ranking.ranked)
    peak = (f"MFU is of the GPU's peak in {ranking.peak_type.value}.",) if has_mfu and ranking.peak_type else ()
    answer = titled_table(what, table if rows else None, (), (title(ranking), *peak, *refusals))
    shown = Document((*answer.blocks, *((Code(command),) if rows else ())))
    return ResultTable(tuple(LAYOUTS), layout_rows(ranking), shown)


def title(ranking: LayoutRanking) -> str:
    total = len(ranking.ranked) + len(ranking.refused)
    where = f"{ranking.gpus} GPUs of {ranking.machine}"
    if not ranking.ranked:
        return f"None of {total} layouts fits on {where}, of {format_bytes(ranking.memory_bytes)} each."
    first = ranking.ranked[0]
    waits = percent(first.exposed_s / first.iteration_s, 0)
    bubble = f", {percent(first.bubble_s / first.iteration_s, 0)} for other stages" if first.bubble_s else ""
    return (
        f"{len(ranking.ranked)} of {total} layouts fit on {where}: {first.setup.label} is the fastest, "
        f"{rate_text(ranking.sample, first.samples_per_s)} of all GPUs; {waits} of its step waits for "
        f"collectives{bubble}."
    )


def write_layouts(
    ranking: LayoutRanking, table: ResultTable, name: str, sources: tuple[tuple[str, str], ...], folder: Path
) -> Written:
    """Write the files of a ranking, replacing an earlier one; `sources` has name and SHA-256 of each input."""
    from vdnnsim.report.plots.layouts import draw_layouts, draw_memory

    assert isinstance(table.shown, Document)
    heading, where = table.shown.blocks[0], f"on {ranking.gpus} GPUs of {ranking.machine}"
    assert isinstance(heading, Heading)
    labels = [each.label for each in ranking.setups]
    said = {QUESTION: f"{heading.text}, {where}", "machine": ranking.machine, "layouts": labels}
    page = (
        Heading(f"{name} {where}", 1),
        Picture(title(ranking), _PICTURE),
        Picture("What a GPU holds at its peak in each layout that fits.", _MEMORY_PICTURE),
        *table.shown.blocks[1:],
        Heading(f"What do the columns of {_TABLE} mean?"),
        Definitions(tuple(LAYOUTS.items())),
    )
    contents: dict[str, str | bytes] = {
        _PAGE: markdown.page(page),
        _TABLE: table.to_csv(),
        _PICTURE: draw_layouts(ranking, heading.text),
        _MEMORY_PICTURE: draw_memory(ranking, heading.text),
    }
    files = with_manifest(LAYOUTS_WRITER, FORMAT_VERSION, sources, said, contents)
    return write_folder(folder, files, LAYOUTS_WRITER)
