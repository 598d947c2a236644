"""Inception-v3 without its auxiliary classifier: batch normalization behind every convolution, which has no bias.

Source: `inception_v3` of torchvision (github.com/pytorch/vision, torchvision/models/inception.py), aux_logits=False,
after Szegedy et al., Rethinking the Inception Architecture for Computer Vision (CVPR 2016); TensorFlow's slim has the
same layers, but leaves out the scale of each normalization. Names are torchvision's. A module forks its input to
branches, which run in the order of torchvision's code, and joins their outputs. Dropout is left out.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape, Size2

_ROW, _COLUMN = (1, 7), (7, 1)
_SHORT_ROW, _SHORT_COLUMN = (1, 3), (3, 1)


def inception_v3() -> LayerGraph:
    """Build Inception-v3: 94 CONV layers in 11 modules and a stem, 1 FC layer, 23,834,568 parameters."""
    net = GraphBuilder("inception_v3", MapShape(3, 299, 299))
    y = _conv(net, "Conv2d_1a_3x3", 0, 32, 3, stride=2, padding=0)
    y = _conv(net, "Conv2d_2a_3x3", y, 32, 3, padding=0)
    y = _conv(net, "Conv2d_2b_3x3", y, 64, 3)
    y = net.pool("maxpool1", y, 3, stride=2)
    y = _conv(net, "Conv2d_3b_1x1", y, 80, 1)
    y = _conv(net, "Conv2d_4a_3x3", y, 192, 3, padding=0)
    y = net.pool("maxpool2", y, 3, stride=2)
    for name, pool_channels in (("Mixed_5b", 32), ("Mixed_5c", 64), ("Mixed_5d", 64)):
        y = _module_35(net, name, y, pool_channels)
    y = _step_to_17(net, "Mixed_6a", y)
    for name, width in (("Mixed_6b", 128), ("Mixed_6c", 160), ("Mixed_6d", 160), ("Mixed_6e", 192)):
        y = _module_17(net, name, y, width)
    y = _step_to_8(net, "Mixed_7a", y)
    for name in ("Mixed_7b", "Mixed_7c"):
        y = _module_8(net, name, y)
    y = net.average_pool("avgpool", y, 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1000, relu=False))


def _module_35(net: GraphBuilder, name: str, x: int, pool_channels: int) -> int:
    """Fork to 1x1, 5x5, two 3x3 and pooling, on 35 x 35 pixels (Fig. 5)."""
    a = _conv(net, f"{name}.branch1x1", x, 64, 1)
    b = _conv(net, f"{name}.branch5x5_1", x, 48, 1)
    b = _conv(net, f"{name}.branch5x5_2", b, 64, 5)
    c = _conv(net, f"{name}.branch3x3dbl_1", x, 64, 1)
    c = _conv(net, f"{name}.branch3x3dbl_2", c, 96, 3)
    c = _conv(net, f"{name}.branch3x3dbl_3", c, 96, 3)
    return net.concat(name, (a, b, c, _pooled(net, name, x, pool_channels)))


def _step_to_17(net: GraphBuilder, name: str, x: int) -> int:
    """Halve 35 x 35 pixels by convolutions and a pooling of stride 2 (Fig. 10)."""
    a = _conv(net, f"{name}.branch3x3", x, 384, 3, stride=2, padding=0)
    b = _conv(net, f"{name}.branch3x3dbl_1", x, 64, 1)
    b = _conv(net, f"{name}.branch3x3dbl_2", b, 96, 3)
    b = _conv(net, f"{name}.branch3x3dbl_3", b, 96, 3, stride=2, padding=0)
    return net.concat(name, (a, b, net.pool(f"{name}.branch_pool", x, 3, stride=2)))


def _module_17(net: GraphBuilder, name: str, x: int, width: int) -> int:
    """Fork to 1x1, 7x7 and two 7x7 in rows and columns, and pooling, on 17 x 17 pixels (Fig. 6)."""
    a = _conv(net, f"{name}.branch1x1", x, 192, 1)
    b = _conv(net, f"{name}.branch7x7_1", x, width, 1)
    b = _conv(net, f"{name}.branch7x7_2", b, width, _ROW)
    b = _conv(net, f"{name}.branch7x7_3", b, 192, _COLUMN)
    c = _conv(net, f"{name}.branch7x7dbl_1", x, width, 1)
    c = _conv(net, f"{name}.branch7x7dbl_2", c, width, _COLUMN)
    c = _conv(net, f"{name}.branch7x7dbl_3", c, width, _ROW)
    c = _conv(net, f"{name}.branch7x7dbl_4", c, width, _COLUMN)
    c = _conv(net, f"{name}.branch7x7dbl_5", c, 192, _ROW)
    return net.concat(name, (a, b, c, _pooled(net, name, x, 192)))


def _step_to_8(net: GraphBuilder, name: str, x: int) -> int:
    """Halve 17 x 17 pixels by convolutions and a pooling of stride 2."""
    a = _conv(net, f"{name}.branch3x3_1", x, 192, 1)
    a = _conv(net, f"{name}.branch3x3_2", a, 320, 3, stride=2, padding=0)
    b = _conv(net, f"{name}.branch7x7x3_1", x, 192, 1)
    b = _conv(net, f"{name}.branch7x7x3_2", b, 192, _ROW)
    b = _conv(net, f"{name}.branch7x7x3_3", b, 192, _COLUMN)
    b = _conv(net, f"{name}.branch7x7x3_4", b, 192, 3, stride=2, padding=0)
    return net.concat(name, (a, b, net.pool(f"{name}.branch_pool", x, 3, stride=2)))


def _module_8(net: GraphBuilder, name: str, x: int) -> int:
    """Fork to 1x1, 3x3 and two 3x3, whose last is a row beside a column, and pooling, on 8 x 8 pixels (Fig. 7)."""
    a = _conv(net, f"{name}.branch1x1", x, 320, 1)
    b = _conv(net, f"{name}.branch3x3_1", x, 384, 1)
    b = _row_beside_column(net, f"{name}.branch3x3", "2", b)
    c = _conv(net, f"{name}.branch3x3dbl_1", x, 448, 1)
    c = _conv(net, f"{name}.branch3x3dbl_2", c, 384, 3)
    c = _row_beside_column(net, f"{name}.branch3x3dbl", "3", c)
    return net.concat(name, (a, b, c, _pooled(net, name, x, 192)))


def _row_beside_column(net: GraphBuilder, branch: str, place: str, x: int) -> int:
    row = _conv(net, f"{branch}_{place}a", x, 384, _SHORT_ROW)
    column = _conv(net, f"{branch}_{place}b", x, 384, _SHORT_COLUMN)
    return net.concat(branch, (row, column))


def _pooled(net: GraphBuilder, name: str, x: int, channels: int) -> int:
    y = net.average_pool(f"{name}.average", x, 3, stride=1, padding=1)
    return _conv(net, f"{name}.branch_pool", y, channels, 1)


def _conv(
    net: GraphBuilder,
    name: str,
    x: int,
    channels: int,
    kernel: int | Size2,
    *,
    stride: int = 1,
    padding: int | None = None,
) -> int:
    """Add CONV, BN and ACTV; padded so that a window lies around each pixel, unless told otherwise."""
    rows, columns = (kernel, kernel) if isinstance(kernel, int) else kernel
    around = (rows // 2, columns // 2) if padding is None else padding
    return net.conv(f"{name}.conv", x, channels, kernel, stride=stride, padding=around, norm=f"{name}.bn")
