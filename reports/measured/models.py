"""Networks whose training steps are measured, with their batches and inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn

from reports.measured.image_models import Classified, UNet, ViT
from reports.measured.language_models import BERT, GPT, GRU, T5, Llama


def ids(batch: int, tokens: int, vocabulary: int) -> tuple[Tensor, ...]:
    """Return tokens and targets."""
    return torch.randint(vocabulary, (batch, tokens)), torch.randint(vocabulary, (batch, tokens))


def images(batch: int, _: int, classes: int) -> tuple[Tensor, ...]:
    """Return images and their classes."""
    return torch.randn(batch, 3, 224, 224), torch.randint(classes, (batch,))


def latents(batch: int, *_: int) -> tuple[Tensor, ...]:
    """Return latents, their noise and its times."""
    return torch.randn(batch, 4, 64, 64), torch.randn(batch, 4, 64, 64), torch.rand(batch)


@dataclass(frozen=True, slots=True)
class Subject:
    """A network that is measured.

    Attributes:
        kind: of network, for tables.
        tokens: of a sequence; 0 for images.
        kinds: of its targets: vocabulary or classes.
        inputs: of batch, tokens and kinds, the arguments of the network.
    """

    make: Callable[[], nn.Module]
    kind: str
    batches: tuple[int, ...]
    tokens: int
    kinds: int
    inputs: Callable[[int, int, int], tuple[Tensor, ...]] = ids
    optimizer: str = "adamw_fused"


SUBJECTS: Final = {
    "gpt2_124m": Subject(lambda: GPT(768, 12, 12), "GPT-2", (4, 16, 32), 1024, 50304),
    "gpt2_355m": Subject(lambda: GPT(1024, 24, 16), "GPT-2", (4, 16), 1024, 50304),
    "gpt2_774m": Subject(lambda: GPT(1280, 36, 20), "GPT-2", (8,), 1024, 50304),
    "llama_0.4b": Subject(lambda: Llama(1024, 24, 16, 8, 2816), "Llama", (4, 8), 2048, 32000),
    "llama_1.2b": Subject(lambda: Llama(2048, 24, 16, 8, 5632), "Llama", (2, 4), 2048, 32000),
    "bert_large": Subject(lambda: BERT(1024, 24, 16), "BERT", (8, 32), 512, 30522),
    "vit_base": Subject(lambda: ViT(768, 12, 12), "vision transformer", (32, 128), 0, 1000, images),
    "vit_large": Subject(lambda: ViT(1024, 24, 16), "vision transformer", (64,), 0, 1000, images),
    "t5_base": Subject(lambda: T5(768, 12, 12, 3072), "T5", (8, 16), 512, 32128),
    "unet": Subject(UNet, "convolutional", (8, 32), 0, 0, latents),
    "resnet50": Subject(lambda: Classified("resnet50"), "convolutional", (32, 128), 0, 1000, images, "sgd"),
    "convnext_base": Subject(lambda: Classified("convnext_base"), "convolutional", (64,), 0, 1000, images),
    "gru": Subject(GRU, "recurrent", (32,), 256, 32000),
}
