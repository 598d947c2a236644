"""What the comparison of live plans found, as a page and a picture: `python -m tests.gpu.apply_page reports/apply`."""

import csv
import sys
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from tests.pretend.rates_page import WHAT_IT_PROVES
from vdnnsim.dnn.step import BufferKind
from vdnnsim.report.document import Bullets, Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.report.palette import ALARM, INK, KIND_COLORS, MUTED
from vdnnsim.report.plots.style import house_style, new_figure, png, ruled
from vdnnsim.units import MIB

Row = dict[str, str]

_PICTURE = "comparison.png"
_COLORS = {True: KIND_COLORS[BufferKind.FEATURE_MAP], False: "#9a9a9a"}
_SETTING = (
    "Three training loops under one limit of what PyTorch may reserve (`set_per_process_memory_fraction`): 80 % and "
    "60 % of what the plain loop allocates, in which it runs out of memory. SGD, float32, batches of 16; the shortest "
    "of four steps. Times are **predicted**: kernels last as long as rooflines of the profile `rtx_4090` say, copies "
    "as long as its PCIe link needs, and the host costs time. A plan promises by the profile's own cost model. "
    "Bytes are those of PyTorch's own allocator."
)
_WAYS = (
    "`plan: optimal` and `plan: checkpoint` are `vdnnsim.plan(..., policy=...)`, beside what the plan promised.",
    "They keep to the limit by themselves: PyTorch takes so much in one piece before the first step, and is not told.",
    "`save_on_cpu` is PyTorch's, with pinned memory.",
    "`offload of all` copies saved tensors over 1 KiB on a stream of its own, and back when taken, as torchtune does.",
    "`checkpoint` is `torch.utils.checkpoint` around each block: `set_grad_checkpointing` of timm's networks.",
)


def apply_page(rows: list[Row]) -> str:
    """Return the page."""
    return page(
        (
            Heading("Plans in live loops, beside what is done today", 1),
            Ready(
                "Written by `python -m tests.gpu.apply_page reports/apply` from `comparison.csv`, which `pytest -m gpu "
                "tests/gpu/test_apply.py --tables reports/apply` writes, on a pretended GPU as on a real one."
            ),
            Ready(WHAT_IT_PROVES),
            Ready(_SETTING),
            Bullets(_WAYS),
            Heading("What it says"),
            Bullets(tuple(_findings(rows))),
            Ready(f"![Time of a step by way, model and limit; predicted]({_PICTURE})"),
            Heading("All of it"),
            table(
                (
                    *("model", "way", "limit, MiB", "step, ms", "times plain", "allocated, MiB", "reserved, MiB"),
                    *("promised step, ms", "promised, MiB"),
                ),
                [_cells(row, _plain_s(rows, row["model"])) for row in rows],
                2,
            ),
        )
    )


def picture(rows: list[Row]) -> bytes:
    """Return the time of each step as bars: a row of panels a limit, a column a model."""
    with house_style():
        return png(_drawn(rows))


def _drawn(rows: list[Row]) -> Figure:
    figure = new_figure(
        "Plans in live loops, beside what is done today",
        "time of a training step under a limit of memory, over that of the plain loop without one; predicted for an "
        "RTX 4090, not measured",
    )
    models = [*dict.fromkeys(row["model"] for row in rows)]
    limited = [row for row in rows if row["limit_bytes"]]
    axes = figure.subplots(2, len(models), sharex="col", squeeze=False)
    figure.subplots_adjust(left=0.13, right=0.98, top=0.8, bottom=0.1, hspace=0.35, wspace=0.12)
    for column, model in enumerate(models):
        groups = groupby((row for row in limited if row["model"] == model), key=lambda row: row["limit_bytes"])
        for line, (limit, group) in enumerate(groups):
            panel, found = axes[line, column], [*group]
            for at, row in enumerate(reversed(found)):
                step_s = row["step_s"]
                times = float(step_s) / _plain_s(rows, model) if step_s else 0.0
                panel.barh(at, times, color=_COLORS[row["way"].startswith("plan")], height=0.7)
                words = f" {times:.1f}" if step_s else f" {_why(row)}"
                panel.text(times, at, words, va="center", fontsize=13, color=INK if step_s else ALARM)
            panel.set_yticks(range(len(found)), [row["way"] for row in reversed(found)] if not column else [])
            panel.set_title(f"{model}, {int(limit) / MIB:.0f} MiB", fontsize=15, color=MUTED, loc="left")
            panel.margins(x=0.16)
            ruled(panel, "x")
        axes[-1, column].set_xlabel("times the plain step")
    return figure


