"""Fused attention: which kernel a card runs, and the FLOPs in whose time it does.

PyTorch tries flash attention before memory-efficient attention, which takes float32 and masks, too. On Hopper and on
Blackwell of data centers (9.x, 10.x) it tries cuDNN's first, from cuDNN 9.15.1 on, which PyTorch 2.11 brings with CUDA
13 (check_prefer_cudnn_attention in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp).

Scores are computed in blocks of 128 queries and keys, of which a causal mask leaves those on and below the diagonal;
heads in 64 elements. The softmax of the scores runs beside the products, and decides where heads are narrower than
`attention_score_width`. Fitted to kernels of an H100.

What a multiprocessor computes beside products takes as many clocks on every card, products twice as many where tensor
cores compute half of the FLOPs a clock. So attention is nearer to its products on a GeForce (512 FLOPs a clock and
multiprocessor in 16 bits, sums in float32) than on an A40 or an L40S (1,024), which `tests/claims/test_attention.py`
holds to measured kernels.
"""

import math
from collections.abc import Sequence
from enum import Enum
from typing import Final

from vdnnsim.units import ElementType

FUSED: Final = "_scaled_dot_product_"
"""In the names of PyTorch's operators, before that of the kernel."""
_TRIES_CUDNN: Final = (9, 10)
"""Major compute capabilities of cards."""
_SCORES: Final = 128
_WIDTHS: Final = 64
_FORWARD_FLOP: Final = 4
_GRADIENT_FLOP: Final = 10
"""For each score and element of a head: two products, and five."""


class AttentionKernel(Enum):
    """A kernel of fused attention, by what names of operators say of it; `FIRST` is what a card tries first."""

    FIRST = ""
    FLASH = "flash_"
    EFFICIENT = "efficient_"

    @classmethod
    def of(cls, operator: str) -> "AttentionKernel":
        """Return the kernel of an operator."""
        return next((each for each in (cls.FLASH, cls.EFFICIENT) if each.value in operator), cls.FIRST)


def attention_taken(operator: str, element_type: ElementType, captured_for: tuple[int, int] | None) -> str:
    """Return the operator of fused attention that a card runs in place of one that was captured for another card.

    Where cuDNN is tried first, a step that was captured there has what its attention takes. One that was captured
    elsewhere has flash or memory-efficient attention, for both of which, in 16 bits, a card runs what it tries first.
    """
    is_wide = element_type.nbytes >= ElementType.FLOAT32.nbytes
    if is_wide or (captured_for is not None and captured_for[0] in _TRIES_CUDNN):
        return operator
    kernel = AttentionKernel.of(operator).value
    return operator.replace(f"{FUSED}{kernel}", FUSED)


def attention_work(flop: int, sizes: Sequence[int], score_width: float, *, is_gradient: bool) -> float:
    """Return the FLOPs in whose time attention is computed.

    Args:
        flop: of its products, without what a causal mask hides.
        sizes: samples, heads, tokens and the width of a head.
        score_width: the width of a head whose products take as long as the softmax of its scores.
        is_gradient: whether it is backward.
    """
    *heads, tokens, width = sizes
    each = _GRADIENT_FLOP if is_gradient else _FORWARD_FLOP
    is_masked = flop / (each * width) < math.prod(heads) * tokens * (tokens + 2) / 2
    edge = -(-tokens // _SCORES) * _SCORES
    scores = math.prod(heads) * edge * ((edge + _SCORES) / 2 if is_masked else edge)
    return each * scores * max(-(-width // _WIDTHS) * _WIDTHS, score_width)
