"""Peaks of training scripts on pretended cards, beside simulated and published ones, as CSV.

    python -m reports.trials scripts networks published --out reports/validation/pretended
    python -m reports.pretended_pages trials reports/validation/pretended

Each trial is `vdnnsim pretend` on a script of `reports/trial_scripts`, as a user runs it. Where the network is one of
vdnnsim's, `vdnnsim run` says what it expects under `memory_model: pytorch`.
"""

import csv
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from vdnnsim.report.result_table import write_csv

SCRIPTS = Path(__file__).parent / "trial_scripts"
PUBLISHED = SCRIPTS / "published_peaks.csv"
MAIN = (sys.executable, "-c", "from vdnnsim.cli import main; main()")
STEPS = 3
"""Without growth, after which a script is ended."""

Row = tuple[str | int | float, ...]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Maxima of a GPU's memory in bytes; what the driver shows has the context in it, and is 0 where nobody says."""

    allocated_bytes: int
    reserved_bytes: int
    driver_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What a script did on a pretended card."""

    outcome: str
    peaks: Peaks
    steady_from: int
    step_s: float


@dataclass(frozen=True, slots=True)
class Case:
    """A command line of a script, a card, and the workload of vdnnsim that it should agree with, or why none does."""

    command: str
    hardware: str
    workload: str = ""
    reason: str = ""


def pretended(command: str, hardware: str) -> Trial:
    """Run a script of this folder on a pretended card."""
    with tempfile.TemporaryDirectory() as folder:
        script = [sys.executable, *shlex.split(f"{SCRIPTS}/{command}")]
        options = ("--hardware", hardware, "--steps", str(STEPS), "--out", folder)
        _run("pretend", *options, "--", *script)
        manifest = json.loads((Path(folder) / "run.json").read_text())
    return _trial(manifest)


def _trial(manifest: dict[str, object]) -> Trial:
    processes = manifest["processes"]
    assert isinstance(processes, list)
    assert len(processes) == 1, "every script here uses CUDA in one process"
    (process,) = processes
    gpu = process["gpus"][0]
    peaks = Peaks(gpu["allocated_bytes"], gpu["reserved_bytes"], gpu["driver_bytes"])
    outcome = "does not fit" if process["out_of_memory"] else process["error"] or "ends"
    return Trial(outcome, peaks, process["steady_from_step"] or 0, process["step_s"] or 0.0)


def simulated(workload: str, hardware: str) -> Peaks:
    """Return what a replay of PyTorch's own plan takes; `workload` as in scenarios, without its braces."""
    with tempfile.TemporaryDirectory() as folder:
        scenario = Path(folder) / "scenario.yaml"
        text = f"schema_version: 1\nworkload: {{{workload}}}\nhardware: {hardware}\n"
        scenario.write_text(f"{text}memory_model: pytorch\npolicies: [pytorch(p)]\n")
        _run("run", str(scenario), "--out", f"{folder}/out")
        with (Path(folder) / "out" / "results.csv").open() as file:
            (row,) = csv.DictReader(file)
    return Peaks(int(row["allocated_bytes"]), int(row["reserved_bytes"]))


def _run(*arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(SCRIPTS.parents[1])}
    subprocess.run((*MAIN, *arguments), env=environment, check=False, stdout=subprocess.DEVNULL)  # noqa: S603  # ours


def off(ours: int, theirs: int) -> float:
    """Return by how much ours is off theirs, 0.01 for 1 % more."""
    return ours / theirs - 1


