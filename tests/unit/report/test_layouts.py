"""Reports of layouts of a model over several GPUs."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

from vdnnsim.analysis.layouts import LayoutRanking, Ranked, Refused, Setup
from vdnnsim.analysis.rank_times import Awaited, RankTimes
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.step import BufferKind
from vdnnsim.report.document import Document, Table
from vdnnsim.report.layouts import (
    LAYOUTS,
    layout_rows,
    layouts_table,
    title,
    write_layouts,
)
from vdnnsim.report.plots.layouts import layouts_figure, memory_figure
from vdnnsim.report.plots.style import house_style
from vdnnsim.units import GIB


def ranked(name: str, iteration_s: float, waits_s: float) -> Ranked:
    sizes = 30 * GIB, 31 * GIB, 32 * GIB
    kinds = (BufferKind.WEIGHTS, 10 * GIB), (BufferKind.FEATURE_MAP, 20 * GIB)
    waits: dict[Awaited, float] = {
        CollectiveKind.ALL_GATHER: waits_s / 4,
        CollectiveKind.REDUCE_SCATTER: waits_s * 3 / 4,
    }
    times = RankTimes(iteration_s, 1.0, 0.125, 0.5, waits)
    numbers = times, 16 / iteration_s, 0.4
    return Ranked(Setup(name, "selective", 2), *numbers, *sizes, peak_by_kind=kinds)


def test_report_of_layouts(tmp_path: Path) -> None:
    """16 sequences of 1,000 tokens in 2 s are 8,000 tokens/s, 1,000 on each of eight GPUs; a quarter is waited."""
    rows = ranked("fsdp=8", 2.0, 0.5), replace(ranked("zero2=8", 4.0, 2.0), repeated={"head": 0.3})
    refused = tuple(Refused(Setup(name, "none", 2), "takes too much") for name in ("ddp=8", "zero1=8"))
    ranking = LayoutRanking(Sample("sequence", "token", 1000), "h100_x8", 8, 79 * GIB, rows, refused)
    assert rows[0].times.other_s == pytest.approx(0.5)
    assert ranking.rates == pytest.approx((1000.0, 500.0))
    columns = list(LAYOUTS)
    first, _, _, last = layout_rows(ranking)
    assert first[columns.index("tokens_per_s")] == pytest.approx(1000)
    assert first[columns.index("update_s")] == pytest.approx(0.125)
    assert [first[columns.index(f"{each}_s")] for each in ("gather", "reduce", "exposed")] == [0.125, 0.375, 0.5]
    assert last[columns.index("reason")] == "takes too much"
    assert "2 of 4 layouts" in title(ranking)
    assert "25 %" in title(ranking)
    table = layouts_table(ranking, "llama", "vdnnsim run", "")
    assert isinstance(table.shown, Document)
    shown = next(each for each in table.shown.blocks if isinstance(each, Table))
    # Of 2 s the kernels take half, of 4 s a quarter; nothing waits for the host or another stage.
    assert [(each.title, *each.cells) for each in shown.columns[5:8]] == [
        ("compute", "50 %", "25 %"),
        ("gather", "6 %", "12 %"),
        ("reduce", "19 %", "38 %"),
    ]
    assert shown.columns[8].title == "allocated"
    written = write_layouts(ranking, table, "llama", (), tmp_path)
    page = (tmp_path / "layouts.md").read_text(encoding="utf-8")
    assert len(written.files) == 5
    assert "vdnnsim run" in page
    assert "ddp=8; zero1=8: takes too much" in page
    assert "zero2=8: each rank of tp computes head (30 %) whole" in page
    with house_style():
        (axes,) = layouts_figure(ranking, "llama").axes
    with house_style():
        (memory,) = memory_figure(ranking, "llama").axes
    held = [patch.get_width() for patch in memory.patches if isinstance(patch, Rectangle)]
    # Weights, activations, gaps and the context, 1 GiB each of the last two.
    assert sorted(held) == pytest.approx([1] * 4 + [10] * 2 + [20] * 2)
    # 10 MiB of 30 GiB are drawn and could not be seen.
    assert [each.get_text() for each in memory.figure.legends[0].get_texts()][-1] == "CUDA and NCCL"
    with house_style():
        narrow = tuple(replace(each, held_bytes=each.reserved_bytes + GIB // 100) for each in rows)
        hidden = memory_figure(replace(ranking, ranked=narrow), "llama")
    assert [each.get_text() for each in hidden.legends[0].get_texts()][-1] == "gaps of the allocator"
    # Of 32 GiB at most, 79 are shown, and 500 named alone.
    with house_style():
        (far,) = memory_figure(replace(ranking, memory_bytes=500 * GIB), "llama").axes
    assert [each.get_text() for each in far.texts][-1] == "capacity 500 GiB \N{RIGHTWARDS ARROW}"
    assert (len(far.lines), len(memory.lines)) == (0, 1)
    # Kernels, waits and the rest of both.
    widths = [patch.get_width() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert sorted(widths) == pytest.approx([0.5, 0.5, 1, 1, 1, 2])


def test_images_have_no_tokens() -> None:
    """Their rate is that of all GPUs."""
    ranking = LayoutRanking(IMAGE, "h100_x8", 8, 79 * GIB, (ranked("ddp=8", 2.0, 0.0),), ())
    assert ranking.rates == (8.0,)
    assert ranking.unit == "images/s of all GPUs"
