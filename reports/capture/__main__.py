"""Captures every model of the zoo with fake tensors and compares it to a real run on the CPU.

    python -m reports.capture --out reports/capture

Needs torchvision, timm, transformers, diffusers and peft, and no downloads. Models run in processes of their own, a few
at a time.
"""

import csv
import gc
import importlib
import multiprocessing
import multiprocessing.connection
import re
import time
import warnings
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import shorten

import click
import torch
import torch._dynamo  # PyTorch imports it late: here, and in no process of a model

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice
from reports.capture.case import Case
from reports.capture.instruments import measure
from reports.capture.page import zoo_page
from vdnnsim.errors import VdnnsimError
from vdnnsim.report.result_table import write_csv

ROOT = Path(__file__).parents[2]
FAMILIES = ("own", "torchvision", "timm", "transformers", "diffusers", "peft")
AT_ONCE = 3
TIMEOUT_S = 300
_LONGEST_REASON = 400


@dataclass(frozen=True)
class Row:
    """A model, in bytes, 0 if unknown: `captured`, `not captured`, or `not run` where the real run itself failed."""

    family: str
    model: str
    versions: str
    outcome: str
    reason: str = ""
    operations: int = 0
    parameter_bytes: int = 0
    captured_saved_bytes: int = 0
    hooked_saved_bytes: int = 0
    walked_saved_bytes: int = 0
    captured_peak_bytes: int = 0
    measured_peak_bytes: int = 0
    allocator_peak_bytes: int = 0
    capture_s: float = 0.0
    run_s: float = 0.0


_FOLDERS = re.compile(rf"{re.escape(str(ROOT))}/|/[^ ]*/site-packages/")
"""Folders of the machine."""
COLUMNS = tuple(each.name for each in fields(Row))


def compare(case: Case) -> Row:
    """Run a model and capture it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    versions = case.program.versions
    with torch.backends.mkldnn.flags(enabled=case.onednn):
        began = time.perf_counter()
        try:
            measured = measure(case.program)
        except Exception as failure:  # noqa: BLE001 - whatever the model raises is what is reported
            return Row(case.family, case.name, versions, "not run", _said(failure))
        gc.collect()
        ran = time.perf_counter()
        try:
            step = capture(case.program, CaptureDevice(compute_capability=None))
        except Exception as failure:  # noqa: BLE001 - as above
            known = "" if isinstance(failure, VdnnsimError) else "unforeseen: "
            return Row(case.family, case.name, versions, "not captured", known + _said(failure))
    return Row(
        case.family,
        case.name,
        versions,
        "captured",
        operations=len(step.operations),
        parameter_bytes=step.parameter_bytes,
        captured_saved_bytes=step.saved_bytes,
        hooked_saved_bytes=measured.hooked_saved_bytes,
        walked_saved_bytes=measured.walked_saved_bytes,
        captured_peak_bytes=step.peak_live_bytes,
        measured_peak_bytes=measured.peak_bytes,
        allocator_peak_bytes=measured.allocator_peak_bytes,
        capture_s=round(time.perf_counter() - ran, 2),
        run_s=round(ran - began, 2),
    )


def _said(failure: Exception) -> str:
    text = _FOLDERS.sub("", " ".join(str(failure).split()))
    said = text if isinstance(failure, VdnnsimError) else f"{type(failure).__name__}: {text}"
    return shorten(said, _LONGEST_REASON, placeholder=" ...")


def run_all(cases: Iterable[Case], out: Path) -> None:
    """Compare models, each in a process, and write the table after each."""
    context = multiprocessing.get_context("fork")
    path = out / "zoo.csv"
    rows = _read(path)
    waiting = [each for each in cases if (each.family, each.name) not in rows]
    running: dict[Connection, tuple[Case, multiprocessing.process.BaseProcess, float]] = {}
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            case = waiting.pop(0)
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(case, theirs))
            process.start()
            theirs.close()
            running[ours] = case, process, time.monotonic()
        ready = multiprocessing.connection.wait([*running], timeout=1)
        late = [each for each, (_, _, began) in running.items() if time.monotonic() - began > TIMEOUT_S]
        for ours in [each for each in running if each in ready or each in late]:
            case, ended, _ = running.pop(ours)
            row = _received(ours, case, ended, is_late=ours not in ready)
            rows[case.family, case.name] = row
            click.echo(", ".join(map(str, row)))
            write_csv(path, COLUMNS, rows.values())


def _received(
    ours: Connection, case: Case, process: multiprocessing.process.BaseProcess, *, is_late: bool
) -> tuple[str | int | float, ...]:
    versions = case.program.versions
    try:
        row: Row = (
            Row(case.family, case.name, versions, "not run", f"longer than {TIMEOUT_S} s") if is_late else ours.recv()
        )
    except EOFError:
        process.join()
        row = Row(case.family, case.name, versions, "not run", f"the process ended with {process.exitcode}")
    process.kill()
    process.join()
    ours.close()
    return astuple(row)


def _child(case: Case, theirs: Connection) -> None:
    theirs.send(compare(case))
    theirs.close()


def _read(path: Path) -> dict[tuple[str, str], tuple[str | int | float, ...]]:
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        return {(row["family"], row["model"]): tuple(row.values()) for row in csv.DictReader(file)}


@click.command()
@click.option("--out", default="reports/capture", type=click.Path(file_okay=False, path_type=Path))
@click.option("--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Instead of all.")
@click.option("--only", default="", help="Models whose name has this in it.")
def zoo(out: Path, families: tuple[str, ...], only: str) -> None:
    """Write the table of all models and its page; existing rows are kept."""
    out.mkdir(parents=True, exist_ok=True)
    for family in families or FAMILIES:
        cases = importlib.import_module(f"reports.capture.{family}_cases").cases()
        run_all([each for each in cases if only in each.name], out)
    (out / "README.md").write_text(zoo_page(out))


if __name__ == "__main__":
    zoo()
