"""Inception-v3 against Table 1 of Szegedy et al. (2016) and the layers of torchvision's `inception_v3`."""

import pytest

from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape

GRAPH = build_network("inception_v3")
SHAPES = {each.name: each.shape for each in GRAPH.maps}


def test_the_trunk_shrinks_as_in_table_1() -> None:
    """299 pixels a side become 149, 147, 147, 73, 73, 71, 35; modules at 35, 17 and 8 pixels; their average.

    The stem is that of the code: where it has convolutions of 1x1 and 3x3 and a pooling, the paper's table has three
    convolutions of 3x3, the second of stride 2.
    """
    trunk = [
        ("Conv2d_1a_3x3.bn", MapShape(32, 149, 149)),
        ("Conv2d_2a_3x3.bn", MapShape(32, 147, 147)),
        ("Conv2d_2b_3x3.bn", MapShape(64, 147, 147)),
        ("maxpool1", MapShape(64, 73, 73)),
        ("Conv2d_3b_1x1.bn", MapShape(80, 73, 73)),
        ("Conv2d_4a_3x3.bn", MapShape(192, 71, 71)),
        ("maxpool2", MapShape(192, 35, 35)),
        ("Mixed_5b", MapShape(256, 35, 35)),
        ("Mixed_5c", MapShape(288, 35, 35)),
        ("Mixed_5d", MapShape(288, 35, 35)),
        ("Mixed_6a", MapShape(768, 17, 17)),
        ("Mixed_6e", MapShape(768, 17, 17)),
        ("Mixed_7a", MapShape(1280, 8, 8)),
        ("Mixed_7b", MapShape(2048, 8, 8)),
        ("Mixed_7c", MapShape(2048, 8, 8)),
        ("avgpool", MapShape(2048)),
    ]

    assert {name: SHAPES[name] for name, _ in trunk} == dict(trunk)


@pytest.mark.parametrize(
    ("name", "kernel", "padding"),
    [
        ("Mixed_6b.branch7x7_2", (1, 7), (0, 3)),
        ("Mixed_6b.branch7x7_3", (7, 1), (3, 0)),
        ("Mixed_6b.branch7x7dbl_2", (7, 1), (3, 0)),
        ("Mixed_6b.branch7x7dbl_5", (1, 7), (0, 3)),
        ("Mixed_7a.branch7x7x3_2", (1, 7), (0, 3)),
        ("Mixed_7b.branch3x3_2a", (1, 3), (0, 1)),
        ("Mixed_7b.branch3x3dbl_3b", (3, 1), (1, 0)),
        ("Mixed_5b.branch5x5_2", (5, 5), (2, 2)),
    ],
)
def test_rows_and_columns_keep_their_inputs_size(name: str, kernel: tuple[int, int], padding: tuple[int, int]) -> None:
    """Heights come first: a row of seven is a kernel of (1, 7), padded by 3 at its left and right."""
    (layer,) = [layer for layer in GRAPH.layers if layer.name == f"{name}.conv"]

    assert isinstance(layer.operator, Convolution)
    assert (layer.operator.kernel, layer.operator.padding) == (kernel, padding)
    assert (layer.out_shape.height, layer.out_shape.width) == (layer.in_shapes[0].height, layer.in_shapes[0].width)
