"""Convolutions of groups, of frames and in time as the cost model sees them."""

from dataclasses import replace

import pytest

from vdnnsim.cost.convolution_shape import ConvolutionShape, multiplies_groups_last
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.sequences import Linear
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload


def clips() -> Workload:
    """Two clips of 4 frames of 6x9x8: each frame, then its channels in two groups, then over three frames."""
    net = GraphBuilder("clips", MapShape(6, 9, 8, steps=4))
    y = net.conv("frames", 0, 10, 3, stride=2, padding=1, relu=False)
    y = net.conv("grouped", y, 4, 5, padding=2, groups=2)
    return Workload(
        net.build(net.layer("fc", Linear(2), net.layer("in_time", Convolution(7, (1, 1), bias=False, steps=3), y))), 2
    )


CLIPS = clips()
FRAMES, GROUPED, _, IN_TIME, _, _ = CLIPS.graph.layers


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        # Frames are images.
        (FRAMES, ConvolutionShape(8, 6, 10, (9, 8), (3, 3), (2, 2), (1, 1))),
        # Groups are images of fewer channels: 5 of 10 to 2 of 4, for 8 frames twice.
        (GROUPED, ConvolutionShape(16, 5, 2, (5, 4), (5, 5), (1, 1), (2, 2))),
        # 4 frames of 20 pixels are rows to a kernel in time; one of three frames is padded by one on each side.
        (IN_TIME, ConvolutionShape(2, 4, 7, (4, 20), (3, 1), padding=(1, 0), bias=False)),
    ],
)
def test_the_shape_of_a_layer_has_its_work(layer: Layer, expected: ConvolutionShape) -> None:
    """X, Y and FLOPs are those of the whole layer."""
    assert ConvolutionShape.of_layer(layer, CLIPS.batch_size) == expected
    assert (expected.flop, expected.x_elements, expected.y_elements) == (
        CLIPS.flop(layer, Phase.FORWARD),
        2 * layer.in_shapes[0].elements,
        2 * layer.out_shape.elements,
    )


def test_a_transposed_convolution_is_the_data_gradient_of_another() -> None:
    """Two volumes of 6 channels of 3 x 4 x 4, in two groups, to 4 channels twice as long in each direction.

    The other takes these 2 channels of 6 x 8 x 8 of each group to 3, without a bias: that is added to what it takes.
    """
    work = ConvolutionWork(
        2, 6, 4, (3, 4, 4), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), groups=2, transposed=True, bias=True
    )
    shape = ConvolutionShape.of_work(work)
    assert (shape.c, shape.k, shape.input_size, shape.output_size) == (2, 3, (6, 8, 8), (3, 4, 4))
    assert (shape.is_volume, shape.bias) == (True, False)


def test_a_dilated_window_is_as_wide_as_its_weights_lie_apart() -> None:
    """Three weights two pixels apart cover five of nine rows: of those and two zeros 7 windows, of all 9 x 9 49."""
    work = ConvolutionWork(1, 8, 8, (9, 9), (3, 3), (1, 1), (1, 1), (2, 2), groups=1)
    assert ConvolutionShape.of_work(work).output_pixels == 49


@pytest.mark.parametrize("groups", [4, 8])
def test_a_volume_in_groups_without_a_stride_is_not_strided(groups: int) -> None:
    """Groups of two channels and of one: cuDNN 8 leaves data gradients to CUDA cores where there is a stride alone."""
    work = ConvolutionWork(1, 8, 8, (4, 4, 4), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), groups)
    shape = ConvolutionShape.of_work(work)
    assert not shape.is_strided
    assert multiplies_groups_last(shape, Phase.BACKWARD_DATA, groups, cudnn=8.0)
    assert replace(shape, stride=(1, 2, 1)).is_strided
