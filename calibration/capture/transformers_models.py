"""Models of transformers by type or by a published size, with random weights."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, Final

import torch
from torch import nn

from calibration.capture.libraries import NamedModel, library, unknown_name
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import describe_exception

_PUBLISHED: Final = """
    # Touvron et al. 2023, LLaMA, Table 2; widths of the feed-forward as published with the weights.
    llama-7b    llama
    llama-13b   llama   hidden_size=5120 intermediate_size=13824 num_hidden_layers=40 num_attention_heads=40
    llama-30b   llama   hidden_size=6656 intermediate_size=17920 num_hidden_layers=60 num_attention_heads=52
    llama-65b   llama   hidden_size=8192 intermediate_size=22016 num_hidden_layers=80 num_attention_heads=64
    # Touvron et al. 2023, Llama 2, Table 1.
    llama-2-7b  llama   max_position_embeddings=4096
    # Grattafiori et al. 2024, The Llama 3 Herd of Models, Table 3.
    llama-3-8b  llama   vocab_size=128256 intermediate_size=14336 num_key_value_heads=8 max_position_embeddings=8192
    # Jiang et al. 2023, Mistral 7B, Table 1.
    mistral-7b  mistral
    # Radford et al. 2019, Table 2, with the 12, 16, 20 and 25 heads of the published models.
    gpt2-small  gpt2
    gpt2-medium gpt2    n_embd=1024 n_layer=24 n_head=16
    gpt2-large  gpt2    n_embd=1280 n_layer=36 n_head=20
    gpt2-xl     gpt2    n_embd=1600 n_layer=48 n_head=25
    # Devlin et al. 2019, section 3.
    bert-base   bert
    bert-large  bert    hidden_size=1024 intermediate_size=4096 num_hidden_layers=24 num_attention_heads=16
    # Raffel et al. 2020, section 3.7.
    t5-small    t5
    t5-base     t5      d_model=768 d_ff=3072 num_layers=12 num_heads=12
    t5-large    t5      d_model=1024 d_ff=4096 num_layers=24 num_heads=16
    # Zhang et al. 2022, OPT, Table 1.
    opt-125m    opt
    opt-1.3b    opt     hidden_size=2048 ffn_dim=8192 num_hidden_layers=24 num_attention_heads=32
    opt-6.7b    opt     hidden_size=4096 ffn_dim=16384 num_hidden_layers=32 num_attention_heads=32
    # Dosovitskiy et al. 2021, Table 1.
    vit-base    vit
    vit-large   vit     hidden_size=1024 intermediate_size=4096 num_hidden_layers=24 num_attention_heads=16
"""

SIZES: Final[Mapping[str, tuple[str, Mapping[str, int]]]] = {
    name: (kind, {key: int(value) for key, value in (each.split("=") for each in changes)})
    for name, kind, *changes in (line.split() for line in _PUBLISHED.strip().splitlines() if "#" not in line)
}
"""By name the type of a model, and differences from the default configuration of that type."""

_HEADS: Final = (
    ("AutoModelForSpeechSeq2Seq", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING"),
    ("AutoModelForSeq2SeqLM", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING"),
    # Before the causal ones, for BERT can be made one, too.
    ("AutoModelForMaskedLM", "MODEL_FOR_MASKED_LM_MAPPING"),
    ("AutoModelForCausalLM", "MODEL_FOR_CAUSAL_LM_MAPPING"),
    ("AutoModelForImageClassification", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING"),
)
"""Heads with a loss; a model gets the first that its type has."""
_POSITIONS: Final = ("max_position_embeddings", "n_positions", "max_sequence_length", "max_target_positions")
_TOKENS: Final = 2048
"""Limit of tokens of a sequence."""


def transformers_model(name: str) -> NamedModel:
    """Return a model of transformers with a head that has a loss.

    Its name is a type, `gpt2`, or a size, `gpt2-xl`; as on the hub with or without an owner and `-hf`.

    Raises:
        CaptureError: there is no such model, or its type has no default configuration.
    """
    # Warnings about weights and generation.
    library("transformers").logging.set_verbosity_error()
    config = _configuration(name)
    modeling = import_module("transformers.models.auto.modeling_auto")
    known = (head for head, mapping in _HEADS if type(config) in getattr(modeling, mapping))
    head = next(known, "AutoModel")
    if head == "AutoModelForSeq2SeqLM":
        # Labels are shifted and padded with these; any value will do.
        for token in ("decoder_start_token_id", "pad_token_id"):
            if getattr(config, token, None) is None:
                setattr(config, token, 0)
    make = partial(getattr(modeling, head).from_config, config)
    note = f"{head} of its type's configuration"
    if head == "AutoModelForImageClassification":
        return _of_images(make, config, note)
    try:
        text = config.get_text_config()
    except ValueError:  # it has several
        return NamedModel(make, note=note)
    if head == "AutoModelForSpeechSeq2Seq" or not isinstance(getattr(text, "vocab_size", None), int):
        return NamedModel(make, note=note)
    most = next((value for each in _POSITIONS if isinstance(value := getattr(text, each, None), int)), _TOKENS)

    def arguments(batch: int, tokens: int, _image: tuple[int, ...]) -> dict[str, Any]:
        numbers = torch.zeros(batch, tokens, dtype=torch.int64)
        return {"input_ids": numbers} if head == "AutoModel" else {"input_ids": numbers, "labels": numbers.clone()}

    return NamedModel(make, tokens=min(most, _TOKENS), arguments=arguments, note=note)


def _configuration(name: str) -> Any:  # noqa: ANN401 - transformers is not there where types are checked
    mapping = import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    asked = name.rpartition("/")[2].lower().removesuffix("-hf")
    kind, changes = SIZES.get(asked, (asked, {}))
    if kind not in mapping:
        raise unknown_name("transformers", name, [*SIZES, *sorted(mapping)])
    try:
        return mapping[kind](**changes)
    except Exception as failure:
        # Some are composed of others without a default.
        raise CaptureError(
            f"transformers:{name} has no configuration by default, expected a function that makes it, FILE.py:NAME: "
            f"{describe_exception(failure)}"
        ) from failure


def _of_images(make: Callable[[], nn.Module], config: Any, note: str) -> NamedModel:  # noqa: ANN401
    size = getattr(config, "image_size", None) or 224
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)

    def arguments(batch: int, _tokens: int, image: tuple[int, ...]) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, *image), "labels": torch.zeros(batch, dtype=torch.int64)}

    image = (int(getattr(config, "num_channels", 3)), *sides)
    return NamedModel(make, image=image, arguments=arguments, note=f"{note}, of {config.num_labels} classes")
