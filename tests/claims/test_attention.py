"""Flash attention as others measured it, alone, in float16 with heads of 64 and without a mask.

Source: flash-attention's benchmark, 32 heads and 16,384 tokens a batch, in 512 to 4,096 a sequence: on an RTX 4090
forward (https://github.com/ROCm/flash-attention/issues/27), on an RTX A5000 both ways
(https://github.com/gpu-mode/ring-attention/issues/10). What attention reaches on `rtx_4090` and `a40` is fitted to
these rows, each by one number; backward on cards with the tensor cores of a GeForce follows from them.
"""

from dataclasses import replace

import pytest

from tests.machines import shipped_server
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.units import ElementType

HALF = ElementType.FLOAT16
TOKENS, HEADS, WIDTH = 16384, 32, 64
FORWARD = {512: 84.08, 1024: 81.02, 2048: 81.31, 4096: 81.69}
BACKWARD = {512: 52.88, 1024: 62.54, 2048: 70.07, 4096: 74.80}
FORWARD_4090 = {512: 150.90, 1024: 154.49, 2048: 171.80, 4096: 172.81}
"""TFLOP/s by tokens of a sequence."""


def rtx_a5000() -> EfficientGpu:
    """Return the GA102 of an A40 as an RTX A5000 has it: 64 multiprocessors at 1,695 MHz, 768 GB/s."""
    gpu = efficient_gpu(shipped_server("a40"))
    clock = 1.695e9 * 64
    return replace(
        gpu,
        flop_per_s={**gpu.flop_per_s, ElementType.FLOAT32: 256 * clock, HALF: 1024 * clock},
        dram_bytes_per_s=768e9,
        multiprocessors=64,
    )


def tflop_per_s(gpu: EfficientGpu, tokens: int, *, is_gradient: bool = False) -> float:
    """Return the rate: 4 FLOPs a score and element forward, over Q, K, V and Y, and 10 backward, over eight."""
    flop = (10 if is_gradient else 4) * TOKENS * HEADS * tokens * WIDTH
    nbytes = (8 if is_gradient else 4) * TOKENS * HEADS * WIDTH * HALF.nbytes
    sizes = (TOKENS // tokens, HEADS, tokens, WIDTH)
    return flop / gpu.work_s(HALF, flop, nbytes, sizes, is_gradient=is_gradient) / 1e12


@pytest.mark.parametrize("tokens", FORWARD)
def test_attention_of_an_a5000_is_met_in_both_directions(tokens: int) -> None:
    """Within 3 %: that backward is slower for short sequences is its traffic, which the model adds to its products."""
    gpu = rtx_a5000()
    assert tflop_per_s(gpu, tokens) == pytest.approx(FORWARD[tokens], rel=0.03)
    assert tflop_per_s(gpu, tokens, is_gradient=True) == pytest.approx(BACKWARD[tokens], rel=0.03)


def test_attention_of_an_rtx_4090_is_met() -> None:
    """Within 8 %, 0.5 % on average."""
    gpu = efficient_gpu(shipped_server("rtx_4090"))
    errors = [tflop_per_s(gpu, tokens) / rate - 1 for tokens, rate in FORWARD_4090.items()]
    assert max(map(abs, errors)) <= 0.08
    assert sum(errors) / len(errors) == pytest.approx(0, abs=0.005)


def test_what_attention_takes_beside_products_counts_half_where_these_take_twice_as_many_clocks() -> None:
    """Softmax and loads take as many clocks of a multiprocessor on each card, products on a GeForce twice as many.

    Of an A5000 forward takes 1 / (0.8422 x 0.878) = 1.352 times its products, so that a GeForce would take 1.176,
    0.85 of its peak; measured is 0.91. Backward 1 / (0.8422 x 0.824) = 1.441, so 1.22: 0.819 of its peak.
    """
    found = {}
    for name in ("a40", "rtx_4090"):
        p = efficient_gpu(shipped_server(name)).parameters
        found[name] = [
            1 / (p.tensor_flop_fraction * each) - 1
            for each in (p.attention_flop_fraction, p.attention_gradient_flop_fraction)
        ]
    forward, backward = (one / other for one, other in zip(found["rtx_4090"], found["a40"], strict=True))
    assert backward == pytest.approx(1 / 2, rel=0.01)
    assert 1 / (1 + found["a40"][0] / 2) == pytest.approx(0.85, abs=0.005)
    assert forward == pytest.approx(0.28, abs=0.01)
