"""What does staggering buy when eight ranks under FSDP offload activations at once? As CSV, and a picture beside it.

    python -m reports.staggered reports/studies/staggered/results.csv

Kim et al. (2018) let GPUs behind one switch swap different layers, so that their copies do not meet. Here the ranks of
a transformer under `fully_shard` offload what every x-th block saves, all the same blocks or each others, on servers of
today; beside it eight ranks that train alone, as theirs did, and checkpoints of every block.

The steps are captured as users do, by `vdnnsim capture --parallel fsdp=8`.
"""

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Final

import click
import torch
from torch import nn

from reports.bars import draw_bars
from reports.charts import Axis, Chart, Panel, Slot, Tint
from reports.measured.language_models import Llama
from vdnnsim.analysis.metrics import stall_seconds
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.hardware.profile import Profile, find_profile, load_profile
from vdnnsim.plans.liveness import last_forward_use
from vdnnsim.plans.schedule import (
    Offload,
    Prefetch,
    ScheduleStep,
    Wait,
    backward_layers,
    backward_of,
    feature_maps,
    forward,
    update,
)
from vdnnsim.plans.trace import StallCause
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy, Setting
from vdnnsim.policies.pytorch import PyTorch, PyTorchLoop
from vdnnsim.report.result_table import write_csv
from vdnnsim.report.scale import Scale
from vdnnsim.scenario.captured import captured_model, scenario_of
from vdnnsim.scenario.experiment import simulator_of

RANKS: Final = 8
BLOCKS: Final = 28
CARDS: Final[Mapping[str, str]] = {
    "h100_x8": "H100 (NVSwitch)",
    "a100_80gb_x8": "A100 80 GB (NVSwitch)",
    "l40s_x8": "L40S (PCIe)",
    "rtx_4090_x8": "RTX 4090 (PCIe)",
}
"""By the name of a profile, with the links of its collectives."""
HARDWARE: Final = tuple(CARDS)
STEPS: Final[Mapping[str, Sequence[str]]] = {
    "fsdp": ("--parallel", f"fsdp={RANKS}"),
    "fsdp with checkpoints": ("--parallel", f"fsdp={RANKS}", "--checkpointing", "full"),
    "alone": (),
}
"""Options of the capture."""

COLUMNS: Final = (
    "hardware",
    "ranks",
    "policy",
    "iteration_s",
    "communication_s",
    "offload_s",
    "reserved_bytes",
    "fits",
)

Row = tuple[str | int | float, ...]


def llama() -> nn.Module:
    """Return a decoder of the size of Llama 3.2 3B, with a head of its own."""
    return Llama(3072, BLOCKS, 24, 8, 8192, vocabulary=128256)


