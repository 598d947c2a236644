"""The work of fused attention, beyond the FLOPs of the scores that a mask leaves.

Scores are computed in blocks of 128 queries and keys, of which a causal mask leaves those on and below the diagonal;
heads in 64 elements. The softmax of the scores runs beside the products, and decides where heads are narrower than
`attention_score_width`. Fitted to cuDNN's kernels, which PyTorch takes on Hopper.
"""

import math
from collections.abc import Sequence
from typing import Final

_SCORES: Final = 128
_WIDTHS: Final = 64
_FORWARD_FLOP: Final = 4
_GRADIENT_FLOP: Final = 10
"""For each score and element of a head: two products, and five."""


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
