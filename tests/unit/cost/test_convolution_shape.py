"""Convolutions of groups, of frames and in time as the cost model sees them."""

from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.graph import GraphBuilder
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


def work(layer: Layer) -> tuple[int, int, int]:
    shape = ConvolutionShape.of_layer(layer, CLIPS.batch_size)
    return shape.flop, shape.x_elements, shape.y_elements


def test_frames_are_images() -> None:
    assert ConvolutionShape.of_layer(FRAMES, 2) == ConvolutionShape(8, 6, 10, (9, 8), (3, 3), (2, 2), (1, 1))


def test_groups_are_images_of_fewer_channels() -> None:
    """5 of 10 channels to 2 of 4, for 8 frames twice; X and Y and the work are those of the whole."""
    assert ConvolutionShape.of_layer(GROUPED, 2) == ConvolutionShape(16, 5, 2, (5, 4), (5, 5), (1, 1), (2, 2))


def test_steps_are_rows_to_a_kernel_in_time() -> None:
    """4 frames of 20 pixels; a kernel of three frames is padded by one on each side."""
    expected = ConvolutionShape(2, 4, 7, (4, 20), (3, 1), padding=(1, 0), bias=False)
    assert ConvolutionShape.of_layer(IN_TIME, 2) == expected
    assert expected.output_size == (4, 20)


def test_the_work_is_that_of_the_workload() -> None:
    for layer in (FRAMES, GROUPED, IN_TIME):
        assert work(layer) == (
            CLIPS.flop(layer, Phase.FORWARD),
            2 * layer.in_shapes[0].elements,
            2 * layer.out_shape.elements,
        )
