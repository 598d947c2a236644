"""Layouts over several GPUs, ranked, and the best by the number of GPUs: tables, findings and folders of files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.analysis.layouts import LayoutRanking, Setup, gpu_rates, rate_unit
from vdnnsim.files.messages import listed
from vdnnsim.report import markdown
from vdnnsim.report.document import Code, Document, Heading, plain_table, titled_table
from vdnnsim.report.findings import shared
from vdnnsim.report.folder import QUESTION, Writer, Written, write_folder
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import percent, rate_cells, rate_text
from vdnnsim.units import format_bytes, format_seconds

LAYOUTS: Final[Mapping[str, str]] = {
    "rank": "place in the order; empty where it does not fit or cannot be",
    "layout": "as `run --parallel` takes it",
    "checkpointing": "the fewest checkpoints that fit, as `run --checkpointing` takes them",
    "batch_size": "samples of one rank, or of those of tp together, in a micro-batch; each layout trains as many in a "
    "step of all GPUs",
    "micro_batches": "of a step: those of --accumulate, in a pipeline several for each of them",
    "iteration_s": "seconds of a step",
    "server_samples_per_s": "samples per second of all GPUs",
    "tokens_per_s": "tokens per second of one GPU; empty for images",
    "flop_ratio": "model FLOPs utilization (MFU): FLOPs of the model without recomputation, once where several ranks "
    "compute them, over what all GPUs can do at their peak in the type in which products are computed, tf32 for "
    "convolutions of float32; empty where there is no such peak, or where convolutions by Winograd's method take fewer "
    "FLOPs than are counted",
    "kernel_s": "seconds of kernels on the compute stream",
    "update_s": "seconds of what updates parameters, with offload=cpu the host: of all on each rank in ddp, of a shard "
    "elsewhere",
    "communication_s": "seconds of collectives, in part beside kernels",
    "gather_s": "seconds in which the compute stream waits for all-gathers, or broadcasts, of parameters",
    "reduce_s": "seconds in which it waits for other collectives",
    "exposed_s": "both together",
    "offload_s": "seconds in which it waits for copies between GPU and host, or for the update on the host",
    "bubble_s": "seconds in which the stages of a pipeline wait for each other, a mean of all ranks",
    "allocated_bytes": "allocated: peak of the GPU memory in live buffers of a rank",
    "reserved_bytes": "reserved: what the allocator takes from the device, gaps included",
    "process_bytes": "process: what nvidia-smi shows, with the context of CUDA",
    "memory_bytes": "of one GPU",
    "reason": "why it does not fit, or cannot be",
}
"""Columns of `layouts.csv` and their meanings."""

LAYOUTS_WRITER: Final = Writer.of(
    "ranking of layouts",
    ("layouts.json", "layouts.md", "layouts.csv", "layouts.png", "layouts_memory.png"),
    *("format_version", "layouts", "files"),
)
_TIMES: Final = ("update_s", "communication_s", "gather_s", "reduce_s", "exposed_s", "offload_s", "bubble_s")
_SHARES: Final[Mapping[str, str]] = {
    "compute": "kernels_s",
    "gather": "gather_s",
    "reduce": "reduce_s",
    "offload": "offload_s",
    "bubble": "bubble_s",
}
"""Columns of shares of a step, and times of a rank."""
_OF_SOME: Final = ("offload", "bubble")
"""Columns that are there where some layout has such a share."""
_WAITS: Final = (
    "Of the time, kernels compute; the rest they wait: for gathers or reductions of other ranks, for copies and the "
    "update of the host (offload), for other stages (bubble), and for the host to issue"
)
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
                "server_samples_per_s": each.samples_per_s,
                "tokens_per_s": rate if ranking.sample.tokens else "",
                "flop_ratio": "" if each.flop_ratio is None else each.flop_ratio,
                "kernel_s": each.times.kernels_s,
                **{name: getattr(each.times, name) for name in LAYOUTS if name in _TIMES},
                "allocated_bytes": each.asked_bytes,
                "reserved_bytes": each.reserved_bytes,
                "process_bytes": each.held_bytes,
                "memory_bytes": memory_bytes,
            }
        )
    rows += [{**_named(each.setup), "memory_bytes": memory_bytes, "reason": each.reason} for each in ranking.refused]
    return tuple(tuple(row.get(name, "") for name in LAYOUTS) for row in rows)


def _named(setup: Setup) -> dict[str, Value]:
    said: dict[str, Value] = {"layout": setup.layout, "checkpointing": setup.checkpointing}
    return said | {"batch_size": setup.batch_size, "micro_batches": setup.micro_batches}


def samples_text(samples: int, micro_batches: int) -> str:
    """Return the samples of a step in words."""
    parts = f"{micro_batches} micro-batches of " if micro_batches > 1 else ""
    return f"{parts}{samples} sample{'' if samples == 1 else 's'} for each GPU"


def layouts_table(ranking: LayoutRanking, what: str, command: str, has_all: str, server: str = "") -> ResultTable:
    """Return a ranking of layouts of a model and its batch, `what`, as a table.

    A command runs the first of them; `has_all` says where columns are that do not fit a terminal, `server` which was
    taken for a card.
    """
    rates = rate_cells(ranking.rates)
    shares = {
        title: [getattr(each.times, name) / each.iteration_s for each in ranking.ranked]
        for title, name in _SHARES.items()
    }
    shares = {title: found for title, found in shares.items() if title not in _OF_SOME or any(found)}
    header = ("layout", "checkpoints", "time", ranking.unit, "MFU", *shares, *_MEMORY)
    rows = [
        (
            each.setup.spread,
            each.setup.checkpointing,
            format_seconds(each.iteration_s),
            rate,
            "" if each.flop_ratio is None else percent(each.flop_ratio, 0),
            *(percent(found[at], 0) for found in shares.values()),
            *map(format_bytes, (each.asked_bytes, each.reserved_bytes, each.held_bytes)),
        )
        for at, (each, rate) in enumerate(zip(ranking.ranked, rates, strict=True))
    ]
    table = plain_table(header, rows, has_all, _MEMORY[:2])
    reasons = shared((each.reason, each.setup.label) for each in ranking.refused)
    refusals = (f"{'; '.join(labels)}: {reason}" for reason, labels in reasons.items())
    has_mfu = any(each.flop_ratio is not None for each in ranking.ranked)
    peak = (f"MFU is of the GPU's peak in {ranking.peak_type.value}.",) if has_mfu and ranking.peak_type else ()
    repeated = shared((_repeated(each.repeated), each.setup.layout) for each in ranking.ranked if each.repeated)
    whole = (f"{'; '.join(labels)}: {modules}" for modules, labels in repeated.items())
    answer = titled_table(
        what,
        table if rows else None,
        (_WAITS,) if rows else (),
        (title(ranking), *filter(None, (server,)), *peak, *whole, *refusals),
    )
    shown = Document((*answer.blocks, *((Code(command),) if rows else ())))
    return ResultTable(tuple(LAYOUTS), layout_rows(ranking), shown)


def _repeated(shares: Mapping[str, float]) -> str:
    modules = listed([f"{path or 'the model itself'} ({percent(share, 0)})" for path, share in shares.items()])
    return (
        f"each rank of tp computes {modules} whole, with so much of its FLOPs; the model's tp_plan, or usual names, "
        "would split it."
    )


def title(ranking: LayoutRanking) -> str:
    total = len(ranking.ranked) + len(ranking.refused)
    where = f"{ranking.gpus} GPUs of {ranking.machine}"
    if not ranking.ranked:
        which = f"None of {total} layouts fits" if total > 1 else f"{ranking.refused[0].setup.layout} cannot run"
        return f"{which} on {where}, of {format_bytes(ranking.memory_bytes)} each."
    first = ranking.ranked[0]
    times = first.times
    of = ((times.offload_s, "copies and the update of the host"), (times.bubble_s, "other stages"))
    waits = [f"{percent(times.exposed_s / times.step_s, 0)} of its step waits for collectives"]
    waits += [f"{percent(seconds / times.step_s, 0)} for {what}" for seconds, what in of if seconds]
    if len(ranking.ranked) > 1:
        fits = f"{len(ranking.ranked)} of {total} layouts fit on {where}: {first.setup.label} is the fastest, "
    elif total > 1:
        fits = f"1 of {total} layouts fits on {where}: {first.setup.label}, "
    else:
        fits = f"{first.setup.label} fits on {where}: "
    return f"{fits}{rate_text(ranking.sample, first.samples_per_s)} of all GPUs; {listed(waits)}."


def write_layouts(
    ranking: LayoutRanking, table: ResultTable, name: str, sources: tuple[tuple[str, str], ...], folder: Path
) -> Written:
    """Write the files of a ranking, replacing an earlier one; `sources` has name and SHA-256 of each input."""
    from vdnnsim.report.plots.layouts import draw_layouts, draw_memory

    what, where = _heading(table), f"on {ranking.gpus} GPUs of {ranking.machine}"
    labels = [each.label for each in ranking.setups]
    said = {QUESTION: f"{what}, {where}", "machine": ranking.machine, "layouts": labels}
    held = "What a GPU holds at its peak in each layout that fits."
    fits = bool(ranking.ranked)
    pictures = ((title(ranking), draw_layouts(ranking, what)), (held, draw_memory(ranking, what))) if fits else ()
    contents = markdown.table_files(LAYOUTS_WRITER.files, (Heading(f"{name} {where}", 1),), pictures, table, LAYOUTS)
    return write_folder(folder, LAYOUTS_WRITER.with_manifest(sources, said, contents), LAYOUTS_WRITER)


def _heading(table: ResultTable) -> str:
    assert isinstance(table.shown, Document)
    heading = table.shown.blocks[0]
    assert isinstance(heading, Heading)
    return heading.text


SCALING: Final[Mapping[str, str]] = {
    "gpus": "how many train together",
    "machine": "the server, or the hosts of a cluster",
    "efficiency_ratio": "throughput of a GPU over that on the fewest GPUs that hold the model",
    **{name: meaning for name, meaning in LAYOUTS.items() if name != "rank"},
}
"""Columns of `scaling.csv` and their meanings."""

SCALING_WRITER: Final = Writer.of(
    "throughput by number of GPUs",
    ("scaling.json", "scaling.md", "scaling.csv", "scaling.png"),
    *("format_version", "gpus", "files"),
)


def scaling_table(rankings: Sequence[LayoutRanking], what: str, has_all: str, server: str = "") -> ResultTable:
    """Return the first layout of each ranking, of a model and its batch, `what`; `server` is as of a ranking."""
    header = (
        "GPUs",
        "layout",
        "checkpoints",
        "time",
        rate_unit(rankings),
        "of the fewest",
        "waits for collectives",
        "process",
    )
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
                best.setup.spread,
                best.setup.checkpointing,
                format_seconds(best.iteration_s),
                text,
                percent(rate / fewest, 0),
                percent(best.times.exposed_s / best.iteration_s, 0),
                format_bytes(best.held_bytes),
            )
        )
    table = plain_table(header, shown, has_all, ()) if shown else None
    return ResultTable(
        tuple(SCALING),
        tuple(cells),
        titled_table(what, table, (), (scaling_title(rankings), *filter(None, (server,)), *refused)),
    )


def scaling_title(rankings: Sequence[LayoutRanking]) -> str:
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
    from vdnnsim.report.plots.layouts import draw_scaling

    what, gpus, found = _heading(table), [each.gpus for each in rankings], scaling_title(rankings)
    said = {QUESTION: what, "gpus": gpus, "machines": list(dict.fromkeys(each.machine for each in rankings))}
    heading = (Heading(f"{name} on {gpus[0]} to {gpus[-1]} GPUs", 1),)
    fits = any(each.ranked for each in rankings)
    pictures = ((found, draw_scaling(rankings, found.removesuffix("."), what)),) if fits else ()
    contents = markdown.table_files(SCALING_WRITER.files, heading, pictures, table, SCALING)
    return write_folder(folder, SCALING_WRITER.with_manifest(sources, said, contents), SCALING_WRITER)
