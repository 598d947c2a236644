"""The page of the report on what others measured."""

from collections import Counter
from collections.abc import Mapping, Sequence

from vdnnsim.claims.claim import Verdict
from vdnnsim.claims.public2026.measurements import ONE_PEAK_IN, ONE_TIME_IN, SERIES
from vdnnsim.claims.public2026.pictures import kind_of
from vdnnsim.claims.public2026.scoreboard import (
    AnyHeld,
    BatchRow,
    Errors,
    OperatorRow,
    Scoreboard,
    TimeRow,
    errors_of,
    faketensor_errors,
)
from vdnnsim.claims.row import ClaimRow
from vdnnsim.report import markdown
from vdnnsim.report.chart import Picture
from vdnnsim.report.scale import percent
from vdnnsim.units import format_seconds

_NONE = "-"


def page_text(rows: Sequence[ClaimRow], board: Scoreboard, pictures: Sequence[Picture]) -> str:
    """Return the page as Markdown.

    Args:
        rows: the checked aims.
        board: all rows.
        pictures: what is shown.
    """
    shown = {each.name: markdown.image(each.description, each.name) for each in pictures}
    parts = [
        "# What others measured on GPUs, held against the replay",
        _introduction(board, rows),
        "## Step times",
        *_picture(shown, "step_times.png"),
        _times_table(board.step_times),
        "## Kinds of operators",
        *_picture(shown, "operators.png"),
        _operators_table(board.operator_times),
        "## What fits, and what it takes",
        _BATCHES,
        _batches_table(board.largest_batches),
        *_picture(shown, "peak_memory.png"),
        _memory_table(board),
        "## What falls short, and why",
        _FALLS_SHORT,
        "## What is assumed",
        _ASSUMED,
        "## Sources",
        markdown.bullets(
            ", ".join(filter(None, (each.title, each.framework))) + f": {each.source}" for each in SERIES.values()
        ),
        *markdown.section("Left out, and why", _left_out(board)),
    ]
    return markdown.page(parts)


def _picture(shown: Mapping[str, markdown.Ready], name: str) -> tuple[markdown.Ready, ...]:
    """Return a picture; nothing where there are no rows for it."""
    return (shown[name],) if name in shown else ()


def _introduction(board: Scoreboard, rows: Sequence[ClaimRow]) -> str:
    met = sum(row.verdict is Verdict.REPRODUCED for row in rows)
    networks = {each.setup.network for each in board.times} | {each.setup.network for each in board.memory}
    everything: tuple[AnyHeld, ...] = (*board.step_times, *board.operator_times, *board.peaks)
    fitted = sum(each.fitted for each in everything)
    return (
        f"{len(board.step_times)} step times, {len(board.largest_batches)} largest batches and {len(board.peaks)} "
        f"peaks of memory of {len(networks)} networks, restated from public repositories. Of timm's are here those "
        f"that vdnnsim builds itself, and of all others one in {ONE_TIME_IN}, for peaks one in {ONE_PEAK_IN}, drawn by "
        f"the SHA-256 of its name: nothing is here, or missing, for what came out of it. {fitted} rows, on which "
        "a parameter of a profile was fitted, are marked in the tables and count nowhere.\n\n"
        f"{met} of {len(rows)} aims are met; `claims.csv` has each. The aims: a mean error of step times of 12 %, a "
        "bias within 5 %; 20 % for a kind of operators; 95 % of largest batches in their bracket; a median error of "
        "peaks of 5 %, and 5 % of them too low by more than 2 %.\n\n"
        "Run it again, with PyTorch, timm and torchvision for all rows, without them for those of the networks that "
        "vdnnsim builds; what was captured once is read from a cache afterwards:\n\n"
        "```sh\nvdnnsim claims --paper public2026 --report reports/public2026\n```"
    )


def _times_table(rows: Sequence[TimeRow]) -> str:
    keys = dict.fromkeys(_key(each) for each in rows)
    lines = []
    for key in keys:
        members = [each for each in rows if _key(each) == key]
        counted = [each for each in members if each.counts]
        lines.append((*key, f"{len(counted)} of {len(members)}", *_error_cells(counted)))
    header = ("series", "card", "mode", "precision", "rows that count", "mean absolute error", "bias", "worst")
    return markdown.table(header, lines, 4)


def _key(held: TimeRow) -> tuple[str, str, str, str]:
    setup = held.row.setup
    return held.row.series, held.row.hardware, setup.mode.value, setup.precision.value


def _error_cells(rows: Sequence[TimeRow]) -> tuple[str, str, str]:
    if not rows:
        return _NONE, _NONE, _NONE
    errors = errors_of(rows)
    return percent(errors.mean_absolute), f"{100 * errors.mean:+.1f} %", f"{100 * max(errors.values, key=abs):+.0f} %"


def _operators_table(rows: Sequence[OperatorRow]) -> str:
    lines = [
        (
            each.row.hardware,
            kind_of(each.row),
            *(("-", "-") if each.simulated is None else (format_seconds(each.simulated), f"{100 * each.error:+.0f} %")),
            format_seconds(each.row.seconds),
            "fitted on it" if each.fitted else "",
        )
        for each in rows
    ]
    return markdown.table(("card", "kind", "replay", "error", "measured", ""), lines, 2)


_BATCHES = """\
timm's benchmark tries batches of 512, 384, 256, 192 and so on until one fits in the 24 GB of an RTX 3090. The largest
that fits in the replay is in the bracket where it is no smaller than that, and smaller than the one tried before."""


