from dataclasses import fields, replace

import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters, OperatorKind
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.cost.fused_attention import AttentionKernel, attention_taken
from vdnnsim.cost.power_limit import clock_within_limit
from vdnnsim.cost.tiled_product import TiledProduct
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Power
from vdnnsim.units import ElementType

VALUES = {
    each.name: 0.0 if each.name.endswith(("load_flop", "start_depth")) else 0.5 for each in fields(EfficiencyParameters)
} | {"launch_overhead_s": 1.0, "tensor_flop_fraction": 1.0, "cuda_flop_fraction": 1.0, "cuda_cores_per_lane": 0.0}
GPU = EfficientGpu(
    EfficiencyParameters(**VALUES), {ElementType.FLOAT32: 4096.0, ElementType.FLOAT16: 8192.0}, 2048.0, 2
)
SHAPE = ConvolutionShape(1, 8, 8, (8, 8), (3, 3), padding=(1, 1), bias=False)
HALF = ElementType.FLOAT16


def test_a_stream_takes_its_bytes_at_the_fraction_of_its_kind_and_a_launch() -> None:
    """2048 B at half of 2048 B/s take 2 s.

    A normalization by known moments, as in inference, is pointwise: 4 s at a quarter. Of three channels on two
    multiprocessors it keeps 3 of 4 turns busy: 2 s become 8 / 3 s.
    Channels last only fours are normalized as they lie. Three are turned around and back before and after, which moves
    4 / 3 x 2048 B at half of 2048 B/s, and are two launches more.
    """
    assert GPU.stream_s(OperatorKind.POINTWISE, 2048) == 3.0
    quarter = replace(GPU, parameters=replace(GPU.parameters, pointwise_dram_fraction=0.25))
    assert quarter.stream_s(OperatorKind.NORMALIZATION, 2048) == 5.0
    first = GPU.stream_s(OperatorKind.NORMALIZATION, 2048, 3)
    assert first == pytest.approx(1 + 8 / 3)
    assert GPU.stream_s(OperatorKind.NORMALIZATION, 2048, 4, channels_last=True) == 3.0
    assert GPU.stream_s(OperatorKind.NORMALIZATION, 2048, 3, channels_last=True) == pytest.approx(first + 2 + 8 / 3)


@pytest.mark.parametrize(
    ("element_type", "product", "seconds"),
    [
        # One tile, and one wave is the least: 2 x 2 / 4096 x 2048 x 100 = 200 s on one of two multiprocessors.
        (ElementType.FLOAT32, TiledProduct(32, 64, 100), 201.0),
        # 2 s of arithmetic; the operands, 4 (32 + 64 + 2048) = 8576 B, take 8.375 s at half of 2048 B/s.
        (ElementType.FLOAT32, TiledProduct(32, 64, 1), 9.375),
        # Turned around it is 32 x 64; as it is, it takes a tile of 64 x 64.
        (ElementType.FLOAT32, TiledProduct(64, 32, 100), 201.0),
        # Tensor cores have twice the rate of CUDA cores here.
        (HALF, TiledProduct(32, 64, 100), 101.0),
    ],
)
def test_a_product_is_bound_by_tiles_or_operands(
    element_type: ElementType, product: TiledProduct, seconds: float
) -> None:
    """A GPU without tensor cores computes float16 on CUDA cores, here at half the peak."""
    assert GPU.product_s(element_type, product) == seconds
    without = replace(GPU, parameters=replace(GPU.parameters, tensor_flop_fraction=0.0, cuda_flop_fraction=0.5))
    if element_type is HALF:
        assert without.product_s(HALF, product) == 201.0


def test_maps_that_are_not_channels_last_are_turned_around_for_tensor_cores() -> None:
    """X and Y of 512 elements, W of 576: 1600 x 2 B read and written at half of 2048 B/s, 6.25 s, and two launches.

    A 1 x 1 filter needs none where rows of 64 pixels are aligned, and does where they are 49.
    """
    last, first = (GPU.convolution_s(HALF, SHAPE, Phase.FORWARD, channels_last=each) for each in (True, False))
    assert first - last == pytest.approx(6.25 + 2)

    one = replace(SHAPE, kernel=(1, 1), padding=(0, 0))
    assert GPU.convolution_s(HALF, one, Phase.FORWARD) == GPU.convolution_s(
        HALF, one, Phase.FORWARD, channels_last=True
    )
    odd = replace(one, input_size=(7, 7))
    assert GPU.convolution_s(HALF, odd, Phase.FORWARD) > GPU.convolution_s(HALF, odd, Phase.FORWARD, channels_last=True)


