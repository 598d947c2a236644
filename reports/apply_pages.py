"""Pages on live plans, beside what is done today and beside their predictions: `python -m reports.apply_pages DIR`."""

import sys
from itertools import groupby
from pathlib import Path

from matplotlib.figure import Figure

from reports.pretended_pages import WHAT_IT_PROVES, Row, read_rows
from vdnnsim.dnn.step import BufferKind
from vdnnsim.report.document import Bullets, Heading
from vdnnsim.report.markdown import Ready, page, table
from vdnnsim.report.palette import ALARM, INK, KIND_COLORS, MUTED
from vdnnsim.report.plots.style import house_style, new_figure, png, ruled
from vdnnsim.units import MIB

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
POLICY = "optimal(time_limit=10s)"
PART = 0.6
"""The limit of the planned loops of `promises.csv`, of what the plain loop allocates."""
_PREDICTION = (
    f"Each model is planned by `{POLICY}` within {PART:.0%} of what its plain loop allocates, before its first step, "
    "and again by `refit` after its fourth. Times are of forward and backward, by the clock of a pretended RTX 4090."
)
_KERNELS = (
    "kernels: what the promise would be off if kernels lasted as the profile's cost model says, and not as they were "
    "found to last on this GPU when the plan was made."
)
_HOST = "host: what the profile's host takes beyond its calls, which the pretended clock does not count."
_LOOP = (
    "loop: the rest, by which the step is off what its plan takes with this clock's kernels and its host: calls that "
    "operators make beyond one, running statistics that are copied where a normalization runs again, and kernels that "
    "integers steer, as of embeddings, which keep the profile's time."
)


def apply_page(rows: list[Row]) -> str:
    """Return the page."""
    return page(
        (
            Heading("Plans in live loops, beside what is done today", 1),
            Ready(
                "Written by `python -m reports.apply_pages reports/apply` from `comparison.csv`, which `pytest -m gpu "
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


def promises_page(rows: list[Row]) -> str:
    """Return the page."""
    planned = [row for row in rows if row["promised_s"]]
    return page(
        (
            Heading("What is promised before the first step", 1),
            Ready(
                "Written by `python -m reports.apply_pages reports/apply` from `promises.csv`, which "
                "`python -m reports.promises` writes on a pretended RTX 4090."
            ),
            Ready(WHAT_IT_PROVES),
            Ready(_PREDICTION),
            Bullets(tuple(_prediction_errors(planned))),
            table(
                (
                    "model",
                    "limit, MiB",
                    "plain, ms",
                    "promised, ms",
                    "step 1",
                    "step 3",
                    "refit promised",
                    "refit step 3",
                ),
                [_times(row) for row in rows],
                1,
            ),
            Heading("By cause"),
            Ready("Each as a part of what step 3 takes; below zero where more was promised."),
            Bullets((_KERNELS, _HOST, _LOOP)),
            table(
                ("model", "profile, ms", "promised, ms", "step 3, ms", "kernels", "host", "loop"), _parts(planned), 1
            ),
        )
    )


def _prediction_errors(rows: list[Row]) -> list[str]:
    def most(found: str, promised: str) -> str:
        return f"{max(abs(float(row[found]) / float(row[promised]) - 1) for row in rows if row[promised]):.1%}"

    steps = f"The first step is off its promise by at most {most('first_s', 'promised_s')}, the third by "
    third, again = most("third_s", "promised_s"), most("refit_third_s", "refit_promised_s")
    return [
        f"{steps}{third}; after `refit` it is {again}.",
        f"By the cost model of the profile alone it would be {most('third_s', 'profile_s')}.",
    ]


def _times(row: Row) -> tuple[str, ...]:
    names = ("plain_s", "promised_s", "first_s", "third_s", "refit_promised_s", "refit_third_s")
    times = (f"{float(row[name]) * 1e3:.2f}" if row[name] else "no plan fits" for name in names)
    return (row["model"], f"{int(row['limit_bytes']) / MIB:.0f}", *times)


def _parts(rows: list[Row]) -> list[tuple[str, ...]]:
    found = []
    for row in rows:
        profile_s, promised_s, clock_s, third_s = (
            float(row[name]) for name in ("profile_s", "promised_s", "clock_s", "third_s")
        )
        causes = (promised_s - profile_s, clock_s - promised_s, third_s - clock_s)
        times = (f"{each * 1e3:.2f}" for each in (profile_s, promised_s, third_s))
        found.append((row["model"], *times, *(f"{each / third_s:+.1%}" for each in causes)))
    return found


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    found = read_rows(folder / "comparison.csv")
    (folder / "README.md").write_text(apply_page(found))
    (folder / _PICTURE).write_bytes(picture(found))
    (folder / "promises.md").write_text(promises_page(read_rows(folder / "promises.csv")))