COLUMNS = (
    "script",
    "hardware",
    "outcome",
    "steady_from_step",
    "allocated_bytes",
    "reserved_bytes",
    "driver_bytes",
    "predicted_step_s",
    "simulated_allocated_bytes",
    "simulated_reserved_bytes",
    "allocated_off",
    "reserved_off",
    "reason",
)
CASES = (
    Case("resnet50.py --batch 32 --steps 12", "rtx_4090", "network: resnet50, batch_size: 32, optimizer: momentum"),
    Case(
        "resnet50.py --model vgg16 --batch 32 --steps 12",
        "rtx_4090",
        "network: vgg16_torchvision, batch_size: 32, optimizer: momentum",
    ),
    Case("mobilenet_loader.py --epochs 4", "rtx_4090", reason="ten classes and RMSprop"),
    Case("timm_convnext.py --steps 12", "rtx_4090", reason="no ConvNeXt in the zoo"),
    Case("timm_loop.py resnet26 --batch 64 --steps 12", "a100_40gb", reason="no ResNet-26 in the zoo"),
    Case("timm_loop.py resnet26 --batch 64 --steps 12 --benchmark", "a100_40gb", reason="as above; cuDNN tries all"),
    Case("transformers_trainer.py --steps 12", "a100_40gb", reason="attention in one kernel, checkpoints a block"),
    Case("gpt.py --steps 12", "rtx_4090", reason="attention in one kernel, 512 tokens"),
    Case("checkpointed_vit.py --steps 12", "rtx_3090", reason="attention in one kernel, checkpoints a block"),
    Case(
        "checkpointed_vit.py --whole --steps 12",
        "rtx_3090",
        "network: vit_b_16, batch_size: 64, optimizer: adam",
        "attention in one kernel leaves its output as the next layer cannot take it: a copy of 39 MB a block, 465 MB",
    ),
    Case("offloaded_deeplab.py --steps 12", "rtx_3090", reason="no DeepLab in the zoo"),
    Case("bert_classifier.py --steps 12", "h100_sxm", reason="no BERT in the zoo"),
    Case("lstm_language.py --steps 12", "rtx_4090", reason="no such recurrent network in the zoo"),
    Case("amp_scaler.py --steps 12", "rtx_4090", reason="an auxiliary classifier, which the zoo's has not"),
)
NETWORKS = tuple(
    Case(
        f"resnet50.py --model {name} --batch {batch} --image {image} --optimizer adam --steps 12",
        "a100_40gb",
        f"network: {network}, batch_size: {batch}, optimizer: adam" if network else "",
        reason,
    )
    for name, network, image, reason in (
        ("resnet50", "resnet50", 224, ""),
        ("vgg16", "vgg16_torchvision", 224, ""),
        ("inception_v3", "", 299, "an auxiliary classifier, which the zoo's has not"),
    )
    for batch in (32, 64, 128)
)


def rows_of(cases: tuple[Case, ...]) -> Iterator[Row]:
    """Try each case; an empty cell where nothing is simulated."""
    for case in cases:
        trial = pretended(case.command, case.hardware)
        ours = simulated(case.workload, case.hardware) if case.workload else None
        peaks = trial.peaks
        beside: Row = ("", "", "", "")
        if ours is not None:
            allocated, reserved = ours.allocated_bytes, ours.reserved_bytes
            beside = (allocated, reserved, off(allocated, peaks.allocated_bytes), off(reserved, peaks.reserved_bytes))
        measured = (peaks.allocated_bytes, peaks.reserved_bytes, peaks.driver_bytes, trial.step_s)
        yield (case.command, case.hardware, trial.outcome, trial.steady_from, *measured, *beside, case.reason)


PUBLISHED_COLUMNS = (
    "model",
    "batch",
    "published_driver_mib",
    "outcome",
    "allocated_mib",
    "reserved_mib",
    "driver_mib",
    "driver_off",
)


def published_rows() -> Iterator[Row]:
    """Try what others measured with the training script of timm on an A100 of 40 GB."""
    with PUBLISHED.open() as file:
        published = [*csv.DictReader(line for line in file if not line.startswith("#"))]
    for row in published:
        trial = pretended(f"timm_loop.py {row['model']} --batch {row['batch']} --steps 12", "a100_40gb")
        peaks = [each >> 20 for each in (trial.peaks.allocated_bytes, trial.peaks.reserved_bytes)]
        driver = trial.peaks.driver_bytes >> 20
        theirs = int(row["driver_mib"])
        yield row["model"], int(row["batch"]), theirs, trial.outcome, *peaks, driver, off(driver, theirs)


TABLES: dict[str, tuple[tuple[str, ...], Callable[[], Iterator[Row]]]] = {
    "scripts": (COLUMNS, lambda: rows_of(CASES)),
    "networks": (COLUMNS, lambda: rows_of(NETWORKS)),
    "published": (PUBLISHED_COLUMNS, published_rows),
}


@click.command()
@click.argument("tables", nargs=-1, required=True, type=click.Choice([*TABLES]))
@click.option("--out", required=True, type=click.Path(file_okay=False, path_type=Path))
def trials(tables: tuple[str, ...], out: Path) -> None:
    """Write one CSV a table, each row as soon as it is known."""
    for name in tables:
        header, made = TABLES[name]
        rows: list[Row] = []
        for row in made():
            click.echo(", ".join(map(str, row)))
            rows.append(row)
            write_csv(out / f"{name}.csv", header, rows)


if __name__ == "__main__":
    trials()
