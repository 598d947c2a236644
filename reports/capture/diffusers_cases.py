"""Denoisers and autoencoders of diffusers, from configurations of their own, shrunk."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import diffusers
import torch

from calibration.capture.program import Arguments
from reports.capture.case import Case, config, images

_UNET = config(sample_size=32, block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8)
_PLAIN = config(down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"))
_CROSS = config(cross_attention_dim=32, attention_head_dim=8)
_CROSS_DOWN = config(**_CROSS, down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"))
_CONTROLLED = config(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, **_CROSS_DOWN)
_CODER = config(
    block_out_channels=(32, 64),
    norm_num_groups=8,
    down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
    up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
)
_TINY = config(
    encoder_block_out_channels=(32, 32),
    decoder_block_out_channels=(32, 32),
    num_encoder_blocks=(1, 1),
    num_decoder_blocks=(1, 1),
)
_HEADS = config(num_attention_heads=4, attention_head_dim=16)
_DIT = config(**_HEADS, num_layers=2, sample_size=16)
_SD3 = config(
    in_channels=4, out_channels=4, joint_attention_dim=32, caption_projection_dim=64, pooled_projection_dim=32
)
_FLUX = config(
    num_layers=1,
    num_single_layers=1,
    in_channels=4,
    joint_attention_dim=32,
    pooled_projection_dim=32,
    axes_dims_rope=(4, 4, 8),
)
_UNET3D = config(
    down_block_types=("CrossAttnDownBlock3D", "DownBlock3D"), up_block_types=("UpBlock3D", "CrossAttnUpBlock3D")
)


def cases() -> Iterator[Case]:
    step = torch.tensor([1, 7])

    def with_step(*shape: int, **others: tuple[int, ...]) -> Callable[[], Arguments]:
        def make() -> Arguments:
            return (torch.randn(2, *shape), step.clone()), {key: torch.randn(2, *each) for key, each in others.items()}

        return make

    def latents(*others: Callable[[], torch.Tensor]) -> Callable[[], Arguments]:
        return lambda: ((torch.randn(2, 4, 16, 16), *(each() for each in others)), {})

    words = {"encoder_hidden_states": (8, 32)}
    text, pooled = partial(torch.randn, 2, 8, 32), partial(torch.randn, 2, 32)
    kinds: dict[str, tuple[dict[str, Any], Callable[[], Arguments]]] = {
        "UNet2DModel": (_UNET | _PLAIN, with_step(3, 32, 32)),
        "UNet2DConditionModel": (
            config(**_UNET, **_CROSS_DOWN, up_block_types=("UpBlock2D", "CrossAttnUpBlock2D")),
            with_step(4, 32, 32, **words),
        ),
        "ControlNetModel": (_CONTROLLED, with_step(4, 32, 32, **words, controlnet_cond=(3, 256, 256))),
        "AutoencoderKL": (_CODER, images(64)),
        "VQModel": (config(**_CODER, num_vq_embeddings=64), images(32)),
        "AutoencoderTiny": (_TINY, images(64)),
        "DiTTransformer2DModel": (
            config(**_DIT, in_channels=4, norm_num_groups=8),
            latents(step.clone, lambda: torch.tensor([1, 2])),
        ),
        "PixArtTransformer2DModel": (
            config(**_DIT, caption_channels=32, cross_attention_dim=64, out_channels=8),
            latents(text, step.clone),
        ),
        "SD3Transformer2DModel": (_DIT | _SD3, latents(text, pooled, step.clone)),
        "FluxTransformer2DModel": (_HEADS | _FLUX, _flux),
        "UNet3DConditionModel": (
            config(block_out_channels=(32, 64), layers_per_block=1, norm_num_groups=8, **_CROSS, **_UNET3D),
            with_step(4, 4, 16, 16, **words),
        ),
        "PriorTransformer": (
            config(**_HEADS, num_layers=2, embedding_dim=32, num_embeddings=8),
            with_step(32, proj_embedding=(32,), encoder_hidden_states=(8, 32)),
        ),
    }
    for name, (settings, make_inputs) in kinds.items():
        yield Case(name, "diffusers", partial(getattr(diffusers, name), **settings), make_inputs)


def _flux() -> Arguments:
    return (), {
        "hidden_states": torch.randn(2, 64, 4),
        "encoder_hidden_states": torch.randn(2, 8, 32),
        "pooled_projections": torch.randn(2, 32),
        "timestep": torch.tensor([0.1, 0.2]),
        "img_ids": torch.zeros(64, 3),
        "txt_ids": torch.zeros(8, 3),
    }
