"""Predicted times of planned loops before the first step, beside those that steps take on a pretended GPU.

    python -m calibration.pretend --hardware rtx_4090 -- python -m reports.promises reports/apply/promises.csv
    python -m reports.apply_pages reports/apply

The operations of each plan are predicted three times, so that each difference has one cause: with kernel times of the
profile's cost model, with those found on the GPU before planning, and with no host time but that of each call
(`issue`), which is all that a pretended clock counts.
"""

import csv
import gc
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from calibration.apply.operation_measurement import measured_here
from reports.apply_pages import PART, POLICY
from vdnnsim.analysis.measured_step import planned_s
from vdnnsim.api.planning import Planned, PlanRequest, request_plan
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import AdjustedCosts
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.scenario.simulator import Simulator

COLUMNS: Final = (
    *("model", "limit_bytes", "plain_s", "profile_s", "promised_s", "clock_s", "first_s", "third_s"),
    *("refit_promised_s", "refit_third_s", "on_demand"),
)
_STEPS: Final = 3


def twice(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions with their normalizations."""

    def once(channels: int) -> tuple[nn.Module, ...]:
        return (
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        )

    return nn.Sequential(*once(inputs), *once(outputs))


class UNet(nn.Module):
    """U-Net of Ronneberger et al., 2015, padded and with batch normalization, as it is mostly built today."""

    def __init__(self, width: int, depth: int = 4) -> None:
        super().__init__()
        widths = [width << level for level in range(depth + 1)]
        steps = [*pairwise(widths)]
        self.first = twice(3, width)
        self.down = nn.ModuleList(twice(fine, coarse) for fine, coarse in steps)
        self.up = nn.ModuleList(nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in reversed(steps))
        self.joined = nn.ModuleList(twice(coarse, fine) for fine, coarse in reversed(steps))
        self.last = nn.Conv2d(width, 2, 1)

    def forward(self, batch: Tensor) -> Tensor:
        """Return two maps, of the size of the images."""
        kept = [self.first(batch)]
        for down in self.down:
            kept.append(down(functional.max_pool2d(kept[-1], 2)))
        batch = kept.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            batch = joined(torch.cat([kept.pop(), up(batch)], 1))
        found: Tensor = self.last(batch)
        return found


class Attention(nn.Module):
    """Causal attention as nanoGPT has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, batch: Tensor) -> Tensor:
        """Return as many vectors, each of those up to its place."""
        images, steps, width = batch.shape
        query, key, value = (
            each.view(images, steps, self.heads, width // self.heads).transpose(1, 2)
            for each in self.into(batch).split(width, dim=2)
        )
        found = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        result: Tensor = self.out(found.transpose(1, 2).contiguous().view(images, steps, width))
        return result


class Block(nn.Module):
    """One block of it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, batch: Tensor) -> Tensor:
        """Return a vector of each place."""
        batch = batch + self.attention(self.before(batch))
        result: Tensor = batch + self.wide(self.between(batch))
        return result


class NanoGpt(nn.Module):
    """A small GPT as nanoGPT builds it."""

    def __init__(self, blocks: int = 6, width: int = 384, heads: int = 6, words: int = 8192, steps: int = 256) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(steps, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(blocks)))
        self.after, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, text: Tensor) -> Tensor:
        """Return the logits of each place."""
        places = torch.arange(text.shape[1], device=text.device)
        result: Tensor = self.head(self.after(self.blocks(self.words(text) + self.places(places))))
        return result


class Sentences(nn.Module):
    """Layers of an LSTM and of what widens and narrows each of its steps."""

    def __init__(self, width: int = 512) -> None:
        super().__init__()
        self.recurrent = nn.ModuleList(nn.LSTM(width, width, batch_first=True) for _ in range(4))
        wide = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(4)]
        self.wide = nn.ModuleList(wide)

    def forward(self, batch: Tensor) -> Tensor:
        """Return as many vectors."""
        for recurrent, wide in zip(self.recurrent, self.wide, strict=True):
            batch = wide(recurrent(batch)[0])
        return batch


def unet(width: int, images: int, side: int) -> tuple[nn.Module, Tensor]:
    """Return a U-Net of a width and a batch of square images."""
    return UNet(width), torch.zeros(images, 3, side, side)


def encoder() -> tuple[nn.Module, Tensor]:
    """Return six layers of a transformer and a batch for them."""
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.zeros(32, 256, 512)


def timm(name: str, images: int) -> tuple[nn.Module, Tensor]:
    """Return a model of timm and a batch of images."""
    from timm import create_model

    return create_model(name), torch.zeros(images, 3, 224, 224)


MODELS: Final[Mapping[str, Callable[[], tuple[nn.Module, Tensor]]]] = {
    "U-Net, small": lambda: unet(32, 8, 128),
    "U-Net, large": lambda: unet(64, 8, 256),
    "nanoGPT": lambda: (NanoGpt(), torch.zeros(32, 256, dtype=torch.int64)),
    "ViT-S/16": lambda: timm("vit_small_patch16_224", 32),
    "ResNet-18": lambda: timm("resnet18", 64),
    "ResNet-50": lambda: timm("resnet50", 32),
    "ConvNeXt-T": lambda: timm("convnext_tiny", 32),
    "encoder": encoder,
    "LSTM": lambda: (Sentences(), torch.zeros(64, 256, 512)),
}


def loss(output: Tensor) -> Tensor:
    """Return the mean of the squares."""
    return output.float().square().mean()


@dataclass(frozen=True, slots=True)
class Question:
    """What a plan is asked for, of one model on this GPU."""

    model: nn.Module
    batch: Tensor
    asked: PlanRequest
    limit_bytes: int
    plain_s: float


def question(model: nn.Module, batch: Tensor, hardware: str, *, part: float = PART, policy: str = POLICY) -> Question:
    """Ask for a plan within a part of what the plain loop allocates."""
    model.cuda()
    batch = batch.cuda()
    torch.cuda.reset_peak_memory_stats()
    *_, plain_s = steps(model, batch, None)
    limit_bytes = int(torch.cuda.max_memory_allocated() * part)
    model.zero_grad()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # there is no public way
    torch.cuda.empty_cache()
    asked = request_plan(
        *(model, batch),
        hardware=hardware,
        memory=f"{limit_bytes} B",
        policy=policy,
        loss=loss,
        precision="float32",
        optimizer="sgd",
    )
    return Question(model, batch, asked, limit_bytes, plain_s)


def steps(model: nn.Module, batch: Tensor, made: Planned | None, count: int = _STEPS) -> list[float]:
    """Return the seconds of forward and backward in some steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for _ in range(count):
        torch.cuda.synchronize()
        begin_s = time.perf_counter()
        if made is None:
            loss(model(batch)).backward()  # type: ignore[no-untyped-call]
        else:
            with made.apply(model):
                loss(model(batch)).backward()  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        found.append(time.perf_counter() - begin_s)
        optimizer.step()
        optimizer.zero_grad()
    return found


def of_calls_alone(asked: PlanRequest) -> PlanRequest:
    """Return what is asked for where the host costs nothing but its calls, as on a pretended clock."""
    host = replace(asked.server.host, dispatch_forward_s=0.0, dispatch_backward_s=0.0, dispatch_library_s=0.0)
    return replace(asked, server=replace(asked.server, host=host))


def of_the_profile(asked: PlanRequest) -> PlanRequest:
    """Return what is asked for where kernels last as the cost model of the profile says."""
    kernels, _, _ = measured_here(asked.captured, asked.tape.calls, asked.device, is_timed=False)
    return replace(asked, kernels=kernels)


def promised_s(made: Planned, asked: PlanRequest) -> float:
    """Return what the operations of a plan would take by the costs of another question."""
    plan = made.predicted.trace.plan
    costs = AdjustedCosts(ServerCosts(asked.server), asked._price)  # noqa: SLF001
    simulator = Simulator.of(plan.workload, asked.server, asked.memory_model, PinnedMemory.ARENA, cost_model=costs)
    return planned_s(simulator.replay((plan,), (simulator.place_unlimited(plan),)).gpus[0])


def row(name: str, hardware: str) -> tuple[object, ...]:
    """Return what was found of a model; nothing but its limit where no plan fits."""
    made_of = MODELS[name]
    found = question(*made_of(), hardware)
    try:
        made = found.asked.planned()
    except PolicyError:
        return name, found.limit_bytes, found.plain_s, *("" for _ in COLUMNS[3:])
    predicted = (
        promised_s(made, of_the_profile(found.asked)),
        planned_s(made.predicted.trace),
        promised_s(made, of_calls_alone(found.asked)),
    )
    taken = steps(found.model, found.batch, made)
    on_demand = sum(len(each.on_demand) for each in made.loop.steps)
    with TemporaryDirectory() as folder:
        made.trace(Path(folder) / "step")
        steps(found.model, found.batch, made, 1)
    again = made.refit()
    refitted = steps(found.model, found.batch, again)
    return (
        *(name, found.limit_bytes, found.plain_s, *predicted, taken[0], taken[-1]),
        *(planned_s(again.predicted.trace), refitted[-1], on_demand),
    )


if __name__ == "__main__":
    path = Path(sys.argv[1])
    begins = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if begins:
            writer.writerow(COLUMNS)
        for name in sys.argv[2:] or MODELS:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            gc.collect()
            torch.cuda.empty_cache()
            writer.writerow(row(name, "rtx_4090"))
            file.flush()
