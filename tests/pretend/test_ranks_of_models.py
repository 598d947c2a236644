"""Ranks of eight models of transformers on a pretended GPU, and their replays."""

from functools import partial
from typing import Any

import pytest
import torch

from calibration.capture.losses import AssumedLoss
from tests.calibration.capture import ranks
from tests.pretend.rank_peaks import TOKENS, WIDTH, WORDS, check
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.units import Precision

pytestmark = pytest.mark.pretend

SIZES: dict[str, Any] = {"hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": 16}
WIDE = SIZES | {"intermediate_size": 4 * WIDTH, "vocab_size": WORDS}


def of_transformers(name: str) -> Any:  # noqa: ANN401 - a model; its library has no types here
    """Return a model of three layers; its library takes seconds to import."""
    import transformers

    causal = transformers.AutoModelForCausalLM.from_config
    match name:
        case "llama":
            return causal(transformers.LlamaConfig(**WIDE, num_key_value_heads=8))
        case "qwen2":
            return causal(transformers.Qwen2Config(**WIDE, num_key_value_heads=8))
        case "gpt2":
            words: dict[str, Any] = {"bos_token_id": None, "eos_token_id": None}
            return causal(transformers.GPT2Config(n_embd=WIDTH, n_layer=3, n_head=16, vocab_size=WORDS, **words))
        case "opt":
            return causal(
                transformers.OPTConfig(**SIZES, ffn_dim=4 * WIDTH, vocab_size=WORDS, word_embed_proj_dim=WIDTH)
            )
        case "bert":
            return transformers.BertForMaskedLM(transformers.BertConfig(**WIDE))
        case "t5":
            words = {"d_ff": 4 * WIDTH, "num_layers": 3, "num_heads": 16, "vocab_size": WORDS}
            return transformers.T5ForConditionalGeneration(transformers.T5Config(d_model=WIDTH, **words))
        case "vit":
            config = transformers.ViTConfig(**SIZES, intermediate_size=4 * WIDTH)
            return transformers.ViTForImageClassification(config)
        case _:
            return transformers.ConvNextForImageClassification(transformers.ConvNextConfig())


@pytest.mark.filterwarnings("ignore:A saved_tensors_hooks context")
@pytest.mark.filterwarnings("ignore:Grad strides do not match bucket view strides")  # of convolutions of one channel
@pytest.mark.parametrize(
    ("name", "layouts"),
    [
        *((name, "ddp=8 fsdp=8 zero2=8 zero1=8") for name in ("t5", "convnext")),
        ("bert", "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8 fsdp=4,tp=2"),
        pytest.param("opt", "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8 fsdp=4,tp=2", marks=pytest.mark.thorough),
        ("vit", "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8,sp=never fsdp=4,tp=2,sp=never ddp=4,tp=2,sp=never"),
        *(
            pytest.param(name, "ddp=8 fsdp=8 zero2=8 zero1=8 tp=8 fsdp=4,tp=2 pp=2 pp=3,tp=2", marks=marks)
            for name, marks in (("gpt2", ()), ("llama", pytest.mark.thorough), ("qwen2", pytest.mark.thorough))
        ),
    ],
)
def test_ranks_of_eight_models(name: str, layouts: str, subtests: pytest.Subtests) -> None:
    """DDP reserves what its replay does; of others some reserve up to 7 % more or less (LIMITS.md)."""
    for layout in layouts.split():
        parsed = parse_layout(layout)
        samples = 2 if parsed.pipeline > 1 else 8
        words = {"input_ids": torch.zeros(samples, TOKENS, dtype=torch.int64)}
        if name == "t5":
            words["decoder_input_ids"] = words["input_ids"]
        if name in ("vit", "convnext"):
            words = {"pixel_values": torch.zeros(32, 3, 224, 224)}
        for position in {0, parsed.pipeline - 1}:
            wanted = ranks.program(
                layout,
                Precision.AMP_BFLOAT16,
                position,
                make_model=partial(of_transformers, name),
                make_inputs=lambda words=words: ((), {key: each.clone() for key, each in words.items()}),
                loss=AssumedLoss(name),
                accumulate=8 if parsed.pipeline > 1 else 1,
            )
            with subtests.test(layout=layout, position=position):
                check(wanted, 0.01 if parsed.is_replicated and parsed.tensor == 1 else 0.08)