def _batches_table(rows: Sequence[BatchRow]) -> str:
    lines = []
    for series in dict.fromkeys(each.row.series for each in rows):
        counted = [each for each in rows if each.row.series == series and each.counts]
        found = Counter(str(each.simulated) for each in counted)
        share = percent(found["in its bracket"] / len(counted)) if counted else _NONE
        lines.append((series, str(len(counted)), share, str(found["smaller"]), str(found["larger"])))
    return markdown.table(("series", "rows", "in the bracket", "replay smaller", "replay larger"), lines, 1)


def _memory_table(board: Scoreboard) -> str:
    counted = [each for each in board.peaks if each.counts]
    if not counted:
        return "No row: all networks have to be captured."
    estimators = (("vdnnsim", errors_of(counted)), ("FakeTensor, as published", faketensor_errors(counted)))
    header = ("estimator", "rows", "median absolute error", "bias", "too low by more than 2 %")
    return markdown.table(header, [(name, str(len(each.values)), *_memory_cells(each)) for name, each in estimators], 1)


def _memory_cells(errors: Errors) -> tuple[str, str, str]:
    return percent(errors.median_absolute), f"{100 * errors.mean:+.1f} %", percent(errors.share_under)


_FALLS_SHORT = """\
- Of an RTX 4090 products and pointwise kernels seem to stream at the peak of its DRAM: no L2 is modelled, and its 72 MB
  are in that. Inference of `cait`, with its own attention, takes half to two thirds as long here.
- `mixnet` takes a fifth to a third less time here: it splits maps along their channels, and what PyTorch copies of them
  before it convolves is not counted. How cuDNN 8.3 computes groups channels last is a rule here with one fitted rate
  (`vdnnsim/cost/efficiency_time.py`): training steps of such networks are off by 18 % on average.
- Grouped convolutions of `resnext101` with twelve images on an A100 40 GB take two thirds as long here. No convolution
  in float16 of an A100 40 GB, an RTX 2080 Ti or a TITAN RTX was there to fit.
- `titan_xp` keeps the cost model and the host of an earlier paper, where small batches wait for no PyTorch. Those of
  `gtx_1080ti`, of the same chip, would do no better (26 to 44 % too fast): the machine that was measured takes longer
  than a GTX 1080 Ti, which has fewer multiprocessors (ResNet-18, inference: 11.7 ms, and 6.4).
- Peaks that are 0.2 to 2 GiB too low are of single batches, which a larger one does not show again
  (`eca_resnext26ts`, `hgnetv2_b1`); nothing that takes as much is known. Most others that are too low lack 2 to 4 %,
  and small networks in batches of 64 and 128 come out up to 20 % too high (`regnety_006`). What their convolutions take
  is what cuDNN names first; the search of timm's script found the fastest on the card, which nobody knows without it.
  PyTorch's own code on an A100 that was not there says no more: what it reserves for 27 of these rows, with the
  context that suits them best, is off by 3.4 % in the median, and too low by more than 2 % in ten of them.
- What PyTorch reserves for those 27 the replay misses by 5.2 % on average, by -4.2 % in all. Weight decay, whose
  copies of gradients are not replayed, is 3.5 % of what PyTorch reserves for `flexivit_large`, and in most networks at
  most 1 %; layer normalizations copy maps that lie otherwise, which captures do not tell.
- timm's benchmark of PyTorch 1.12 searches, too. Replayed as that of today's PyTorch, the search lets `fbnetv3_g` fit
  at one batch more, and 34 of 38 largest batches lie in their bracket. That of `resnest50d_1s4x24d` is told too large:
  PyTorch 2.14 trains the larger batch on an RTX 3090 that was not there, too."""

_ASSUMED = """\
- Scripts by their defaults: timm's trains with SGD with momentum; what Nesterov's form and weight decay copy is left
  out. timm's benchmark has the same optimizer; torchvision's rows have none.
- Names mean what they mean in today's timm: a network whose number of parameters is another than when it was measured
  is left out, and so is under PyTorch 1.12 one that has fused attention today, which that PyTorch had not.
- Fitted on are steps of timm in `rtx_3090.fit.csv` and `rtx_4090.fit.csv`, steps of torchvision in `hosts.fit.csv`,
  the trace of the H100, and peaks at batches of 8 and 32 of networks whose names have an even SHA-256. What is left of
  torchvision's rows is of the same hosts; the V100 was fitted to an earlier trace of the same network.
- Before PyTorch 2.0 gradients are kept, zeroed one by one and added to; torchvision's script copies its images within
  the step, from pageable memory. Both as `vdnnsim.cost.host_fit` has it.
- Under CUDA 11.3, and with GPUMemNet, which does not say, the context has all kernels loaded.
- Operators are those that today's PyTorch dispatches on a card of compute capability 8.9; what convolutions and sums
  take beside them in GPUMemNet's rows, is that of 8.0.
- GPUMemNet names no card; its largest peaks end where the 40 GB of an A100 do. Runs that failed are not here: above
  38,500 MiB, below what half the batch took, or grown less than before where 39,000 MiB would not have done. Images are
  of the size that timm gives each network; batches that timm's loader holds ahead are counted, and its script's search
  of `cudnn.benchmark` is replayed for captured networks."""


def _left_out(board: Scoreboard) -> list[str]:
    everything: tuple[AnyHeld, ...] = (*board.step_times, *board.operator_times, *board.peaks)
    networks: dict[str, dict[str, None]] = {}
    for each in everything:
        if each.left_out:
            networks.setdefault(each.left_out, {})[each.row.setup.network] = None
    return [f"{', '.join(names)}: {reason}" for reason, names in networks.items()]
