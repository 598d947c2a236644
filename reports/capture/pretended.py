"""Memory of models, captured, simulated, and run on a pretended GPU.

    python -m calibration.pretend --hardware rtx_4090 -- python -m reports.capture.pretended --out reports/capture

On the pretended GPU, `max_memory_allocated` and `max_memory_reserved` of PyTorch over three iterations, workspaces of
libraries included. Each model has a process, for libraries keep memory.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import click
import msgspec
import torch

from calibration.capture.capture import capture
from calibration.capture.preparation import prepare
from calibration.capture.program import CaptureDevice
from calibration.capture.request import Request
from calibration.capture.request_capture import program_of
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.hardware.profile import find_profile, load_profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.document import Heading
from vdnnsim.report.markdown import escape, page, table
from vdnnsim.report.result_table import write_csv
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import Precision
from vdnnsim.validation.row import predicted_peaks

ROOT = Path(__file__).parents[2]
CARD = "rtx_4090"
ITERATIONS = 3
PRECISIONS = ("float32", "amp_bfloat16")
OPTIMIZER = "adamw"
_TOKENS = 512
MODELS = (
    *((f"torchvision:{name}", 16) for name in ("resnet18", "resnet50", "vgg16", "alexnet", "mobilenet_v2")),
    *(
        (f"torchvision:{name}", 16)
        for name in ("densenet121", "efficientnet_b0", "convnext_tiny", "vit_b_16", "swin_t")
    ),
    *((f"timm:{name}", 16) for name in ("convnext_atto", "vit_tiny_patch16_224", "mixer_s32_224", "hrnet_w18_small")),
    ("transformers:gpt2", 4),
)
"""The rule for workspaces of convolutions is fitted to these (`vdnnsim.cost.pytorch_workspace`)."""
HELD_OUT = (
    *((f"torchvision:{name}", 16) for name in ("googlenet", "regnet_x_800mf", "shufflenet_v2_x1_0", "mnasnet1_0")),
    *(("torchvision:resnext50_32x4d", 16), ("torchvision:wide_resnet50_2", 8)),
    *(("timm:resnet26d", 32), ("timm:deit_tiny_patch16_224", 32)),
)
"""Run once, after the rule was fitted."""


@dataclass(frozen=True)
class Row:
    """Of a model, in bytes."""

    model: str
    batch_size: int
    precision: str
    captured_peak: int
    simulated_allocated: int
    simulated_reserved: int
    pretended_allocated: int
    pretended_reserved: int

    def off(self, level: str) -> float:
        """By how much the simulated peak of a level, `allocated` or `reserved`, is off."""
        simulated, counted = (getattr(self, f"{side}_{level}") for side in ("simulated", "pretended"))
        return float(simulated / counted - 1)


def simulated_peaks(step: CapturedStep, card: str) -> MemoryCount:
    """Return the peaks of some iterations as PyTorch runs them."""
    server = load_profile(find_profile(card, ROOT)).server
    simulator = Simulator.of(CapturedWorkload.of(step), server, MemoryModel.PYTORCH, PinnedMemory.ARENA)
    (plan,) = simulator.completed((PyTorch().plan(simulator.setting()),))
    return predicted_peaks(plan, simulator.limits, caching_allocator=True, times=ITERATIONS)


def row_of(model: str, batch_size: int, precision: str) -> Row:
    """Capture and simulate a model, and run it on the pretended GPU."""
    tokens = _TOKENS if model.startswith("transformers") else None
    asked = Request(
        model=model, batch_size=batch_size, tokens=tokens, precision=Precision(precision), optimizer=OPTIMIZER
    )
    step = capture(program_of(asked)[0], CaptureDevice())
    simulated = simulated_peaks(step, CARD)

    program, _ = program_of(msgspec.structs.replace(asked, pretended=CARD))
    iteration = prepare(program, program.make_model(), "cuda", foreach=True)
    for _ in range(ITERATIONS):
        iteration.run(lambda _: None)
    return Row(
        model,
        batch_size,
        precision,
        step.peak_live_bytes,
        simulated.allocated_bytes or 0,
        simulated.reserved_bytes or 0,
        torch.cuda.max_memory_allocated(),
        torch.cuda.max_memory_reserved(),
    )


def pretended_page(rows: list[Row]) -> str:
    """Return the page of all rows."""
    held_out = {name for name, _ in HELD_OUT}
    groups = ([each for each in rows if (each.model in held_out) is out] for out in (False, True))
    close, evidence = (
        f"allocated within 1 % in {sum(abs(row.off('allocated')) <= 0.01 for row in group)} of {len(group)}, reserved "
        f"within 2 % in {sum(abs(row.off('reserved')) <= 0.02 for row in group)}"
        for group in groups
    )
    return page(
        (
            Heading("Captured and simulated, and run on a pretended GPU", 1),
            escape(
                f"On a pretended {CARD}, {ITERATIONS} iterations with AdamW; `python -m reports.capture.pretended`."
            ),
            escape(
                f"Of the models that a rule was read off, {close}; of the others, held out, {evidence}. "
                "What is captured has no workspaces. The simulation adds those of cuBLAS and of sums of rows to the "
                "byte, and those of convolutions by a rule for what cuDNN's heuristics name first, which the pretended "
                "GPU asks. What is reserved hangs on the size of each of them, and so on where the rule is off: "
                "channels last as in convnext_atto, sums of dW in more than two parts, filters of one pixel."
            ),
            table(
                (
                    "model",
                    "held out",
                    "batch",
                    "precision",
                    "captured peak, MiB",
                    "allocated, MiB",
                    "simulated",
                    "reserved, MiB",
                    "simulated",
                ),
                [
                    (
                        escape(row.model),
                        "yes" if row.model in held_out else "",
                        str(row.batch_size),
                        row.precision,
                        *(f"{each / 2**20:.1f}" for each in (row.captured_peak, row.pretended_allocated)),
                        f"{row.off('allocated'):+.2%}",
                        f"{row.pretended_reserved / 2**20:.0f}",
                        f"{row.off('reserved'):+.2%}",
                    )
                    for row in rows
                ],
                1,
            ),
        )
    )


@click.command()
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Where to write.")
def main(out: Path) -> None:
    """Run all models, and write pretended.csv and pretended.md."""
    rows = []
    for precision in PRECISIONS:
        for model, batch_size in MODELS + HELD_OUT:
            with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as process:
                rows.append(process.submit(row_of, model, batch_size, precision).result())
            click.echo(", ".join(map(str, astuple(rows[-1]))))
            write_csv(out / "pretended.csv", [each.name for each in fields(Row)], [astuple(row) for row in rows])
            (out / "pretended.md").write_text(pretended_page(rows))


if __name__ == "__main__":
    main()
