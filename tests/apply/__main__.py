"""Trains models with a plan and without, and writes a table and a page.

    python -m tests.apply --out reports/apply

Needs torchvision, timm and transformers, and no downloads. Existing rows are kept.
"""

import csv
import importlib
import warnings
from collections.abc import Iterator
from dataclasses import astuple, fields
from itertools import chain
from pathlib import Path

import click
import torch

from reports.capture.case import Case
from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS
from tests.apply.training import Outcome, compare
from vdnnsim.report.document import Heading
from vdnnsim.report.markdown import escape, page, table
from vdnnsim.report.result_table import write_csv

POLICIES = {"save_on_cpu": "offloaded", "checkpoint": "recomputed", "mixed": "both"}
FROM = {
    "torchvision": "resnet18 densenet121 mobilenet_v3_small squeezenet1_1",
    "timm": "lcnet_050 vit_tiny_patch16_224 mixer_s32_224",
    "transformers": "GPT2 Llama Gemma2 Bloom Bert Albert DebertaV2 T5 ViT CLIPModel",
}
MORE = {
    "own": (
        "attention, causal, amp_bfloat16",
        "attention, dropout",
        "attention, grouped",
        "GPT, amp_bfloat16",
        "GPT, checkpointed, reentrant",
        "U-Net",
        "two inputs, three losses",
        "embedding bag",
        "volumes",
        "encoder and decoder",
        "complex numbers",
        "in-place chain",
        "function with a backward of its own",
        "outputs that share memory",
    ),
    "transformers": ("Llama, in amp_bfloat16",),
}
_TRAINED = (
    "Each model is trained for three steps without a plan and with one, from the same weights and random numbers. A "
    "loop is right if losses, gradients, buffers and weights are the same to the bit, each step moves what was planned "
    "there and back, in one order, and none leaves its plan."
)
_PLANS = (
    "Plans are the hardest, not the best: one moves all that autograd alone holds, one computes segments of forward "
    "again, one recomputes every second activation and offloads the others."
)
COLUMNS = ("family", "model", "policy", *(each.name for each in fields(Outcome)))


def cases_of(family: str) -> Iterator[Case]:
    wanted = {*FROM.get(family, "").split(), *MORE.get(family, ())}
    module = importlib.import_module(f"reports.capture.{family}_cases")
    return (each for each in module.cases() if each.name in wanted)


def models_page(rows: list[dict[str, str]]) -> str:
    by_model: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        by_model.setdefault((row["family"], row["model"]), {})[row["policy"]] = row
    by_model = {model: found for model, found in by_model.items() if found.keys() == POLICIES.keys()}
    right = sum(all(_is_right(each) for each in found.values()) for found in by_model.values())
    return page(
        (
            Heading("Models trained by a plan", 1),
            escape(f"PyTorch {torch.__version__.partition('+')[0]}, on the CPU; `python -m tests.apply`."),
            escape(_TRAINED),
            escape(_PLANS),
            escape(f"{right} of {len(by_model)} models are right under all plans."),
            table(
                ("family", "model", "tensors saved", "offloaded bytes", "recomputed storages", "both", "right"),
                [
                    (
                        family,
                        name,
                        found["save_on_cpu"]["saves"],
                        f"{int(found['save_on_cpu']['offloaded_bytes']):,}",
                        found["checkpoint"]["remade"],
                        f"{found['mixed']['moved']} offloaded, {found['mixed']['remade']} recomputed",
                        ", ".join(_shown(each) for each in found.values() if not _is_right(each)) or "yes",
                    )
                    for (family, name), found in by_model.items()
                ],
                2,
            ),
        )
    )


def _is_right(row: dict[str, str]) -> bool:
    return row["is_same"] == row["is_moved"] == "true" and not row["departure"]


def _shown(row: dict[str, str]) -> str:
    return f"{POLICIES[row['policy']]}: {row['departure'] or 'not the same'}"


@click.command()
@click.option("--out", default="reports/apply", type=click.Path(file_okay=False, path_type=Path))
def main(out: Path) -> None:
    """Write the table of all models, and the page about it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    path = out / "models.csv"
    rows: dict[tuple[str, ...], tuple[str | int | bool, ...]] = {}
    if path.exists():
        with path.open(newline="") as file:
            rows = {tuple(each[:3]): tuple(each) for each in csv.reader(file) if tuple(each) != COLUMNS}
    with known_as_mixed():
        for case in chain(MODELS.values(), *map(cases_of, ("own", *FROM))):
            for policy in POLICIES:
                key = case.family, case.name, policy
                if key not in rows:
                    rows[key] = (*key, *astuple(compare(case, policy)))
                    click.echo(", ".join(map(str, rows[key])))
                    write_csv(path, COLUMNS, rows.values())
    with path.open(newline="") as file:
        (out / "models.md").write_text(models_page([*csv.DictReader(file)]))


if __name__ == "__main__":
    main()
