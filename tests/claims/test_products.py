"""Products as others measured them one after the other, on boards at their power limit or below it.

Each rate is the mean of square products of 8192 and 10240 of random numbers, after six of them, or the best of several
sizes where no more is stated: issues 43, 78, 79, 95, 97, 112, 120, 160 and 185, pull request 15 and database.md of
https://github.com/zzc0721/torch-performance-test-data. Those of `FITTED`, and products on an H100 SXM of 96 GB at 500 W
(README.md in https://github.com/yifuwang/symm-mem-recipes), say what a FLOP of a chip draws, and nothing else was
fitted to any.
"""

from dataclasses import replace

import pytest

from tests.machines import shipped_server
from vdnnsim.cost.efficiency import efficient_gpu
from vdnnsim.cost.tiled_product import TiledProduct
from vdnnsim.units import ElementType

BFLOAT16, TF32 = ElementType.BFLOAT16, ElementType.TF32
FITTED = {("h100_pcie", BFLOAT16): 488, ("l4", BFLOAT16): 58.2, ("b200", BFLOAT16): 1696}
TFLOP_PER_S = {
    ("h100_pcie", TF32): 235,
    ("h100_sxm", BFLOAT16): 759,
    ("h100_sxm", TF32): 374,
    ("a100_80gb", BFLOAT16): 264.5,
    ("a40", BFLOAT16): 116.5,
    ("a40", TF32): 59.5,
    ("l40s", BFLOAT16): 269,
    ("rtx_a4000", BFLOAT16): 56,
    ("rtx_3090", BFLOAT16): 76.5,
    ("rtx_4090", BFLOAT16): 159.4,
    ("rtx_4090", TF32): 85.1,
    ("rtx_5090", BFLOAT16): 235.7,
    ("rtx_pro_6000", BFLOAT16): 342,
    ("rtx_pro_6000", TF32): 180.6,
}
AT_500_W = {
    (1792, 4096): {4096: 105, 8192: 194, 16384: 391},
    (3584, 8192): {4096: 403, 8192: 828, 16384: 1672},
    (6656, 16384): {4096: 1558, 8192: 2879, 16384: 5842},
}
"""By columns and depth, microseconds by rows."""


def error(machine: str, element_type: ElementType, measured: float) -> float:
    """Return how far the rate of a card is off."""
    gpu = efficient_gpu(shipped_server(machine))
    products = [TiledProduct(size, size, size) for size in (8192, 10240)]
    return sum(each.flop / gpu.product_s(element_type, each) for each in products) / 2e12 / measured - 1


@pytest.mark.parametrize(("machine", "element_type"), TFLOP_PER_S)
def test_products_one_after_the_other_are_met(machine: str, element_type: ElementType) -> None:
    """Within 10 %, 5 % on average. TF32 of an H100 PCIe follows from bfloat16, for at full rate both draw the same."""
    assert abs(error(machine, element_type, TFLOP_PER_S[machine, element_type])) <= 0.1
    off = [abs(error(*key, rate)) for key, rate in TFLOP_PER_S.items()]
    assert sum(off) / len(off) <= 0.05


@pytest.mark.parametrize(("machine", "element_type"), FITTED)
def test_products_that_say_what_a_flop_draws_are_met(machine: str, element_type: ElementType) -> None:
    """To the three digits of the energy."""
    assert abs(error(machine, element_type, FITTED[machine, element_type])) <= 0.01


def test_products_at_500_w_say_what_a_flop_of_an_sxm_card_draws() -> None:
    """To the three digits of the energy on average, each within 8 %; rates at 700 W, above, follow from it."""
    gpu = efficient_gpu(shipped_server("h100_x8_96gb"))
    errors = [
        gpu.product_s(BFLOAT16, TiledProduct(columns, rows, depth)) * 1e6 / measured_us - 1
        for (columns, depth), by_rows in AT_500_W.items()
        for rows, measured_us in by_rows.items()
    ]
    assert sum(errors) / len(errors) == pytest.approx(0, abs=0.001)
    assert max(map(abs, errors)) <= 0.08


def test_without_its_limit_an_h100_of_350_w_would_multiply_a_fifth_faster() -> None:
    """767 TFLOP/s of the 700 W card at 0.827 pJ are 634 W beside 80 W, and 13 W of DRAM.

    At 700 W, r of the clock leaves 634 r r + 13 r = 620, so r = 0.98; at 500 W 420, so r = 0.80. 588 TFLOP/s of the
    350 W card at 0.65 pJ are 382 W: 382 r r + 11 r = 270, so r = 0.83.
    """
    unlimited = {}
    for machine in ("h100_pcie", "h100_sxm", "h100_x8_96gb"):
        gpu, product = efficient_gpu(shipped_server(machine)), TiledProduct(8192, 8192, 8192)
        seconds = (gpu.product_s(BFLOAT16, product), replace(gpu, power=None).product_s(BFLOAT16, product))
        unlimited[machine] = seconds[0] / seconds[1]
    assert unlimited == pytest.approx({"h100_pcie": 1 / 0.83, "h100_sxm": 1 / 0.98, "h100_x8_96gb": 1 / 0.8}, rel=0.005)
