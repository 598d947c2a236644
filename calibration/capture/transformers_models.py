"""Models of transformers by type, by name on huggingface.co, or by a `config.json`, with random weights."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import nn

from calibration.capture.failures import failure_outside
from calibration.capture.hub_models import hub_model, hub_models
from calibration.capture.libraries import NamedModel, library, library_version, timm_model, unknown_name
from vdnnsim.dnn.captured_step import ProgramText
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import describe, describe_exception, file_name

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
_OWN_CODE: Final = "expected a function that makes the model, FILE.py:NAME"


def transformers_names() -> list[str]:
    return sorted(_types())


def transformers_model(name: str) -> NamedModel:
    """Return a model of transformers with a head that has a loss.

    Its name is a type, `gpt2`, or one on huggingface.co, `openai-community/gpt2-xl`, also without owner and `-hf`.

    Raises:
        CaptureError: there is no such model, or its type has no default configuration.
    """
    known = hub_model(name)
    kind = known.kind if known else name.rpartition("/")[2].lower().removesuffix("-hf")
    if kind not in _types():
        raise unknown_name("transformers", name, [*hub_models(), *transformers_names()])
    try:
        config = _types()[kind](**(known.changes if known else {}))
    except Exception as failure:
        # Some are composed of others without a default.
        raise CaptureError(
            f"transformers:{name} has no configuration by default, {_OWN_CODE}: {describe_exception(failure)}"
        ) from failure
    modeling = import_module("transformers.models.auto.modeling_auto")
    head = next((head for head, mapping in _HEADS if type(config) in getattr(modeling, mapping)), "AutoModel")
    source = f"the configuration of huggingface.co/{known.name}" if known else "its type's configuration"
    made = _with_inputs(config, head, partial(getattr(modeling, head).from_config, config), f"{head} of {source}")
    if known:
        # Else weights get the type in which they were published.
        words = f'{head}.from_pretrained("{known.name}", dtype=torch.float32)'
        return replace(made, text=ProgramText((f"from transformers import {head}",), words))
    text = f'{head}.from_config(AutoConfig.for_model("{kind}"))'
    return replace(made, text=ProgramText((f"from transformers import AutoConfig, {head}",), text))


def configured_model(path: Path) -> NamedModel:
    """Return the model that a `config.json` of the hub describes, of the class that it names.

    Raises:
        CaptureError: the file cannot be read, or describes no model that transformers or timm can build.
    """
    try:
        stated = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as failure:
        raise CaptureError(f"{file_name(path)}: cannot be read: {failure}") from None
    if "model_type" not in stated and isinstance(stated.get("architecture"), str):
        return timm_model(stated["architecture"])
    kind, types = stated.pop("model_type", None), _types()
    if kind not in types:
        raise CaptureError(
            f"{file_name(path)}: model_type: found {describe(kind)}, which is no type of "
            f"{library_version('transformers')}; {_OWN_CODE}"
        )
    if "quantization_config" in stated:
        raise CaptureError(
            f"{file_name(path)}: quantization_config: found quantized weights, expected the configuration of the model "
            "before it was quantized"
        )
    # Weights are made in float32, and converted to what is asked for.
    for each in (stated, *(value for value in stated.values() if isinstance(value, dict))):
        for key in ("dtype", "torch_dtype"):
            each.pop(key, None)
    try:
        config = types[kind].from_dict(stated)
    except Exception as failure:
        raise CaptureError(f"{file_name(path)}: {describe_exception(failure)}") from failure
    named = next(iter(stated.get("architectures") or ()), "")
    try:
        model_class = getattr(import_module("transformers"), str(named), None)
    except ImportError as failure:
        raise failure_outside(failure, f"{file_name(path)}: architectures: {named}") from failure
    if model_class is None:
        raise CaptureError(
            f"{file_name(path)}: architectures: found {describe(named)}, which is no class of "
            f"{library_version('transformers')}; {_OWN_CODE}"
        )
    made = _with_inputs(config, named, partial(model_class, config), f"{named} of {file_name(path)}")
    text = f"{named}(AutoConfig.from_pretrained({str(path)!r}))"
    return replace(made, text=ProgramText((f"from transformers import AutoConfig, {named}",), text))


def _types() -> Any:  # noqa: ANN401 - transformers is not there where types are checked
    # Warnings about weights and generation.
    library("transformers").logging.set_verbosity_error()
    return import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING


def _with_inputs(config: Any, head: str, make: Callable[[], nn.Module], note: str) -> NamedModel:  # noqa: ANN401
    if "Seq2SeqLM" in head or "ForConditionalGeneration" in head:
        # Labels are shifted and padded with these; any value will do.
        for token in ("decoder_start_token_id", "pad_token_id"):
            if getattr(config, token, None) is None:
                setattr(config, token, 0)
    if "ForImageClassification" in head:
        return _of_images(make, config, note)
    try:
        text = config.get_text_config()
    except ValueError:  # it has several
        return NamedModel(make, note=note)
    if head == "AutoModelForSpeechSeq2Seq" or not isinstance(getattr(text, "vocab_size", None), int):
        return NamedModel(make, note=note)
    most = next((value for each in _POSITIONS if isinstance(value := getattr(text, each, None), int)), _TOKENS)
    if "ForSequenceClassification" in head and text.pad_token_id is None:
        # By which the last token of each sequence is found.
        text.pad_token_id = 0

    def arguments(batch: int, tokens: int, _image: tuple[int, ...]) -> dict[str, Any]:
        numbers = torch.zeros(batch, tokens, dtype=torch.int64)
        return {"input_ids": numbers, **_labels(head, numbers)}

    return NamedModel(make, tokens=min(most, _TOKENS), arguments=arguments, note=note)


def _labels(head: str, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the labels with which a head returns a loss."""
    if head.endswith("Model") and not head.endswith("LMHeadModel"):
        return {}
    of_samples = torch.zeros(len(numbers), dtype=torch.int64)
    if "ForSequenceClassification" in head:
        return {"labels": of_samples}
    if "ForQuestionAnswering" in head:
        return {"start_positions": of_samples, "end_positions": of_samples.clone()}
    return {"labels": numbers.clone()}


def _of_images(make: Callable[[], nn.Module], config: Any, note: str) -> NamedModel:  # noqa: ANN401
    size = getattr(config, "image_size", None) or 224
    sides = tuple(size) if isinstance(size, tuple | list) else (size, size)

    def arguments(batch: int, _tokens: int, image: tuple[int, ...]) -> dict[str, Any]:
        return {"pixel_values": torch.randn(batch, *image), "labels": torch.zeros(batch, dtype=torch.int64)}

    image = (int(getattr(config, "num_channels", 3)), *sides)
    return NamedModel(make, image=image, arguments=arguments, note=f"{note}, of {config.num_labels} classes")