def _plain_s(rows: list[Row], model: str) -> float:
    return next(float(row["step_s"]) for row in rows if row["model"] == model and not row["limit_bytes"])


def _cells(row: Row, plain_s: float) -> tuple[str, ...]:
    def of(name: str, scale: float, digits: int) -> str:
        return f"{float(row[name]) * scale:.{digits}f}" if row[name] else ""

    return (
        row["model"],
        row["way"],
        of("limit_bytes", 1 / MIB, 0),
        of("step_s", 1e3, 1) or _why(row),
        of("step_s", 1 / plain_s, 2),
        of("allocated_bytes", 1 / MIB, 0),
        of("reserved_bytes", 1 / MIB, 0),
        of("promised_step_s", 1e3, 1),
        of("promised_bytes", 1 / MIB, 0),
    )


def _why(row: Row) -> str:
    """Return why a way has no step."""
    return "out of memory" if row["allocated_bytes"] else "no plan fits"


def _findings(rows: list[Row]) -> list[str]:
    def step_s(row: Row, way: str) -> float | None:
        same = (each for each in rows if (each["model"], each["limit_bytes"]) == (row["model"], row["limit_bytes"]))
        found = next(each["step_s"] for each in same if each["way"] == way)
        return float(found) if found else None

    def over(way: str) -> str:
        ratios = [other / float(row["step_s"]) for row in optimal if row["step_s"] and (other := step_s(row, way))]
        return f"{min(ratios):.2f} to {max(ratios):.2f} times" if ratios else "never"

    def off(policy: str, found: str, promised: str) -> str:
        rows_of = [row for row in rows if row["way"] == f"plan: {policy}" and row["step_s"]]
        return f"{max(abs(float(row[found]) / float(row[promised]) - 1) for row in rows_of):.1%}"

    def reserved(policy: str) -> float:
        rows_of = [row for row in rows if row["way"] == f"plan: {policy}" and row["reserved_bytes"]]
        return max(int(row["reserved_bytes"]) / int(row["limit_bytes"]) for row in rows_of)

    optimal = [row for row in rows if row["way"] == "plan: optimal"]
    said = [
        f"`plan: {policy}` allocates what it promised within {off(policy, 'allocated_bytes', 'promised_bytes')}, and "
        f"takes the promised time within {off(policy, 'step_s', 'promised_step_s')}; it reserves at most "
        f"{reserved(policy):.1%} of the limit."
        for policy in ("optimal", "checkpoint")
    ]
    both = [(float(each["step_s"]), other) for each in optimal if (other := step_s(each, "plan: checkpoint"))]
    faster = sum(other < found for found, other in both)
    said.append(f"`plan: checkpoint` is the faster plan in {faster} of {len(both)} cases in which it fits.")
    ways = ("save_on_cpu", "offload of all", "checkpoint", "plan: checkpoint")
    return [*said, *(f"A step of `{way}` takes {over(way)} that of `plan: optimal`." for way in ways)]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    with (folder / "comparison.csv").open() as file:
        found = [*csv.DictReader(file)]
    (folder / "README.md").write_text(apply_page(found))
    (folder / _PICTURE).write_bytes(picture(found))