def tokens(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return tokens and targets."""
    return torch.zeros(batch, length, dtype=torch.int64), torch.zeros(batch, length, dtype=torch.int64)


class BlockOffload(PyTorchLoop, frozen=True, kw_only=True):
    """Offload what every x-th block saves.

    Attributes:
        interval: x.
        stagger: whether the ranks behind a switch offload different blocks.
        window: layers that a copy has until kernels wait for it, in forward and in backward.
    """

    name: ClassVar[str] = "block_offload"
    summary: ClassVar[str] = "offloads what every x-th block saves"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    interval: int = 2
    stagger: bool = False
    window: int = 20

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan the first rank."""
        return self.plans(setting)[0]

    def plans(self, setting: Setting) -> tuple[TrainingPlan, ...]:
        """Plan every rank; those that offload the same blocks share a plan."""
        place = {gpu: index for group in setting.groups for index, gpu in enumerate(group)}
        first = [place[gpu] % self.interval if self.stagger else 0 for gpu in range(setting.gpus)]
        made = {each: self._plan(setting, each) for each in dict.fromkeys(first)}
        return tuple(made[each] for each in first)

    def _plan(self, setting: Setting, first: int) -> TrainingPlan:
        workload = self.loop(setting.workload)
        runs, backward = forward(workload), backward_layers(workload)
        run_of = {run.layer.index: position for position, run in enumerate(runs)}
        step_of = {layer.index: position for position, layer in enumerate(backward)}
        out: list[list[int]] = [[] for _ in runs]
        waits: list[list[int]] = [[] for _ in runs]
        back: list[list[int]] = [[] for _ in backward]
        for each in workload.graph.maps:
            block = _block(each.name)
            # The last block is read at once.
            if not each.saved_for or block is None or block == BLOCKS - 1 or block % self.interval != first:
                continue
            at, wanted = run_of[last_forward_use(each)], step_of[max(each.saved_for)]
            for what in feature_maps(workload, each.index):
                out[at].append(what)
                waits[min(at + self.window, len(runs) - 1)].append(what)
                back[max(wanted - self.window, 0)].append(what)
        steps: list[ScheduleStep] = []
        for position, run in enumerate(runs):
            steps += [run, *(Offload((what,), run.layer) for what in out[position])]
            steps += [Wait((what,)) for what in waits[position]]
        for position, layer in enumerate(backward):
            phase = layer.backward_phases[0]
            steps += [Prefetch((what,), layer, phase, on_demand=False) for what in back[position]]
            steps += backward_of(layer)
        return self.lowered(setting, [*steps, *update(workload)], workload=workload)


def _block(name: str) -> int | None:
    _, _, module = name.partition(" blocks.")
    return int(module.split(".")[0]) if module else None


def policies(*, copies: bool) -> Iterator[Policy]:
    """Yield what is compared."""
    yield PyTorch()
    for interval in (1, 2, 4) if copies else ():
        for stagger in (False, True)[:interval]:
            yield BlockOffload(interval=interval, stagger=stagger)


def row(model: CapturedModel, ranks: str, profile: Profile, policy: Policy) -> Row:
    """Return what a policy takes on all GPUs of a server, whose slowest counts."""
    scenario = replace(scenario_of(model, "staggered", profile, (policy,)), gpus=RANKS)
    simulator = simulator_of(scenario)
    planned = simulator.planned(policy)
    gpus = simulator.replay(planned.plans, planned.replayed).gpus
    slowest = max(gpus, key=lambda each: each.iteration_s)
    stalls = dict(stall_seconds(slowest))
    waited = stalls.get(StallCause.OFFLOAD, 0.0) + stalls.get(StallCause.PREFETCH, 0.0)
    return (
        *(Path(profile.file).stem, ranks, policy.label, slowest.iteration_s),
        *(stalls.get(StallCause.COMMUNICATION, 0.0), waited, max(each.pool_bytes for each in gpus)),
        "false" if planned.refusals else "true",
    )


def chart(rows: Sequence[Row]) -> Chart:
    """Return what offload of every fourth block costs under FSDP, as a share of the step without it."""
    taken = {each[:3]: float(each[3]) for each in rows}
    longer = [
        [taken[card, "fsdp", policy.label] / taken[card, "fsdp", PyTorch().label] - 1 for card in HARDWARE]
        for policy in (BlockOffload(interval=4), BlockOffload(interval=4, stagger=True))
    ]
    same, staggered = longer
    pairs = zip(same, staggered, strict=True)
    shares = {card: [f"{100 * each:.0f}" for each in pair] for card, pair in zip(CARDS, pairs, strict=True)}
    slots = (
        Slot.of("all ranks the same blocks", Tint.BASE_M, same),
        Slot.of("ranks behind a switch different ones", Tint.COPIES, staggered),
    )
    axis = Axis("longer than a step without offload", Scale("%", 0.01, 0))
    return Chart(
        "Staggering takes the cost of offload from {} to {} % on A100, and from {} to {} % on RTX 4090".format(
            *shares["a100_80gb_x8"], *shares["rtx_4090_x8"]
        ),
        "Llama 3.2 3B under FSDP on eight GPUs; every fourth block offloads what it saves; simulated",
        (Panel(tuple(CARDS[each] for each in HARDWARE), slots, axis, numbered=True),),
    )


def captured(folder: str, number: int, options: Sequence[str]) -> CapturedModel:
    """Capture the step of one rank, or of a GPU alone."""
    path = Path(folder) / f"{number}.step.json"
    here = Path(__file__)
    asked = ("--batch", "1", "--tokens", "4096", "--inputs", f"{here}:tokens", "--precision", "amp_bf16")
    command = (sys.executable, "-m", "vdnnsim", "capture", f"{here}:llama", *asked, *options, "--out", str(path))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603  # ours
    return captured_model(path)


@click.command()
@click.argument("out", type=click.Path(path_type=Path))
def study(out: Path) -> None:
    """Write the table."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (ranks, options) in enumerate(STEPS.items()):
            model = captured(folder, number, options)
            for hardware in HARDWARE:
                profile = load_profile(find_profile(hardware, Path()))
                compared = policies(copies="checkpoints" not in ranks)
                rows += [row(model, ranks, profile, policy) for policy in compared]
                click.echo(f"{ranks} on {hardware}", err=True)
    write_csv(out, COLUMNS, rows)
    out.with_suffix(".png").write_bytes(draw_bars(chart(rows)))


if __name__ == "__main__":
    study()
