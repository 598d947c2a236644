"""Models of every shape, split by tensor parallelism: what is whole, what is split, and which are refused."""

import re
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from torch import nn

from tests.calibration.capture.ranks import (
    HEADS,
    WIDTH,
    Attention,
    B,
    Decoder,
    F,
    Net,
    Planned,
    captured,
    collectives,
    sizes,
)
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import CaptureError


class Headless(Decoder):
    """A decoder whose output layer is not split."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = self.head
        del self.head

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        x = self.embedding(numbers)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.classes(self.norm(x))
        return logits


def test_without_a_split_head_ranks_have_all_tokens_behind_the_blocks() -> None:
    """They gather 65,536 B behind the last; its gradient is already there, and that of the tokens is gathered again.

    The embedding is whole as well, for no split head has as many rows. Gradients of normalizations are summed within
    layers alone.
    """
    step = captured("tp=2", make_model=Headless)

    pair = [("all_gather", 65536), ("reduce_scatter", 65536)]
    assert sizes(step, F) == [*pair * 4, ("all_gather", 65536)]
    assert sizes(step, B) == [*pair * 4, ("all_gather", 65536)]
    assert sizes(step, Phase.UPDATE) == [("all_reduce", 64)] * (4 * 2 * 3)


class ThreeHeads(Decoder):
    """A decoder with a configuration as of transformers."""

    config = SimpleNamespace(num_attention_heads=3)


class Packed(Decoder):
    """Attention of PyTorch, whose three matrices are one parameter."""

    tp_plan: ClassVar[dict[str, str]] = {"layers.*.mlp.fc1": "colwise", "layers.*.mlp.fc2": "rowwise"}

    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.attention = nn.MultiheadAttention(WIDTH, 2)


def with_heads(model: type[Decoder], heads: int) -> nn.Module:
    made = model()
    for each in made.modules():
        if isinstance(each, Attention):
            each.num_heads = heads
    return made


def test_attention_that_counts_its_heads_has_those_of_a_rank() -> None:
    """Of eight heads four: the same operators as where the number of heads is left open."""
    counted = captured("tp=2", make_model=partial(with_heads, Decoder, HEADS))

    assert [each.name for each in counted.operations] == [each.name for each in captured("tp=2").operations]


class Dense(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Linear(inputs, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.dense(x)
        return y


class Layered(nn.Module):
    """An MLP of a layer as BERT has it."""

    def __init__(self) -> None:
        super().__init__()
        self.intermediate, self.output = Dense(WIDTH, 4 * WIDTH), Dense(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = x + self.output(torch.relu(self.intermediate(x)))
        return y


class Positioned(nn.Module):
    """Holds positions beside the layer before its blocks, as a vision transformer does."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.positions = nn.Linear(WIDTH, WIDTH), nn.Parameter(torch.zeros(1, 4, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.patches(x) + self.positions
        return y


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.layers = Positioned(), nn.ModuleList(Layered() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.before(x)
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("data", ["", "ddp=2,", "fsdp=2,"])
def test_layers_are_named_by_their_owners_and_parameters_beside_modules_are_whole(data: str) -> None:
    """Of 2 x 4 x 16 numbers in float32 each pair gathers its tokens and scatters its result; all are gathered at last.

    A rank has half of two matrices of 1,024 numbers and of 64 biases of each layer, the other 16 biases, and all of
    16 x 16 + 16 + 4 x 16 before the layers; as a shard half of that, but all of the positions, which are one row.
    """
    step = captured(f"{data}tp=2", make_model=Encoder, make_inputs=lambda: ((torch.randn(2, 4, WIDTH),), {}))

    split = [(each.kind.value, each.nbytes) for each in collectives(step, F) if each.stride == 1]
    assert split == [*[("all_gather", 512), ("reduce_scatter", 512)] * 2, ("all_gather", 512)]
    held = 4 * (2 * ((2 * 1024 + 64) // 2 + 16) + 16 * 16 + 16 + 4 * 16)
    given = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
    assert given == ((held + 4 * 4 * 16) // 2 if "fsdp" in data else held)


def test_a_block_that_is_split_itself_gathers_its_input() -> None:
    """2 x 4 x 16 numbers in float32; its result is scattered, and all tokens are gathered for the head."""
    step = captured("tp=2", make_model=Planned, make_inputs=lambda: ((torch.zeros(2, 4, dtype=torch.int64),), {}))

    pair = [("all_gather", 512), ("reduce_scatter", 512)]
    assert sizes(step, F)[:6] == [("all_reduce", 512), *pair * 2, ("all_gather", 512)]


class Onesided(Net):
    """Blocks with layers that are split by columns alone."""

    def __init__(self) -> None:
        super().__init__()
        for block in self.blocks:
            block.fc1 = block.wide
            block.up = block.narrow
            del block.wide, block.narrow


class OwnNorm(nn.Module):
    """Attention that normalizes its input itself, and adds it to its result."""

    def __init__(self) -> None:
        super().__init__()
        inner = Attention(WIDTH)
        self.norm, self.num_heads = nn.LayerNorm(WIDTH), -1
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = inner.q_proj, inner.k_proj, inner.v_proj, inner.o_proj

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + Attention.forward(self, self.norm(x))  # type: ignore[arg-type]  # it has all that this reads


class OwnNorms(Decoder):
    def __init__(self) -> None:
        super().__init__()
        for layer in self.layers:
            layer.attention, layer.before = OwnNorm(), nn.Identity()


def test_attention_that_normalizes_its_own_input_has_all_tokens() -> None:
    """Each of its three layers sums the gradient of its input; the MLP, whose norm is in the block, does so once.

    Two layers of 3 + 1, and the head. In forward both pairs of a layer are summed, and the embedding.
    """
    step = captured("tp=2,sp=never", make_model=OwnNorms)

    assert sizes(step, F) == [("all_reduce", 65536)] * 5 + [("all_reduce", 4096)] * 3
    assert sizes(step, B) == [("all_reduce", 65536)] * (2 * (3 + 1) + 1)


class FixedHeads(Decoder):
    """Says how it is split, and has all heads on each rank."""

    tp_plan: ClassVar[dict[str, str]] = {
        **{f"layers.*.attention.{each}_proj": "colwise" for each in "qkv"},
        "layers.*.attention.o_proj": "rowwise",
    }


@pytest.mark.parametrize(
    ("layout", "model", "message"),
    [
        ("tp=2", Net, "blocks.0.wide: nothing says how it is split; expected layers of nn.Linear named q_proj"),
        ("tp=2", Onesided, "blocks.0: nothing says how it is split"),
        ("tp=16", Decoder, "head: has 8 outputs, expected a multiple of tp=16"),
        ("tp=2", OwnNorms, "layers.0.attention: normalizes its own input, of which a rank has some of the tokens"),
        ("tp=3", lambda: Decoder(24, 9), "gets a tensor of 2x512x24, expected samples x tokens x features"),
        ("tp=2", Packed, "layers.0.attention: holds in_proj_weight, in_proj_bias beside modules"),
        ("ddp=2,tp=2,sp=never", Planned, "head.weight: is shared with another module"),
        ("tp=2", partial(with_heads, FixedHeads, HEADS), "under tp=2 a rank has some of the heads, expected -1"),
        (
            "tp=2",
            partial(with_heads, Decoder, 3),
            "layers.0.attention: num_heads is 3, which cannot be split over 2 ranks",
        ),
        ("tp=2", ThreeHeads, "ThreeHeads: num_attention_heads is 3, which cannot be split over 2 ranks"),
        ("tp=2", lambda: nn.Linear(4, 4), "Linear has neither a `tp_plan` nor a list of equal blocks"),
        ("tp=2", lambda: planned({"blocks.*.wide": "moe_tp_experts"}), "tp_plan says 'moe_tp_experts', expected one"),
        ("tp=2", lambda: planned({"blocks.*": "colwise"}), "blocks.0: is a Block, expected an nn.Linear"),
        ("tp=2", lambda: planned({"head.weight": "colwise"}), "head.weight: tp_plan splits a parameter"),
        ("tp=2", lambda: planned(["wide"]), "tp_plan of Planned is a list, expected a dictionary"),
    ],
)
def test_a_model_that_cannot_be_split_is_refused(layout: str, model: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(CaptureError, match=re.escape(message)):
        captured(layout, make_model=model)


def planned(plan: object) -> nn.Module:
    model = Planned()
    model.tp_plan = plan  # type: ignore[misc, assignment]  # of any kind, as a user may write
    return model
