"""Layouts over several GPUs, ranked by throughput."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.captured_ranks import counted, sharded, staged
from tests.machines import shipped_profile
from vdnnsim.analysis.layouts import LayoutRanking, Refused, Setup
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.samples import IMAGE
from vdnnsim.errors import CaptureError
from vdnnsim.report.layouts import (
    SCALING,
    SCALING_WRITER,
    layouts_table,
    scaling_table,
    scaling_title,
    title,
    write_scaling,
)
from vdnnsim.report.plots.layouts import scaling_figure
from vdnnsim.report.plots.style import house_style
from vdnnsim.study import layouts
from vdnnsim.study.layouts import rank_layouts, scale_layouts
from vdnnsim.units import ElementType

SERVER = shipped_profile("h100_x8")
GIB = 2**30


def captured(setup: Setup, *, given_bytes: int = 8) -> tuple[CapturedStep]:
    """The step of two products, whose shards are so large."""
    step = msgspec.structs.replace(sharded(), parallel=setup.layout, ranks=8, batch_size=setup.batch_size)
    first = msgspec.structs.replace(step.storages[0], nbytes=given_bytes)
    return (msgspec.structs.replace(step, storages=(first, *step.storages[1:])),)


def test_micro_batches_of_each_gpu() -> None:
    """Four of 3 samples: 8 x 12 samples in a step of four times the FLOPs, which one captured micro-batch has.

    Where the last alone reduces, all four are captured together. A pipeline of two stages cuts 2 x 3 samples into six
    micro-batches, and has four times as many.
    """
    asked: list[Setup] = []

    def capture(setup: Setup) -> tuple[CapturedStep]:
        asked.append(setup)
        if "pp" in setup.layout:
            raise CaptureError("no blocks")
        (step,) = captured(setup)
        parts = setup.captured_together
        return (msgspec.structs.replace(step, micro_batches=parts, batch_size=parts * step.batch_size),)

    names = "fsdp=8", "ddp=8,sync=last", "pp=2,fsdp=4"
    (alone, *_), (four, *_) = (
        rank_layouts(8, names[:1], 3, SERVER, capture, micro_batches=each).ranked for each in (1, 4)
    )
    assert four.samples_per_s == pytest.approx(8 * 12 / four.iteration_s)
    assert alone.flop_ratio is not None
    assert four.flop_ratio == pytest.approx(4 * alone.flop_ratio * alone.iteration_s / four.iteration_s)
    asked.clear()
    rank_layouts(8, names, 3, SERVER, capture, micro_batches=4)
    assert [(each.batch_size, each.micro_batches, each.captured_together) for each in asked] == [
        (3, 4, 1),
        (3, 4, 4),
        (1, 24, 24),
    ]


def test_checkpoints_only_where_needed() -> None:
    """All kept takes 76 GiB, which are not sure to fit into 79, so the next layout begins with selective checkpoints.

    Eight GPUs train 8 x 3 samples in every layout. FSDP's shards of 11 GiB are 88 GiB where every rank holds all
    parameters, and twice as much are their gradients and DDP's buckets: that is not captured. Two ranks of split layers
    train 6 together.
    """
    asked: list[Setup] = []

    def capture(setup: Setup) -> tuple[CapturedStep]:
        asked.append(setup)
        if setup.layout == "hsdp=2x4":
            raise CaptureError("the model has no blocks")
        return captured(setup, given_bytes=(76 if setup.checkpointing == "none" else 11) * GIB)

    done: list[str] = []
    names = "fsdp=8", "ddp=8", "fsdp=4,tp=2", "hsdp=2x4"
    ranking = rank_layouts(8, names, 3, SERVER, capture, done.append)
    assert [(each.layout, each.checkpointing, each.batch_size) for each in asked] == [
        ("fsdp=8", "none", 3),
        ("fsdp=8", "selective", 3),
        ("fsdp=4,tp=2", "selective", 6),
        ("hsdp=2x4", "selective", 3),
    ]
    assert done == [*names]
    assert {each.setup.layout for each in ranking.ranked} == {"fsdp=8", "fsdp=4,tp=2"}
    for each in ranking.ranked:
        assert each.samples_per_s == pytest.approx(24 / each.iteration_s)
    held, reason = ranking.refused
    assert held == Refused(Setup("ddp=8", "none", 3), held.reason)
    assert "264 GiB" in held.reason
    assert reason.reason == "the model has no blocks"


def test_one_that_needs_more_checkpoints_leaves_the_next_its_own() -> None:
    """76 GiB do not fit: fsdp needs selective checkpoints, hsdp full ones, and zero2 is tried with selective ones."""
    too_much = {("fsdp=8", "none"), ("hsdp=2x4", "selective")}

    def capture(setup: Setup) -> tuple[CapturedStep]:
        return captured(setup, given_bytes=(76 if (setup.layout, setup.checkpointing) in too_much else 11) * GIB)

    ranking = rank_layouts(8, ("fsdp=8", "hsdp=2x4", "zero2=8"), 3, SERVER, capture)
    assert {each.setup.layout: each.setup.checkpointing for each in ranking.ranked} == {
        "fsdp=8": "selective",
        "hsdp=2x4": "full",
        "zero2=8": "selective",
    }


def test_one_that_holds_less_than_the_first_is_tried_with_fewer_checkpoints() -> None:
    """Of fsdp 76 GiB do not fit, of tp with selective checkpoints 8 do: 65 more, as of fsdp, are 73, so all is kept.

    Of zero2 11 and 65 GiB are 76, more than the 75 that are sure to fit: nothing else is tried.
    """
    gib = {"fsdp=8": (76, 11), "tp=8": (70, 8), "zero2=8": (70, 11)}
    asked: list[tuple[str, str]] = []

    def capture(setup: Setup) -> tuple[CapturedStep]:
        asked.append((setup.layout, setup.checkpointing))
        return captured(setup, given_bytes=gib[setup.layout][setup.checkpointing != "none"] * GIB)

    ranking = rank_layouts(8, tuple(gib), 3, SERVER, capture)
    assert asked[2:] == [("tp=8", "selective"), ("tp=8", "none"), ("zero2=8", "selective")]
    assert {each.setup.layout: each.setup.checkpointing for each in ranking.ranked} == {
        "fsdp=8": "selective",
        "tp=8": "none",
        "zero2=8": "selective",
    }


def test_shards_on_the_host_where_nothing_else_fits() -> None:
    """Or where they are asked for."""
    names = "fsdp=8", "fsdp=8,offload=cpu"
    fits: list[Setup] = []
    for given, all_of_them, tried in ((8, False, 1), (8, True, 2), (80 * GIB, False, 4)):

        def capture(setup: Setup, given: int = given) -> tuple[CapturedStep]:
            fits.append(setup)
            return captured(setup, given_bytes=8 if "offload" in setup.layout else given)

        fits.clear()
        ranking = rank_layouts(8, names, 1, SERVER, capture, tries_all=all_of_them)
        assert len(fits) == tried
        assert len(ranking.setups) == (1 if tried == 1 else 2)


def test_ranks_of_a_pipeline() -> None:
    """Two ranks train 2 x 6 samples, in six micro-batches of two, the most of at most eight that divide them.

    Of a step without FLOPs kernels take least, and each rank waits for the other.
    """
    asked: list[Setup] = []

    def capture(setup: Setup) -> tuple[CapturedStep, ...]:
        asked.append(setup)
        return staged()

    (found,) = rank_layouts(2, ("pp=2",), 6, SERVER, capture).ranked
    assert asked == [Setup("pp=2", "none", 2, 6)]
    assert found.setup.label == "pp=2, 6 micro-batches"
    assert found.samples_per_s == pytest.approx(12 / found.iteration_s)
    assert 0 < found.times.bubble_s < found.iteration_s
    ranking = LayoutRanking(IMAGE, "h100_x8", 2, 79 * GIB, (found,), ())
    assert "for other stages" in title(ranking)
    assert "bubble" in str(layouts_table(ranking, "m", "", ""))


def test_layout_that_fits_nowhere() -> None:
    """Three ways of checkpoints are tried; what the last would hold is said, also CUDA's 0.75 and NCCL's 0.22 GiB."""
    ranking = rank_layouts(8, ("fsdp=8",), 1, SERVER, lambda setup: captured(setup, given_bytes=80 * GIB))
    (refused,) = ranking.refused
    assert refused.setup.checkpointing == "full"
    assert "81.0 GiB of 79.0 GiB" in refused.reason
    assert title(ranking).startswith("fsdp=8 cannot run on 8 GPUs of ")
    assert layouts_table(ranking, "m", "", "").cells


def test_what_no_layout_changes_is_an_error() -> None:
    """Of two layouts or one; where another is answered, one is refused for its own reason."""

    def missing(_: Setup) -> tuple[CapturedStep]:
        raise CaptureError("net: inputs are missing")

    def missing_for_one(setup: Setup) -> tuple[CapturedStep]:
        return missing(setup) if setup.layout == "ddp=8" else captured(setup)

    for names in (("fsdp=8", "ddp=8"), ("fsdp=8",)):
        with pytest.raises(CaptureError, match="net: inputs are missing"):
            rank_layouts(8, names, 1, SERVER, missing)
    (refused,) = rank_layouts(8, ("fsdp=8", "ddp=8"), 1, SERVER, missing_for_one).refused
    assert refused.reason == "net: inputs are missing"


def test_what_every_rank_of_tp_computes_counts_once() -> None:
    """Eight ranks train 8 x 3 samples; each has an eighth of `fc1`, whose FLOPs are 80 for a sample, and all of `fc2`.

    Those of `fc2` are 10, as many as of that eighth. MFU is in proportion to throughput, also where `tp` is tried
    alone: then the model is captured on one GPU as well.
    """
    asked: list[str] = []

    def capture(setup: Setup) -> tuple[CapturedStep]:
        asked.append(setup.layout)
        (step,) = captured(setup)
        flop = {"fc1": 80 * setup.batch_size, "fc2": 10 * setup.batch_size}
        if setup.layout == "tp=8":
            flop["fc1"] //= 8
        return (counted(step, flop),)

    ranked = rank_layouts(8, ("fsdp=8", "tp=8"), 3, SERVER, capture).ranked
    shares = {each.setup.layout: each.repeated for each in ranked}
    assert shares == {"fsdp=8": {}, "tp=8": {"fc2": pytest.approx(0.5)}}
    ratios = [each.flop_ratio / each.samples_per_s for each in ranked if each.flop_ratio]
    assert ratios == [pytest.approx(ratios[0])] * 2
    asked.clear()
    (alone,) = rank_layouts(8, ("tp=8",), 3, SERVER, capture).ranked
    assert asked == ["tp=8", ""]
    assert alone == next(each for each in ranked if each.setup.layout == "tp=8")


def test_peak_of_float32_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step in float32 without convolutions has its products in float32; more FLOPs than its peak are not believed."""
    for flop, ratio in ((0, 0.0), (10**30, None)):
        monkeypatch.setattr(layouts, "flop_by_module", lambda *_, flop=flop: {"fc1": flop})
        ranking = rank_layouts(8, ("fsdp=8",), 1, SERVER, captured)
        assert ranking.peak_type is ElementType.FLOAT32
        assert ranking.ranked[0].flop_ratio == ratio


