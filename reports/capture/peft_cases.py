"""Adapters of peft around frozen models of transformers."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import peft
from torch import nn

from reports.capture.case import Case, config, tokens
from reports.capture.transformers_cases import model

_LLAMA = config(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=128,
)
_PARTS = {"target_modules": ["q_proj", "v_proj"]}
_ADAPTERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LoRA": ("LoraConfig", _PARTS | {"r": 4, "lora_dropout": 0.1}),
    "LoRA of all products": ("LoraConfig", {"r": 4, "target_modules": "all-linear"}),
    "DoRA": ("LoraConfig", _PARTS | {"r": 4, "use_dora": True}),
    "IA3": ("IA3Config", {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}),
    "LoHa": ("LoHaConfig", _PARTS | {"r": 4}),
    "LoKr": ("LoKrConfig", _PARTS | {"r": 4}),
    "VeRA": ("VeraConfig", _PARTS | {"r": 8}),
    "OFT": ("OFTConfig", _PARTS | {"oft_block_size": 8}),
    "prompt tuning": ("PromptTuningConfig", {"num_virtual_tokens": 4}),
    "prefix tuning": ("PrefixTuningConfig", {"num_virtual_tokens": 4}),
}


def cases() -> Iterator[Case]:
    for name, (kind, settings) in _ADAPTERS.items():
        yield Case(name, "peft", partial(_adapted, kind, settings), tokens(64))


def _adapted(kind: str, settings: dict[str, Any]) -> nn.Module:
    base = model("Llama", "LlamaForCausalLM", _LLAMA)()
    adapted: nn.Module = peft.get_peft_model(base, getattr(peft, kind)(task_type="CAUSAL_LM", **settings))
    return adapted