def test_maps_in_16_bits_are_turned_around_one_element_at_a_time() -> None:
    """X, Y and W of 1600 elements, at 2.8 billion a second of each of two multiprocessors, however fast DRAM is.

    In TF32 1600 x 4 B are read and written at half of 1e15 B/s.
    """
    fast = replace(GPU, dram_bytes_per_s=1e15, flop_per_s={**GPU.flop_per_s, ElementType.TF32: 8192.0})
    turned = [
        fast.convolution_s(each, SHAPE, Phase.FORWARD)
        - fast.convolution_s(each, SHAPE, Phase.FORWARD, channels_last=True)
        for each in (HALF, ElementType.TF32)
    ]
    assert turned == pytest.approx([2 + 1600 / 5.6e9, 2 + 2 * 1600 * 4 / 0.5e15], rel=1e-12)


def test_tensor_cores_pad_channels_to_what_they_load() -> None:
    """Three channels take the arithmetic of eight in float16, 16 bytes, and X is copied once more.

    Reading and writing 64 x 3 x 64 elements of 2 B take 48 s at half of 2048 B/s, beside two launches. Of a Y of three
    channels it is the same; one that lies as N, C, H, W is turned around anyway.
    """
    for three in (replace(SHAPE, n=64, c=3), replace(SHAPE, n=64, k=3)):
        eight_s, three_s = (
            GPU.convolution_s(HALF, shape, Phase.FORWARD, channels_last=True) for shape in (replace(SHAPE, n=64), three)
        )
        assert three_s == eight_s + 48 + 2
    turned_bytes = 2 * (64 * 64 * (3 + 8) + 3 * 8 * 9)
    turned_s = GPU.convolution_s(HALF, replace(SHAPE, n=64, c=3), Phase.FORWARD)
    assert turned_s == pytest.approx(eight_s + 2 * turned_bytes / 1024 + 2)


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS])
def test_winograd_spares_multiplications_of_wide_layers(phase: Phase) -> None:
    """3 x 3 filters of stride 1 take fewer multiply-adds than the direct method; others all of them."""
    wide = ConvolutionShape(64, 64, 64, (16, 16), (3, 3), padding=(1, 1), bias=False)
    fast = replace(GPU, dram_bytes_per_s=1e9)
    assert fast.convolution_s(ElementType.FLOAT32, wide, phase) < wide.flop / (4096 * 0.5)
    strided = replace(wide, stride=(2, 2))
    assert fast.convolution_s(ElementType.FLOAT32, strided, phase) > strided.flop / (4096 * 0.5)


def test_volumes_pad_channels_to_whole_tiles_of_64_rows() -> None:
    """4 channels and 8 filters, once as volumes one pixel deep: 32 channels take 9 x 32 steps, 8 filters 64 rows.

    A tile of 64 x 64 on one of two multiprocessors at half of 8192: 2 x 2 / 4096 x 4096 x 288 = 1152 s; of maps it is
    one of 32 x 64 and 72 steps, 144 s. X and Y are copied, 64 x (4 + 8) elements of 2 B, read and written at half of
    2048 B/s: 3 s and two launches, of maps X alone, 1 s and two.
    """
    plane = replace(SHAPE, c=4)
    volume = ConvolutionShape(1, 4, 8, (1, 8, 8), (1, 3, 3), (1, 1, 1), (0, 1, 1), bias=False, dilation=(1, 1, 1))
    found = [GPU.convolution_s(HALF, each, Phase.FORWARD, channels_last=True) for each in (plane, volume)]
    assert found == [144 + 1 + 1 + 2, 1152 + 1 + 3 + 2]


def test_depthwise_convolutions_are_no_products() -> None:
    """8 groups of 64 pixels, 9 weights each: 9216 FLOPs at half of 4096 take 4.5 s.

    X, Y and W, 2 (512 + 512 + 72) B, take 2192 / 1024 s. For dW the fraction may be another.
    """
    one = replace(SHAPE, c=1, k=1)
    assert GPU.convolution_s(HALF, one, Phase.FORWARD, groups=8) == 5.5
    slow = replace(GPU, parameters=replace(GPU.parameters, depthwise_weights_flop_fraction=0.25))
    assert slow.convolution_s(HALF, one, Phase.BACKWARD_WEIGHTS, groups=8) == 10.0
    streaming = replace(GPU, flop_per_s={ElementType.FLOAT32: 1e9})
    assert streaming.convolution_s(HALF, one, Phase.FORWARD, groups=8) == 1 + 2192 / 1024


