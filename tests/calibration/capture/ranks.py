"""Models that ranks share, their captures, and real processes, which run one over gloo and write its collectives.

python -m tests.calibration.capture.ranks FOLDER LAYOUT...
"""

import sys
from collections.abc import Mapping
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import torch
from torch import distributed, nn
from torch._ops import OpOverload

from calibration.capture.capture import capture
from calibration.capture.losses import AssumedLoss
from calibration.capture.parallel.collectives import exchange_of
from calibration.capture.parallel.world import rank_of
from calibration.capture.preparation import prepare
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.schemas import OperatorMode
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

SAMPLES, WIDTH, CLASSES = 6, 16, 8
TOKENS, HEADS = 512, 8
BLOCK, HEAD = 8512, 544
"""Bytes of the 16 x 64 + 64 + 64 x 16 + 16 = 2,128 parameters of a block of `Net`, and of the 136 of its head."""
F, B = Phase.FORWARD, Phase.BACKWARD


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.narrow(torch.relu(self.wide(x)))
        return x + narrow


class Net(nn.Module):
    """Two blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        head: torch.Tensor = self.head(x)
        return head


class Attention(nn.Module):
    """Attention; each rank has some of the heads."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_heads = -1
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, tokens, width = x.shape
        q, k, v = (
            each(x).view(samples, tokens, self.num_heads, width // HEADS).transpose(1, 2)
            for each in (self.q_proj, self.k_proj, self.v_proj)
        )
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: torch.Tensor = self.o_proj(attended.transpose(1, 2).reshape(samples, tokens, -1))
        return result


class Layer(nn.Module):
    """Attention and two linear layers, each behind a normalization."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention, self.mlp = Attention(width), nn.Sequential()
        self.mlp.fc1, self.mlp.act, self.mlp.fc2 = nn.Linear(width, 4 * width), nn.ReLU(), nn.Linear(4 * width, width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.before(x))
        result: torch.Tensor = x + self.mlp(self.between(x))
        return result


class Decoder(nn.Module):
    """A transformer of tokens, whose layers have names by which they can be split."""

    def __init__(self, width: int = WIDTH, words: int = CLASSES, layers: int = 2) -> None:
        super().__init__()
        self.embedding, self.positions = nn.Embedding(words, width), nn.Embedding(TOKENS, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.embedding(numbers) + self.positions(torch.arange(numbers.shape[1], device=numbers.device))
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits


class Four(Net):
    """Four blocks and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks.extend(Block() for _ in range(2))


class Planned(nn.Module):
    """A block whose plan is stated, in a model whose embedding and head have one weight."""

    tp_plan: ClassVar[dict[str, str]] = {
        "blocks.*.wide": "colwise",
        "blocks.*.narrow": "rowwise",
        "table": "embedding_rowwise",
        "head": "colwise_gather_output",
    }

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(8, WIDTH), nn.Linear(WIDTH, 8, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head.weight = self.table.weight

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.table(numbers)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.head(x)
        return logits


def program(
    layout: str,
    precision: Precision = Precision.FLOAT32,
    position: int = 0,
    **others: Any,  # noqa: ANN401 - fields
) -> Program:
    """Return a program of `Net`, or of `Decoder` where layers are split."""
    parsed = replace(parse_layout(layout), position=position) if layout else None
    splits = parsed is not None and parsed.tensor > 1
    asked: dict[str, Any] = {
        "make_model": Decoder if splits else Net,
        "make_inputs": lambda: (
            (torch.zeros(2, TOKENS, dtype=torch.int64) if splits else torch.randn(SAMPLES, WIDTH),),
            {},
        ),
        "loss": AssumedLoss("net") if splits else lambda y: y.float().sum(),
        "optimizer": "adamw",
        "mode": Mode.TRAINING,
        "batch_size": SAMPLES,
        "layout": parsed,
    }
    return Program(name="net", precision=precision, **(asked | others))


def captured(layout: str, **others: object) -> CapturedStep:
    step = capture(program(layout, **others), CaptureDevice())  # type: ignore[arg-type]  # fields of a program
    check_captured_step(step, layout)
    return step


def collectives(step: CapturedStep, phase: Phase | None = None) -> list[Collective]:
    found = (each for each in step.operations if phase in (None, each.phase))
    return [each.collective for each in found if each.collective is not None]


def sizes(step: CapturedStep, phase: Phase) -> list[tuple[str, int]]:
    return [(each.kind.value, each.nbytes) for each in collectives(step, phase)]


class Collectives(OperatorMode):  # type: ignore[no-untyped-call]
    """Collects the collectives within."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Collective] = []

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        exchange = exchange_of(func, args, kwargs, result)
        if exchange is not None and exchange.collective is not None:
            self.found.append(exchange.collective)
        return result


def asked_of(layout: str, rank: int) -> Program:
    """Return the program of a rank, in a pipeline with micro-batches for all stages."""
    parsed = parse_layout(layout)
    return program(layout, position=rank // parsed.ranks_of_stage, accumulate=parsed.pipeline)


def collectives_of(folder: str, layout: str, rank: int) -> list[Collective]:
    asked = asked_of(layout, rank)
    assert asked.layout is not None
    ranks = asked.layout.ranks
    store = f"file://{Path(folder) / layout}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    with rank_of(ranks):
        torch.manual_seed(0)
        iteration = prepare(asked, asked.make_model(), "cpu", foreach=True)
        # In the second forward of DistributedDataParallel ranks agree on the order of its buckets.
        for _ in range(1 + asked.layout.is_replicated):
            iteration.run(lambda _: None)
        with Collectives() as collectives:
            iteration.run(lambda _: None)
        found: list[Collective] = collectives.found
        distributed.barrier()
    distributed.destroy_process_group()
    return found


def main() -> None:
    folder, *layouts = sys.argv[1:]
    # Forked, they share what PyTorch's import took.
    context, found = get_context("fork"), []
    for layout in layouts:
        ranks = parse_layout(layout).ranks
        with context.Pool(ranks) as pool:
            found.append(pool.starmap(collectives_of, [(folder, layout, rank) for rank in range(ranks)], chunksize=1))
    sys.stdout.buffer.write(msgspec.json.encode(found))


if __name__ == "__main__":
    main()
