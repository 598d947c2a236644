"""Models for torch.compile, small in depth and width, so that each is compiled in seconds; real in kind."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from reports.capture.case import Case, config, images, tokens
from vdnnsim.units import Precision

_VOCABULARY = 2000


class UNet(nn.Module):
    """Two levels of convolutions down and up again, with a connection on each."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = _double(3, 32), _double(32, 64), _double(64, 128)
        self.up_second, self.up_first = nn.ConvTranspose2d(128, 64, 2, 2), nn.ConvTranspose2d(64, 32, 2, 2)
        self.down_second, self.down_first = _double(128, 64), _double(64, 32)
        self.head = nn.Conv2d(32, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.first(x)
        second = self.second(functional.max_pool2d(first, 2))
        third = self.third(functional.max_pool2d(second, 2))
        second = self.down_second(torch.cat([self.up_second(third), second], 1))
        output: torch.Tensor = self.head(self.down_first(torch.cat([self.up_first(second), first], 1)))
        return output


def _double(channels: int, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for given in (channels, width):
        layers += [nn.Conv2d(given, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


class Recurrent(nn.Module):
    """A GRU, which torch.compile leaves to cuDNN, between what it compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru = nn.Embedding(1000, 128), nn.GRU(128, 256, 2, batch_first=True)
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 1000)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(functional.gelu(self.norm(self.gru(self.embedding(ids))[0])))
        return output


class Broken(nn.Module):
    """Three pieces, between which torch.compile cannot trace."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(256, 1024), nn.LayerNorm(1024), nn.Linear(1024, 256)
        self.third, self.fourth = nn.Linear(256, 512), nn.Linear(512, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.second(functional.gelu(self.norm(self.first(x))))
        torch._dynamo.graph_break()  # noqa: SLF001
        x = x + self.fourth(functional.silu(self.third(x)))
        torch._dynamo.graph_break()  # noqa: SLF001
        return functional.dropout(x.softmax(-1), 0.1, self.training)


def _transformer(kind: str, model: str, **values: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        made: nn.Module = getattr(transformers, model)(getattr(transformers, kind)(vocab_size=_VOCABULARY, **values))
        return made

    return make


def _timm(name: str, **values: object) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import timm

        made: nn.Module = timm.create_model(name, **values)
        return made

    return make


def _residual() -> nn.Module:
    from torchvision.models.resnet import Bottleneck, ResNet

    made: nn.Module = ResNet(Bottleneck, [1, 1, 1, 1])
    return made


def _case(name: str, family: str, make_model: Callable[[], nn.Module], make_inputs: Callable[[], Any]) -> Case:
    return Case(name, family, make_model, make_inputs, precision=Precision.AMP_BFLOAT16)


_GPT2 = config(n_layer=2, n_embd=256, n_head=4, use_cache=False, bos_token_id=0, eos_token_id=0)
_LLAMA = config(
    num_hidden_layers=2, hidden_size=256, intermediate_size=688, num_attention_heads=8, num_key_value_heads=4,
    use_cache=False,
)  # fmt: skip
_BERT = config(num_hidden_layers=2, hidden_size=256, intermediate_size=1024, num_attention_heads=4)
_T5 = config(num_layers=2, d_model=256, d_ff=512, num_heads=4, use_cache=False, decoder_start_token_id=0)
CASES: Mapping[str, Case] = {
    each.name: each
    for each in (
        _case("GPT-2", "transformers", _transformer("GPT2Config", "GPT2LMHeadModel", **_GPT2), tokens(512)),
        _case("Llama", "transformers", _transformer("LlamaConfig", "LlamaForCausalLM", **_LLAMA), tokens(512)),
        _case("BERT", "transformers", _transformer("BertConfig", "BertForMaskedLM", **_BERT), tokens(512)),
        _case("T5", "transformers", _transformer("T5Config", "T5ForConditionalGeneration", **_T5), tokens(512)),
        _case("ViT", "timm", _timm("vit_tiny_patch16_224", depth=2), images(224, batch=16)),
        _case("ConvNeXt", "timm", _timm("convnext_atto", depths=(1, 1, 2, 1)), images(224, batch=16)),
        _case("ResNet of four bottlenecks", "torchvision", _residual, images(224, batch=16)),
        _case("U-Net", "own", UNet, images(128, batch=16)),
        _case("GRU", "own", Recurrent, lambda: ((torch.randint(1000, (16, 128)),), {})),
        _case("three graphs", "own", Broken, lambda: ((torch.randn(16, 128, 256),), {})),
    )
}