def test_depthwise_weight_gradients_channels_last_are_summed_twice() -> None:
    """7 x 7 filters, 8 groups padded to 32 channels, have 8 sums of 32 x 49 x 4 B to an image, 50176 B.

    With X and Y of 1024 B and W of 784 B they are written at 1024 B/s in 50.766 s, and read in 49 s and a launch.
    """
    one = ConvolutionShape(1, 1, 1, (8, 8), (7, 7), padding=(3, 3), bias=False)
    streaming = replace(GPU, flop_per_s={ElementType.FLOAT32: 1e9})
    seconds = streaming.convolution_s(HALF, one, Phase.BACKWARD_WEIGHTS, groups=8, channels_last=True)
    assert seconds == pytest.approx((50176 + 2 * 1024 + 784) / 1024 + 1 + 49 + 1)
    assert streaming.convolution_s(HALF, one, Phase.BACKWARD_WEIGHTS, groups=8) == pytest.approx(2832 / 1024 + 1)


def test_a_bias_is_a_pass_of_its_own() -> None:
    """Y of 512 x 2 B: read and written in forward, 2 s, read for dB, 1 s; dX has none; each a launch."""
    without, biased = SHAPE, replace(SHAPE, bias=True)
    added = [
        GPU.convolution_s(HALF, biased, phase) - GPU.convolution_s(HALF, without, phase)
        for phase in (Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
    ]
    assert added == pytest.approx([3.0, 0.0, 2.0])


def test_a_power_limit_slows_tensor_cores_until_the_board_draws_it() -> None:
    """32 x 64 x 100 in float16 are 409600 FLOPs in 100 s: 4096 W at 1 J each, beside 1000 W of idle power.

    2024 W leave 1024 W, a quarter, for half the clock: twice the time at half the energy. Of 25088 B that move, 1024 J
    each add 256901 W to the half clock r: 4096 r r + 256901 r = 1024. Beside other seconds the same energy is less
    power. With more than 5096 W, or without a FLOP, nothing changes; CUDA cores keep their time.
    """
    power = Power(1000.0, 1.0, 0.0, limit_watts=2024.0)
    limited, product = replace(GPU, power=power), TiledProduct(32, 64, 100)
    assert (GPU.product_s(HALF, product), limited.product_s(HALF, product)) == (101.0, 201.0)
    assert limited.product_s(ElementType.FLOAT32, product) == GPU.product_s(ElementType.FLOAT32, product)
    assert replace(GPU, power=replace(power, limit_watts=5096.0)).product_s(HALF, product) == 101.0
    clock = clock_within_limit(replace(power, joules_per_dram_byte=1024.0), 409600.0, 25088, 100.0)
    assert 4096 * clock * clock + 25088 * 10.24 * clock == pytest.approx(1024)
    assert clock_within_limit(power, 409600.0, 0, 100.0, 300.0) == 1.0
    beside = clock_within_limit(power, 409600.0, 0, 100.0, 100.0)
    assert 409600.0 * beside / (100.0 / beside + 100.0) == pytest.approx(1024)
    assert clock_within_limit(power, 0.0, 10**9, 1.0) == 1.0


@pytest.mark.parametrize(
    ("tokens", "width", "scores", "computed_scores", "computed_width"),
    [
        (128, 64, 128 * 128, 128 * 128, 64),
        (64, 64, 64 * 64, 128 * 128, 64),
        # Of 256 tokens a causal mask leaves 256 x 257 / 2 scores, in three blocks of four.
        (256, 64, 256 * 257 // 2, 3 * 128 * 128, 64),
        (128, 80, 128 * 128, 128 * 128, 128),
        # The softmax takes as long as products of 96 elements.
        (128, 32, 128 * 128, 128 * 128, 96),
    ],
)
def test_attention_computes_whole_blocks_at_its_fraction(
    tokens: int, width: int, scores: int, computed_scores: int, computed_width: int
) -> None:
    """At half of 8192 FLOP/s; backward has five products in place of two, and streams 1024 B at half of 2048 B/s."""
    narrow = 96.0 if width == 32 else 1.0
    gpu = replace(GPU, parameters=replace(GPU.parameters, attention_score_width=narrow))
    sizes = (2, 3, tokens, width)
    forward_s = 2 * 3 * 4 * computed_scores * computed_width / 4096
    assert gpu.work_s(HALF, 6 * 4 * scores * width, 1024, sizes) == pytest.approx(1 + forward_s)
    backward = gpu.work_s(HALF, 6 * 10 * scores * width, 1024, sizes, is_gradient=True)
    assert backward == pytest.approx(1 + 2.5 * forward_s + 1)


@pytest.mark.parametrize(
    ("operator", "element_type", "is_gradient", "fraction"),
    [
        ("flash_attention", HALF, False, 1 / 4),
        ("flash_attention_backward", HALF, True, 1 / 8),
        ("efficient_attention", HALF, False, 1 / 16),
        ("efficient_attention_backward", HALF, True, 1 / 16),
        ("efficient_attention", ElementType.FLOAT32, False, 1 / 32),
        ("cudnn_attention", HALF, False, 1 / 2),
    ],
)
def test_each_kernel_of_attention_has_its_fraction(
    operator: str,
    element_type: ElementType,
    is_gradient: bool,  # noqa: FBT001 - drawn
    fraction: float,
) -> None:
    """Of 8192 FLOP/s, in float32 of 4096."""
    parameters = VALUES | {"flash_flop_fraction": 1 / 4, "flash_gradient_flop_fraction": 1 / 8}
    parameters |= {"unsized_flop_fraction": 0.0}
    parameters |= {"efficient_flop_fraction": 1 / 16, "efficient_float32_flop_fraction": 1 / 32}
    gpu, kernel = replace(GPU, parameters=EfficiencyParameters(**parameters)), AttentionKernel.of(operator)
    found = gpu.work_s(element_type, 8192, 1, (), kernel, is_gradient=is_gradient)
    assert found == 1 + 8192 / (gpu.flop_per_s[element_type] * fraction)


def test_products_of_unknown_sizes_have_a_fraction_of_their_own_where_it_is_stated() -> None:
    """Of 8192 FLOP/s: a quarter, forward and backward; attention, whose sizes are known, keeps its half."""
    gpu = replace(GPU, parameters=replace(GPU.parameters, unsized_flop_fraction=1 / 4, attention_score_width=64.0))
    assert gpu.work_s(HALF, 8192, 1) == gpu.work_s(HALF, 8192, 1, is_gradient=True) == 1 + 4
    sizes = (1, 1, 128, 64)
    assert gpu.work_s(HALF, 4 * 128 * 128 * 64, 1, sizes) == 1 + 4 * 128 * 128 * 64 / 4096


@pytest.mark.parametrize(
    ("kernel", "element_type", "captured_for", "taken"),
    [
        ("flash_", HALF, (8, 9), ""),
        ("efficient_", HALF, None, ""),
        ("efficient_", ElementType.FLOAT32, (8, 9), "efficient_"),
        ("flash_", HALF, (9, 0), "flash_"),
        ("cudnn_", HALF, (9, 0), "cudnn_"),
    ],
)
def test_attention_that_was_captured_for_another_card_runs_as_the_card_tries_first(
    kernel: str, element_type: ElementType, captured_for: tuple[int, int] | None, taken: str
) -> None:
    name = "aten._scaled_dot_product_{}attention_backward.default"
    assert attention_taken(name.format(kernel), element_type, captured_for) == name.format(taken)


def test_what_no_row_tells_is_as_fast_as_what_is_like_it() -> None:
    """But for the gradient of a normalization of rows: of its five passes, X and dY twice and dX, three count."""
    stated = VALUES | {"attention_flop_fraction": 0.3, "row_normalization_dram_fraction": 0.2}
    for name in (
        "attention_gradient_flop_fraction",
        "attention_score_width",
        "unsized_flop_fraction",
        "flash_flop_fraction",
        "flash_gradient_flop_fraction",
        "efficient_flop_fraction",
        "efficient_float32_flop_fraction",
        "row_normalization_gradient_dram_fraction",
        "softmax_dram_fraction",
        "scatter_dram_fraction",
    ):
        del stated[name]
    gpu = replace(GPU, parameters=EfficiencyParameters.from_mapping("toy", stated))
    assert gpu.work_s(HALF, 2**20, 1, (1, 1, 8, 8), is_gradient=True) == gpu.work_s(HALF, 2**20, 1)
    assert {gpu.work_s(HALF, 2**20, 1, (), each) for each in AttentionKernel} == {gpu.work_s(HALF, 2**20, 1)}
    assert gpu.parameters.softmax_dram_fraction == 0.2
    assert gpu.parameters.row_normalization_gradient_dram_fraction == pytest.approx(0.12)
    assert gpu.parameters.scatter_dram_fraction == gpu.parameters.pointwise_dram_fraction
