"""Holds predictions against the steps that were measured: `python -m reports.measured [--out DIR]`, from a clone.

Each network is captured as it was measured, and replayed on the profile of its card. No parameter is fitted to these
rows. Equal input gives equal bytes.
"""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

import click

from reports.charts import Cloud, Clouds
from reports.error_pictures import draw_clouds
from reports.measured.models import SUBJECTS
from reports.page import page
from vdnnsim.api.captured import capture
from vdnnsim.api.scenarios import simulate
from vdnnsim.memory.process import CUBLAS_HOPPER_BYTES
from vdnnsim.report.result_table import csv_text

ROWS: Final = Path(__file__).with_name("h100_80gb_hbm3.csv")
ANSWERS: Final = Path(__file__).with_name("h200_answers.csv")
"""Printed lines and plans that were run, each with what had been said of it."""
HARDWARE: Final = "h100_sxm"
STEP: Final = "step"
_HOST_DECIDES: Final = 1.1
"""Of the time in which the GPU worked; where it is not known, of the time per sample of the largest batch."""
_WHO_DECIDES: Final = ("the GPU decides", "the host decides")
_PREDICTED: Final = (
    *("model", "batch", "execution", "time", "measured_s", "simulated_s", "host_decides"),
    *("measured_kernels_s", "simulated_kernels_s"),
)
_BYTES: Final = (
    *("measured_allocated_bytes", "simulated_allocated_bytes"),
    *("measured_reserved_bytes", "simulated_reserved_bytes"),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The median of the rows of a step; timed are steps, or their kernels where the host was not idle.

    `busy_s` is the time in which the GPU worked in one profiled step; None where none was profiled.
    """

    model: str
    batch: int
    execution: str
    timed: str
    seconds: float
    allocated_bytes: float
    reserved_bytes: float
    busy_s: float | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """A measured step and its prediction."""

    measured: Measured
    seconds: float
    kernels_s: float
    allocated_bytes: int
    reserved_bytes: int
    host_decides: bool

    @property
    def kind(self) -> str:
        """The kind of its network."""
        return SUBJECTS[self.measured.model].kind

    @property
    def time_error(self) -> float:
        """(simulated - measured) / measured of its time."""
        return self.seconds / self.measured.seconds - 1

    @property
    def kernels_error(self) -> float | None:
        """The same of the time of its kernels; None where it is not known."""
        return self.kernels_s / self.measured.busy_s - 1 if self.measured.busy_s else None

    @property
    def allocated_error(self) -> float:
        """The same of its allocated peak."""
        return self.allocated_bytes / self.measured.allocated_bytes - 1

    @property
    def reserved_error(self) -> float:
        """The same of its reserved peak."""
        return self.reserved_bytes / self.measured.reserved_bytes - 1

    @property
    def cells(self) -> tuple[str | int | float | bool, ...]:
        """Its row of predictions.csv."""
        found = self.measured
        return (
            *(found.model, found.batch, found.execution, found.timed),
            *(found.seconds, self.seconds, self.host_decides),
            *(("", "") if found.busy_s is None else (found.busy_s, self.kernels_s)),
            *(found.allocated_bytes, self.allocated_bytes, found.reserved_bytes, self.reserved_bytes),
        )


@click.command()
@click.option("--out", type=click.Path(path_type=Path), default=ROWS.parent, help="Where to write.")
def main(out: Path) -> None:
    """Write README.md, predictions.csv and step_times.png."""
    rows = held(read_rows(ROWS))
    slide = clouds(rows)
    out.mkdir(parents=True, exist_ok=True)
    (out / "predictions.csv").write_text(csv_text((*_PREDICTED, *_BYTES), [each.cells for each in rows]))
    (out / "step_times.png").write_bytes(draw_clouds(slide))
    with ANSWERS.open(newline="", encoding="utf-8") as file:
        said = list(csv.DictReader(file))
    (out / "README.md").write_bytes(
        page(
            "measured/page.md.j2",
            (),
            held=rows,
            title=slide.title,
            groups=groups(rows),
            hardware=HARDWARE,
            answers=[each for each in said if each["kind"] == "answer"],
            plans=[each for each in said if each["kind"] == "plan"],
        )
    )


def read_rows(path: Path) -> list[Measured]:
    """Return the measured steps of a file that have a time, in its order."""
    with path.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    steps: dict[tuple[str, int, str], list[dict[str, str]]] = {}
    for line in lines:
        steps.setdefault((line["model"], int(line["batch"]), line["execution"]), []).append(line)
    found = []
    for (model, batch, execution), group in steps.items():
        allocated, reserved = (
            median(int(each[name]) for each in group) for name in ("allocated_peak", "reserved_peak")
        )
        step_s, busy_s = (_median_s(group, name) for name in ("step_ms", "gpu_busy_ms"))
        timed, seconds = ("kernels", busy_s) if step_s is None else (STEP, step_s)
        if seconds is not None:
            found.append(Measured(model, batch, execution, timed, seconds, allocated, reserved, busy_s))
    return found


def _median_s(rows: Sequence[dict[str, str]], name: str) -> float | None:
    times = [float(each[name]) / 1e3 for each in rows if each[name]]
    return median(times) if times else None


def held(rows: Sequence[Measured]) -> list[Held]:
    """Return the rows with their predictions; each step is captured as it was executed, by `torch.compile` too."""
    found = []
    for row in rows:
        subject = SUBJECTS[row.model]
        step = capture(
            subject.make,
            subject.inputs(row.batch, subject.tokens, subject.kinds),
            loss=lambda loss: loss,
            precision="amp_bfloat16",
            optimizer=subject.optimizer,
            compile=row.execution == "compiled",
        )
        (replay,) = simulate(step, HARDWARE, "pytorch(p)", execution=row.execution).rows
        kernels_s = sum(span.end_s - span.start_s for span in replay.trace.spans)
        found.append(
            Held(
                row,
                replay.metrics.iteration_s if row.timed == STEP else kernels_s,
                kernels_s,
                replay.metrics.allocated_bytes + CUBLAS_HOPPER_BYTES,
                replay.trace.pool_bytes,
                host_decides(row, rows),
            )
        )
    return found


def host_decides(row: Measured, rows: Iterable[Measured]) -> bool:
    """Whether the GPU idles, or a sample takes more time than in the largest batch of the network."""
    if row.timed == STEP and row.busy_s:
        return row.seconds > _HOST_DECIDES * row.busy_s
    alike = [each for each in rows if (each.model, each.execution) == (row.model, row.execution)]
    largest = max(alike, key=lambda each: each.batch)
    return row.timed == STEP and row.seconds / row.batch > _HOST_DECIDES * largest.seconds / largest.batch


def groups(rows: Sequence[Held]) -> dict[tuple[str, str], list[Held]]:
    """Return the rows by execution and kind of network, and of each execution all."""
    found: dict[tuple[str, str], list[Held]] = {}
    for execution in dict.fromkeys(each.measured.execution for each in rows):
        for each in (each for each in rows if each.measured.execution == execution):
            found.setdefault((execution, each.kind), []).append(each)
        found[execution, "all"] = [each for each in rows if each.measured.execution == execution]
    return found


def clouds(rows: Sequence[Held]) -> Clouds:
    """Return the slide of times, a panel for each execution."""
    by_execution = {execution: found for (execution, kind), found in groups(rows).items() if kind == "all"}
    by_gpu = {name: [each for each in found if not each.host_decides] for name, found in by_execution.items()}
    said = ", ".join(f"{name} {error_text(found)}" for name, found in by_gpu.items())
    return Clouds(
        f"Where the GPU decides, steps of an H100 are off by: {said}",
        "Training steps in automatic mixed precision; on the line measured and simulated are equal, below it the "
        "replay is too fast",
        tuple(
            Cloud(
                name,
                f"{error_text(by_gpu[name])}\n{len(by_gpu[name])} rows where the GPU decides",
                tuple((int(each.host_decides), each.measured.seconds, each.seconds) for each in found),
            )
            for name, found in by_execution.items()
        ),
        _WHO_DECIDES,
    )


def error_text(rows: Sequence[Held]) -> str:
    """Return mean absolute error and bias of times in words."""
    errors = [each.time_error for each in rows]
    return f"{100 * fmean(map(abs, errors)):.0f} %, bias {100 * fmean(errors):+.0f} %"


if __name__ == "__main__":
    main()
