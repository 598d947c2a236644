import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.workspace import (
    FFT,
    FFT_TILING,
    GEMM,
    IMPLICIT_GEMM,
    IMPLICIT_PRECOMP_GEMM,
    WINOGRAD,
    WINOGRAD_NONFUSED,
    algorithms,
    tiles,
    transform_side,
    workspace_bytes,
)
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import GIB

VGG_CONV2_2 = ConvolutionShape(256, 128, 128, (112, 112), (3, 3), padding=(1, 1))

# Source: github.com/Slimakanzer/cudnn-benchmark out_example.txt at 652d8e08, cuDNN 7.5, batch 32, 3x3, padding 1:
# channels, filters, side, then the forward workspaces of explicit GEMM, implicit precomputed GEMM and FFT tiling.
PUBLISHED = [
    (512, 486, 19, 212_926_464, 2_172, 1_221_926_912),
    (256, 324, 38, 425_852_928, 8_672, 522_567_680),
    (256, 256, 38, 425_852_928, 8_672, 427_868_160),
    (64, 64, 75, 414_720_000, 33_756, 53_526_528),
]


@pytest.mark.parametrize(("c", "k", "side", "gemm", "precomp", "tiling"), PUBLISHED)
def test_workspaces_are_the_published_ones(c: int, k: int, side: int, gemm: int, precomp: int, tiling: int) -> None:
    shape = ConvolutionShape(32, c, k, (side, side), (3, 3), padding=(1, 1))
    assert workspace_bytes(shape, Phase.FORWARD, IMPLICIT_GEMM, 4) == 0
    assert workspace_bytes(shape, Phase.FORWARD, GEMM, 4) == gemm
    assert workspace_bytes(shape, Phase.FORWARD, IMPLICIT_PRECOMP_GEMM, 4) == precomp
    for phase in (Phase.FORWARD, Phase.BACKWARD_DATA):
        assert workspace_bytes(shape, phase, FFT_TILING, 4) == pytest.approx(tiling, rel=1e-3)


def test_workspaces_of_vgg_conv2_2() -> None:
    """112 + 2 pixels a side transform as 128 x 65 complex numbers of 8 bytes, for 2 x 256 x 128 + 128 x 128 maps.

    8 x 128 x 65 x (32768 + 32768 + 16384) = 66560 x 81920 = 5,452,595,200 bytes = 5.08 GiB, in every phase.
    """
    for phase in (Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS):
        nbytes = workspace_bytes(VGG_CONV2_2, phase, FFT, 4)
        assert nbytes == 66_560 * 81_920
        assert nbytes / GIB == pytest.approx(5.08, abs=0.005)
    # A batch of half precision columns is half as large.
    full = workspace_bytes(VGG_CONV2_2, Phase.FORWARD, GEMM, 4)
    assert workspace_bytes(VGG_CONV2_2, Phase.FORWARD, GEMM, 2) == full // 2


def test_transforms_cover_what_they_compute() -> None:
    """A 9 x 9 filter over 64 x 64 leaves 56 x 56; its gradient pads that by 8 on each side to 72, beyond 64."""
    shape = ConvolutionShape(128, 64, 128, (64, 64), (9, 9))
    assert shape.output_size == (56, 56)
    assert transform_side(shape, Phase.FORWARD) == 64
    assert transform_side(shape, Phase.BACKWARD_WEIGHTS) == 64
    assert transform_side(shape, Phase.BACKWARD_DATA) == 128
    # A 3 x 3 filter leaves 30 pixels of a 32 x 32 tile: 7 pixels take one tile, 61 take three.
    assert transform_side(ConvolutionShape(1, 1, 1, (7, 7), (3, 3), padding=(1, 1)), Phase.FORWARD) == 16
    shape = ConvolutionShape(1, 1, 1, (7, 61), (3, 3), padding=(1, 1))
    assert tiles(shape, Phase.FORWARD) == (1, 3)
    assert tiles(shape, Phase.BACKWARD_DATA) == (1, 3)


def test_precomputed_indices_count_the_pixels_of_the_map_that_is_computed() -> None:
    """4 x 4 pixels become 2 x 2: 6 x 5 = 30 bytes, so 32; the data gradient computes 16: 6 x 17 = 102, so 104."""
    shape = ConvolutionShape(1, 1, 1, (4, 4), (3, 3))
    assert workspace_bytes(shape, Phase.FORWARD, IMPLICIT_PRECOMP_GEMM, 4) == 32
    assert workspace_bytes(shape, Phase.BACKWARD_WEIGHTS, IMPLICIT_PRECOMP_GEMM, 4) == 32
    assert workspace_bytes(shape, Phase.BACKWARD_DATA, IMPLICIT_PRECOMP_GEMM, 4) == 104


