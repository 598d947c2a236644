"""A rank of several on a pretended GPU, where PyTorch's own code runs in its fake process group, and its replay."""

import dataclasses

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from calibration.capture.losses import AssumedLoss
from calibration.capture.program import Program
from tests.calibration.capture import ranks
from tests.pretend.rank_peaks import TOKENS, WIDTH, WORDS, check
from vdnnsim.units import Precision

pytestmark = pytest.mark.pretend

SAMPLES = 16


class Decoder(nn.Module):
    """Layers of a transformer, and a head."""

    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(layers)
        )
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(x)
        return logits


def asked(
    layout: str, precision: Precision, checkpointing: str = "", *, layers: int = 3, samples: int = SAMPLES
) -> Program:
    made = ranks.program(layout, precision, checkpointing=checkpointing, accumulate=2 if "sync" in layout else 1)
    assert made.layout is not None
    if made.layout.tensor > 1:
        numbers = torch.zeros(samples, TOKENS, dtype=torch.int64)
        return replace(
            made,
            make_model=lambda: ranks.Decoder(WIDTH, WORDS, layers),
            make_inputs=lambda: ((numbers.clone(),), {}),
            loss=AssumedLoss("decoder"),
        )
    return replace(
        made,
        make_model=lambda: Decoder(layers),
        make_inputs=lambda: ((torch.randn(samples, TOKENS, WIDTH),), {}),
    )


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.parametrize(
    ("layout", "checkpointing"),
    [
        *((layout, "") for layout in ("ddp=8", "zero1=4", "fsdp=8", "fsdp=3", "zero2=4", "hsdp=2x2")),
        *(("fsdp=4", how) for how in ("full", "selective", "2")),
        *((layout, "") for layout in ("fsdp=4,offload=cpu", "fsdp=4,sync=last", "ddp=4,sync=last")),
        ("ddp=4,reduce=bfloat16", ""),
        ("fsdp=8,reshard=4", ""),
        *((layout, "") for layout in ("fsdp=4,wrap=4M", "fsdp=4,reduce=bfloat16", "zero2=4,prefetch=1")),
        *(("fsdp=4,prefetch=2", how) for how in ("", "full")),
        ("hsdp=2x2,reduce=bfloat16", ""),
        *((layout, "") for layout in ("tp=8", "tp=4,sp=never", "fsdp=8,tp=8", "hsdp=2x2,tp=2", "fsdp=2,tp=2,wrap=1M")),
        *((layout, "") for layout in ("ddp=2,tp=2", "zero1=2,tp=4", "ddp=2,tp=2,sp=never")),
        *(("fsdp=4,tp=2", how) for how in ("full", "selective")),
    ],
)
def test_peak_and_collectives_of_a_rank_are_those_of_its_replay(layout: str, checkpointing: str) -> None:
    """In mixed precision; a kernel takes memory for a moment as well, less than half a percent of what is allocated."""
    check(asked(layout, Precision.AMP_BFLOAT16, checkpointing), 0.01)


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.parametrize(
    ("layout", "position", "checkpointing"),
    [
        *(("pp=4", position, "") for position in (0, 1, 3)),
        *(("pp=2,interleave=2", position, "") for position in (0, 1)),
        *(("pp=2,fsdp=2", position, "full") for position in (0, 1)),
        *(("pp=2,tp=2", position, "") for position in (0, 1)),
        *(
            pytest.param(*each, marks=pytest.mark.thorough)
            for each in (
                *((layout, position, "") for layout in ("pp=2,fsdp=2", "pp=2,ddp=2") for position in (0, 1)),
                *(("pp=2,zero1=2", 1, ""), ("pp=2,fsdp=2,tp=2", 1, "full"), ("pp=2,ddp=2,tp=2", 0, "")),
            )
        ),
    ],
)
def test_peak_and_sends_of_a_stage_are_those_of_its_replay(layout: str, position: int, checkpointing: str) -> None:
    """Four layers over four stages, or over two with two each, and eight micro-batches of two samples."""
    made = asked(layout, Precision.AMP_BFLOAT16, checkpointing, layers=4, samples=SAMPLES // 8)
    assert made.layout is not None
    placed = dataclasses.replace(made.layout, position=position)
    check(replace(made, layout=placed, batch_size=SAMPLES // 8, accumulate=8), 0.07)
