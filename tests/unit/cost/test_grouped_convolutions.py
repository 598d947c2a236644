"""Times of convolutions with groups."""

from dataclasses import replace

import pytest

from tests.unit.cost.test_efficiency_time import HALF, VALUES
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency_parameters import EfficiencyParameters
from vdnnsim.cost.efficiency_time import EfficientGpu
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

SLOW = VALUES | {"tensor_flop_fraction": 0.5, "cuda_flop_fraction": 0.5}


OLDER = EfficientGpu(EfficiencyParameters(**SLOW), {ElementType.FLOAT32: 4096.0, HALF: 8192.0}, 2048.0, 2)


AMPERE = replace(OLDER, flop_per_s={**OLDER.flop_per_s, ElementType.BFLOAT16: 8192.0})


def _group(channels: int) -> ConvolutionShape:
    return ConvolutionShape(1, channels, channels, (8, 8), (3, 3), padding=(1, 1), bias=False)


@pytest.mark.parametrize(
    ("channels", "groups", "phase", "seconds"),
    [
        (16, 8, Phase.FORWARD, 1297.0),
        (16, 9, Phase.FORWARD, 1441.0),
        (24, 8, Phase.FORWARD, 3457.0),
        (48, 2, Phase.FORWARD, 2161.0),
        (16, 9, Phase.BACKWARD_DATA, 1441.0),
        (24, 8, Phase.BACKWARD_DATA, 3457.0),
        (48, 8, Phase.BACKWARD_WEIGHTS, 10369.0),
    ],
)
def test_tensor_cores_take_groups_that_fill_tiles(channels: int, groups: int, phase: Phase, seconds: float) -> None:
    """A tile holds two groups of 16 channels, no whole number of 24; gradients of weights are computed directly.

    On tensor cores 8 groups of 16 are 4 tiles a multiprocessor and half of one idle, 9 groups 4.5 and a half. A tile of
    32 x 64, 144 deep, takes 4 / 4096 x 2048 x 144 = 288 s, so 1296 and 1440 s; two groups of 48 channels, padded to 64
    and 432 deep, are one tile of twice that size a multiprocessor, and a half: 1.5 x 2 x 3 x 288 = 2592 s, or in tiles
    of 32 rows 2.5 x 3 x 288 = 2160. Directly, at half of 4096 FLOP/s, groups are padded to 32 channels:
    8 x 64 x 9 x 2 x 24 x 32 FLOPs take 3456 s. Those of weight gradients are not, 8 x 64 x 9 x 2 x 48^2 take 10368.
    """
    group = _group(channels)
    assert AMPERE.convolution_s(HALF, group, phase, groups=groups, channels_last=True) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("phase", "layout", "seconds"),
    [(Phase.FORWARD, "nhwc", 1441.0), (Phase.BACKWARD_DATA, "nhwc", 1441.0), (Phase.FORWARD, "nchw", 1525.0)],
)
def test_groups_as_of_resnext_are_packed_to_products_of_32_channels(phase: Phase, layout: str, seconds: float) -> None:
    """32 groups of 4 channels are 4 tiles of 32 x 64, 288 deep: 2 a multiprocessor and half of one idle, 576 s each.

    Turned around are 32 x 2 (256 + 256 + 144) B, read and written at 1024 B/s in 82 s, and two launches.
    """
    found = AMPERE.convolution_s(HALF, _group(4), phase, groups=32, channels_last=layout == "nhwc")
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize(("channels", "groups", "seconds"), [(1, 8, 10.0), (2, 8, 19.0), (128, 2, 9217.0)])
def test_strided_data_gradients_of_groups_have_their_own_rate_channels_last(
    channels: int, groups: int, seconds: float
) -> None:
    """An eighth of 4096 FLOP/s here, by no fewer than 2 input channels of a group and no more than 64.

    Y has 4 x 4 pixels, so 8 groups of one channel have 8 x 16 x 9 x 2 FLOPs, twice which take 9 s; of two channels
    9216, which take 18; 2 groups of 128 have 9437184, half of which takes 9216.
    """
    slow = replace(AMPERE, parameters=replace(AMPERE.parameters, depthwise_strided_flop_fraction=0.125))
    group = replace(_group(channels), stride=(2, 2))
    found = slow.convolution_s(HALF, group, Phase.BACKWARD_DATA, groups=groups, channels_last=True)
    assert found == pytest.approx(seconds)


def test_groups_are_computed_directly_before_ampere_and_as_products_of_maps_that_are_turned_around() -> None:
    """8 groups of 16 channels directly: 8 x 64 x 9 x 2 x 16 x 32 FLOPs at half of 4096 take 2304 s.

    From Ampere on X, Y and W, 8 x 2 (1024 + 1024 + 2304) B, are turned around in 136 s and two launches beside 1297 s.
    CUDA cores of a GPU without others multiply tiles at half the rate, 2592 s.
    """
    group = _group(16)
    assert OLDER.convolution_s(HALF, group, Phase.FORWARD, groups=8) == 2305.0
    assert AMPERE.convolution_s(HALF, group, Phase.FORWARD, groups=8) == pytest.approx(1297 + 136 + 2)
    assert OLDER.convolution_s(ElementType.FLOAT32, group, Phase.FORWARD, groups=8) == pytest.approx(2593)


@pytest.mark.parametrize(
    ("channels", "phase", "stride", "copies"),
    [
        (48, Phase.BACKWARD_WEIGHTS, 1, 3.1),
        (64, Phase.BACKWARD_WEIGHTS, 1, 1.0),
        (24, Phase.BACKWARD_DATA, 1, 3.1),
        (64, Phase.BACKWARD_DATA, 2, 1.0),
    ],
)
def test_from_cudnn_9_on_tensor_cores_compute_all_gradients_of_copied_groups(
    channels: int, phase: Phase, stride: int, copies: float
) -> None:
    """A gradient takes what it takes where maps lie as N, C, H, W, whose X, Y and W are turned around: as many copies.

    Each reads and writes them at 1024 B/s. Where channels come in no 32, here 24 and 48, they are padded as well, which
    takes 3.1 times as long.
    """
    newer = replace(AMPERE, parameters=replace(AMPERE.parameters, cudnn=9.0))
    group = replace(_group(channels), stride=(stride, stride))
    turned_bytes = 8 * 2 * (group.x_elements + group.y_elements + group.w_elements)
    first = newer.convolution_s(HALF, group, phase, groups=8)
    last = newer.convolution_s(HALF, group, phase, groups=8, channels_last=True)
    assert last == pytest.approx(first + (copies - 1) * 2 * turned_bytes / 1024)


def test_from_cudnn_9_on_strided_depthwise_gradients_have_the_rate_of_others() -> None:
    """Eight channels of 4 x 4 pixels of Y: 8 x 16 x 9 x 2 FLOPs at half of 4096 take 1.125 s.

    Before it they count twice, at least 2 channels of a group: 2 x 2304 / 512 = 9 s.
    """
    slow = replace(AMPERE.parameters, depthwise_strided_flop_fraction=0.125)
    group = replace(_group(1), stride=(2, 2))
    times = [
        replace(AMPERE, parameters=replace(slow, cudnn=version)).convolution_s(
            HALF, group, Phase.BACKWARD_DATA, groups=8, channels_last=True
        )
        for version in (8.0, 9.0)
    ]
    # 8 x 2 (64 + 16 + 9) B of X, Y and W at 1024 B/s take 1.39 s, longer than the arithmetic.
    assert times == pytest.approx([1 + 9, 1 + 1424 / 1024])