def test_throughput_by_number_of_gpus(tmp_path: Path) -> None:
    """16 GPUs on two hosts need selective checkpoints, so eight begin with these; one holds no 80 GiB.

    Each trains two samples. The first that fits, of two GPUs, is the measure for all.
    """
    asked: list[tuple[str, str]] = []

    def capture(setup: Setup) -> tuple[CapturedStep]:
        asked.append((setup.layout, setup.checkpointing))
        (step,) = captured(setup, given_bytes=80 * GIB if setup.layout in {"", "ddp=2"} else 8)
        kept = setup.checkpointing == "none"
        first = msgspec.structs.replace(step.storages[0], nbytes=80 * GIB) if kept else step.storages[0]
        ranks = 1 if not setup.layout else 16 if "x" in setup.layout else int(setup.layout.partition("=")[2])
        return (msgspec.structs.replace(step, storages=(first, *step.storages[1:]), ranks=ranks),)

    done: list[str] = []
    rankings = scale_layouts((1, 2, 16), 2, lambda _: SERVER, capture, done.append)
    assert [(each.gpus, bool(each.ranked)) for each in rankings] == [(1, False), (2, True), (16, True)]
    assert asked[:2] == [("fsdp=16", "none"), ("fsdp=16", "selective")]
    assert {how for name, how in asked[2:] if name not in {"ddp=2", ""}} == {"selective"}
    assert asked[-2:] == [("", "selective"), ("", "full")]
    assert set(done) == {"fsdp=16", "hsdp=2x8", "ddp=16", "fsdp=2", "ddp=2", ""}

    table = scaling_table(rankings, "m, 2 samples for each GPU", "")
    columns = list(SCALING)
    shares = [row[columns.index("efficiency_ratio")] for row in table.cells]
    first, last = rankings[1].ranked[0], rankings[2].ranked[0]
    assert shares == ["", 1.0, pytest.approx(last.samples_per_s / first.samples_per_s / 8)]
    assert "1 GPUs: one GPU, full checkpoints: would hold" in str(table.shown)
    written = write_scaling(rankings, table, "m", (), tmp_path)
    assert {Path(each).name for each in written.files} == set(SCALING_WRITER.files)
    with house_style():
        rates, memory = scaling_figure(rankings, "pace", "m").axes
    for axes in (rates, memory):
        assert np.asarray(axes.lines[0].get_xdata()).tolist() == [2, 16]
    alone = rankings[:1]
    assert scaling_title(alone).startswith("Nothing fits on up to 1 GPUs")
    assert not scaling_table(alone, "m", "").cells[0][columns.index("iteration_s")]
    written = write_scaling(alone, scaling_table(alone, "m", ""), "m", (), tmp_path)
    assert {Path(each).name for each in written.files} == {"scaling.json", "scaling.md", "scaling.csv"}
    assert "fits on no other number" in scaling_title(rankings[:2])