def test_each_phase_has_its_algorithms_and_more_where_a_library_has_winograd() -> None:
    forward = (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM, FFT, FFT_TILING)
    for phase, offered, more in (
        (Phase.FORWARD, forward, (WINOGRAD, WINOGRAD_NONFUSED)),
        (Phase.BACKWARD_DATA, tuple(each for each in forward if each != GEMM), (WINOGRAD, WINOGRAD_NONFUSED)),
        (Phase.BACKWARD_WEIGHTS, (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, FFT), (WINOGRAD_NONFUSED,)),
    ):
        assert algorithms(VGG_CONV2_2, phase) == offered
        assert algorithms(VGG_CONV2_2, phase, winograd=True) == (*offered, *more)


TRANSFORMED = {WINOGRAD, WINOGRAD_NONFUSED}


@pytest.mark.parametrize(
    ("shape", "missing"),
    [
        (ConvolutionShape(1, 3, 64, (224, 224), (7, 7), (2, 2), (3, 3)), {FFT, FFT_TILING} | TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (14, 14), (1, 1)), {FFT_TILING} | TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (14, 14), (1, 1), padding=(1, 1)), {FFT, FFT_TILING} | TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (300, 300), (3, 3)), {FFT}),
        (ConvolutionShape(1, 8, 8, (64, 64), (33, 33)), {FFT_TILING} | TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (14, 14), (5, 5), padding=(2, 2)), TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (14, 14), (3, 3), (2, 2), (1, 1)), {FFT, FFT_TILING} | TRANSFORMED),
        (ConvolutionShape(1, 8, 8, (14, 14), (3, 3), padding=(3, 3)), {FFT, FFT_TILING} | TRANSFORMED),
    ],
    ids=[
        "7x7 strided",
        "1x1",
        "wide padding",
        "beyond 256",
        "filter beyond a tile",
        "5x5",
        "3x3 strided",
        "3x3 padded",
    ],
)
def test_transforms_have_constraints(shape: ConvolutionShape, missing: set[str]) -> None:
    """Fourier's want stride 1, less padding than filter and maps up to 256, their tiles 3x3 to 32x32; Winograd 3x3."""
    every = algorithms(VGG_CONV2_2, Phase.FORWARD, winograd=True)
    assert algorithms(shape, Phase.FORWARD, winograd=True) == tuple(name for name in every if name not in missing)


# Of the same file: channels, filters, input and output side, padding, then the workspaces of Winograd that is not
# fused, forward and of the data gradient, which computes the input. Where sides differ, so do they.
PUBLISHED_WINOGRAD = [
    (256, 324, 1, 1, 1, 14_616_576, 14_616_576),
    (256, 24, 5, 5, 1, 6_045_696, 6_045_696),
    (512, 486, 19, 19, 1, 150_801_408, 150_801_408),
    (128, 256, 5, 3, 0, 6_488_064, 11_796_480),
    (256, 256, 38, 38, 1, 245_366_784, 245_366_784),
    (64, 64, 75, 75, 1, 213_516_288, 213_516_288),
]


@pytest.mark.parametrize(("c", "k", "side", "output", "pad", "forward", "data"), PUBLISHED_WINOGRAD)
def test_workspaces_of_winograd_that_is_not_fused_are_the_published_ones(
    c: int, k: int, side: int, output: int, pad: int, forward: int, data: int
) -> None:
    shape = ConvolutionShape(32, c, k, (side, side), (3, 3), padding=(pad, pad))
    assert shape.output_size == (output, output)
    assert workspace_bytes(shape, Phase.FORWARD, WINOGRAD_NONFUSED, 4) == forward
    assert workspace_bytes(shape, Phase.BACKWARD_DATA, WINOGRAD_NONFUSED, 4) == data
    assert workspace_bytes(shape, Phase.BACKWARD_WEIGHTS, WINOGRAD_NONFUSED, 4) == forward


# github.com/nagadomi/waifu2x/issues/122, cuDNN 5, one image; github.com/LBANN/lbann/pull/437 has 64 to 64 channels.
@pytest.mark.parametrize(
    ("c", "k", "phase", "nbytes"),
    [
        (3, 16, Phase.BACKWARD_DATA, 32_768),
        (16, 32, Phase.FORWARD, 32_768),
        (16, 32, Phase.BACKWARD_DATA, 65_536),
        (32, 64, Phase.FORWARD, 131_072),
        (32, 64, Phase.BACKWARD_DATA, 131_072),
        (64, 64, Phase.FORWARD, 262_144),
    ],
)
def test_fused_winograd_holds_its_filters_transformed(c: int, k: int, phase: Phase, nbytes: int) -> None:
    """64 bytes each, the computed channels filled up to whole 32: C = 3 counts as 32 in its data gradient."""
    assert workspace_bytes(ConvolutionShape(1, c, k, (126, 126), (3, 3)), phase, WINOGRAD, 4) == nbytes
