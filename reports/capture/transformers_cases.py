"""Models of transformers from configurations of their own, shrunk: decoders, encoders, both, vision, audio, several."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import nn

from calibration.capture.program import Arguments
from reports.capture.case import Case, config, images, tokens
from vdnnsim.units import Precision

_SMALL = config(
    vocab_size=1000,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=128,
    max_position_embeddings=256,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
_GROUPED = config(**_SMALL, num_key_value_heads=2)
_GPT = config(vocab_size=1000, n_embd=64, n_layer=2, n_head=4, n_positions=256, bos_token_id=1, eos_token_id=2)
_BOTH = config(
    vocab_size=1000,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_position_embeddings=256,
)
_T5 = config(vocab_size=1000, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, decoder_start_token_id=0)
_VISION = config(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=64, patch_size=8
)
_DECODERS: dict[str, dict[str, Any]] = {
    "GPT2": _GPT,
    "GPTJ": config(**_GPT, rotary_dim=8),
    "CodeGen": config(**_GPT, rotary_dim=8),
    "GPTBigCode": _GPT,
    "GPTNeo": config(
        vocab_size=1000, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
    ),
    "GPTNeoX": _SMALL,
    "Llama": _GROUPED,
    "Mistral": _GROUPED,
    "Mixtral": config(**_GROUPED, num_local_experts=4),
    "Qwen2": _GROUPED,
    "Qwen3": config(**_GROUPED, head_dim=16),
    "Qwen2Moe": config(**_GROUPED, num_experts=4, moe_intermediate_size=64, shared_expert_intermediate_size=64),
    "Gemma": config(**_GROUPED, head_dim=16),
    "Gemma2": config(**_GROUPED, head_dim=16),
    "Phi": _SMALL,
    "Phi3": _GROUPED,
    "OPT": config(**_SMALL, ffn_dim=128, word_embed_proj_dim=64),
    "Bloom": config(vocab_size=1000, hidden_size=64, n_layer=2, n_head=4),
    "Falcon": config(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4),
    "StableLm": _GROUPED,
    "Starcoder2": _GROUPED,
    "Olmo": _GROUPED,
    "Olmo2": _GROUPED,
    "Cohere": _GROUPED,
    "Granite": _GROUPED,
    "Mamba": config(vocab_size=1000, hidden_size=64, num_hidden_layers=2, state_size=8),
    "BioGpt": _SMALL,
    "XGLM": config(vocab_size=1000, d_model=64, ffn_dim=128, num_layers=2, attention_heads=4),
    "SmolLM3": _GROUPED,
}
_ENCODERS: dict[str, dict[str, Any]] = {
    "Bert": _SMALL,
    "Roberta": _SMALL,
    "DistilBert": config(vocab_size=1000, dim=64, n_layers=2, n_heads=4, hidden_dim=128),
    "Albert": config(**_SMALL, embedding_size=32),
    "Electra": config(**_SMALL, embedding_size=32),
    "DebertaV2": config(**_SMALL, relative_attention=True, pos_att_type=["p2c", "c2p"]),
    "MPNet": _SMALL,
    "MobileBert": config(**_SMALL, embedding_size=32, intra_bottleneck_size=32, true_hidden_size=32),
    "Funnel": config(vocab_size=1000, block_sizes=[1, 1], d_model=64, n_head=4, d_head=16, d_inner=128),
    "ConvBert": config(**_SMALL, embedding_size=64),
    "SqueezeBert": config(**_SMALL, embedding_size=64),
    "Nystromformer": config(**_SMALL, num_landmarks=16, segment_means_seq_len=64),
    "Longformer": config(**_SMALL, attention_window=32),
    "FNet": _SMALL,
    "RoFormer": config(**_SMALL, embedding_size=64),
    "ModernBert": _SMALL,
}
_SEQUENCES: dict[str, dict[str, Any]] = {
    "T5": _T5,
    "UMT5": _T5,
    "SwitchTransformers": config(**_T5, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1, num_experts=4),
    "Bart": _BOTH,
    "Pegasus": _BOTH,
    "MBart": _BOTH,
    "Blenderbot": _BOTH,
    "M2M100": _BOTH,
    "LED": config(
        **_BOTH, max_encoder_position_embeddings=256, max_decoder_position_embeddings=256, attention_window=32
    ),
}
_VISIONS: dict[str, dict[str, Any]] = {
    "ViT": _VISION,
    "DeiT": _VISION,
    "Beit": config(**_VISION, use_relative_position_bias=True),
    "Dinov2": _VISION,
    "Swin": config(image_size=64, patch_size=4, embed_dim=32, depths=[2, 2], num_heads=[2, 4], window_size=4),
    "ConvNext": config(depths=[1, 1, 2, 1], hidden_sizes=[16, 32, 64, 64]),
    "Segformer": {},
    "ResNet": config(embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1]),
    "RegNet": config(embedding_size=16, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1], groups_width=16),
    "MobileViT": config(image_size=64),
    "Cvt": {},
    "PoolFormer": {},
}

_WAYS: dict[str, tuple[dict[str, Any], Precision]] = {
    "in amp_bfloat16": ({}, Precision.AMP_BFLOAT16),
    "in bfloat16": ({}, Precision.BFLOAT16),
    "checkpointed": ({"checkpointed": True}, Precision.FLOAT32),
    "attention in steps": ({"attn_implementation": "eager"}, Precision.FLOAT32),
}


def cases() -> Iterator[Case]:
    for name, settings in _DECODERS.items():
        yield _case(name, _causal(name, settings), tokens(64))
    for name, settings in _ENCODERS.items():
        yield _case(name, model(name, f"{name}ForMaskedLM", settings), tokens(64))
    for name, settings in _SEQUENCES.items():
        yield _case(name, model(name, f"{name}ForConditionalGeneration", settings), tokens(64))
    for name, settings in _VISIONS.items():
        yield _case(name, model(name, f"{name}ForImageClassification", settings), images(64))
    for name, settings, make_inputs in _others():
        yield _case(name, model(name.removesuffix("Model").removesuffix("ForPreTraining"), name, settings), make_inputs)
    for name in ("Llama", "GPT2"):
        for way, (changes, precision) in _WAYS.items():
            made = _causal(name, {**_DECODERS[name], **changes})
            yield Case(f"{name}, {way}", "transformers", made, tokens(64), precision=precision)


def model(name: str, kind: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
    """Return a function that makes a model of a class; `checkpointed` is activation checkpointing."""

    def make() -> nn.Module:
        chosen = dict(settings)
        checkpointed = chosen.pop("checkpointed", False)
        implementation = {key: chosen.pop(key) for key in ("attn_implementation",) if key in chosen}
        configuration = getattr(transformers, f"{name}Config")(**chosen, **implementation)
        made: nn.Module = getattr(transformers, kind)(configuration)
        if checkpointed:
            made.gradient_checkpointing_enable()  # type: ignore[operator]
        return made

    return make


def _causal(name: str, settings: dict[str, Any]) -> Callable[[], nn.Module]:
    return model(name, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM", settings)


def _case(name: str, make_model: Callable[[], nn.Module], make_inputs: Callable[[], Arguments]) -> Case:
    return Case(name, "transformers", make_model, make_inputs)


def _others() -> Iterator[tuple[str, dict[str, Any], Callable[[], Arguments]]]:
    """Yield models of audio, of images and text, and of masked images."""
    sound = config(
        **_SMALL, conv_dim=[32] * 3, conv_stride=[5, 4, 4], conv_kernel=[10, 8, 4], num_feat_extract_layers=3
    )
    # Without `layerdrop`, which leaves layers out at random.
    sound |= config(num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, layerdrop=0.0)
    for name in ("Wav2Vec2Model", "HubertModel"):
        yield name, sound, lambda: ((torch.randn(2, 8000),), {})
    yield "ASTModel", _VISION | {"max_length": 64, "num_mel_bins": 32}, lambda: ((torch.randn(2, 64, 32),), {})
    whisper = config(**_BOTH, num_mel_bins=16, max_source_positions=50, max_target_positions=32)
    whisper |= config(pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    yield (
        "WhisperModel",
        whisper,
        lambda: ((torch.randn(2, 16, 100),), {"decoder_input_ids": torch.randint(3, 1000, (2, 16))}),
    )
    pair = {"text_config": _SMALL, "vision_config": _VISION, "projection_dim": 32}
    for name in ("CLIPModel", "SiglipModel"):
        yield name, pair, _pair
    yield "ViTMAEForPreTraining", _VISION, images(64)


def _pair() -> Arguments:
    ids = torch.randint(3, 1000, (2, 16))
    return (), {"input_ids": ids, "pixel_values": torch.randn(2, 3, 64, 64), "return_loss": True}
