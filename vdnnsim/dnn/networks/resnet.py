"""ResNets for ImageNet and CIFAR-10, and wide ResNets.

Source: `resnet18` to `resnet152` of torchvision (github.com/pytorch/vision, torchvision/models/resnet.py), known as
v1.5, for the stride of a bottleneck lies in its 3x3 convolution where He et al., Deep Residual Learning for Image
Recognition (CVPR 2016), have it in the first 1x1. Convolutions have no bias. A block runs its convolutions first, then
the projection.

The deeper ones are those of Layrub (Jin et al., TACO 15(3), 2018, 5.4), bottlenecks all. How many of them stand in each
of the four groups is read from github.com/CGCL-codes/Layrub, models/resnet at 19dc3bbc, for 1001, 1172, 1304 and 1517;
that of 302 and 695 is not published, and is assumed to follow the last three: a sixth of the blocks of the two middle
groups stand in the first of them. Layrub's have the stride in the first 1x1 and normalize in place, as Caffe does.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_EXPANSION = 4
_BLOCKS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    302: (3, 16, 78, 3),
    695: (3, 38, 187, 3),
    1001: (3, 57, 270, 3),
    1172: (3, 64, 320, 3),
    1304: (3, 71, 357, 3),
    1517: (3, 83, 416, 3),
}
"""Blocks in each group."""
_DEPTHS_OF_TWO = (18, 34)
"""Depths with blocks of two 3x3 convolutions instead of bottlenecks."""
_GROUPS = ((64, 1), (128, 2), (256, 2), (512, 2))
"""The width of a group's blocks, and the stride of the first of them."""

RESNET_DEPTHS = tuple(_BLOCKS)
"""Layers with weights, projections aside."""
CIFAR_DEPTHS = tuple(depth for depth in range(20, 111, 6) if depth != 50)
"""The same for CIFAR-10; `resnet50` is that for ImageNet."""
_CIFAR_WIDTHS = (16, 32, 64)
_WRN_BLOCKS = {8: 1, 16: 2, 28: 4}
"""Blocks of a group, by the depth of a wide ResNet."""
WRN_DEPTHS = tuple(_WRN_BLOCKS)
LARGEST_WIDTH = 256


def resnet(depth: int) -> LayerGraph:
    """Build the ResNet of a depth; ResNet-50 has 53 CONV layers in 16 blocks and a stem, 1 FC layer."""
    net = GraphBuilder(f"resnet{depth}", MapShape(3, 224, 224))
    y = net.conv("conv1", 0, 64, 7, stride=2, padding=3, norm="bn1")
    y = net.pool("maxpool", y, 3, stride=2, padding=1)
    for group, (blocks, (width, stride)) in enumerate(zip(_BLOCKS[depth], _GROUPS, strict=True), start=1):
        for block in range(blocks):
            name, first = f"layer{group}.{block}", block == 0
            if depth in _DEPTHS_OF_TWO:
                project = first and group > 1
                y = _two_convolutions(net, name, y, width, stride=stride if first else 1, project=project)
            else:
                y = _bottleneck(net, name, y, width, stride=stride if first else 1, project=first)
    y = net.average_pool("avgpool", y, 7, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1000, relu=False))


def _two_convolutions(net: GraphBuilder, name: str, x: int, width: int, *, stride: int, project: bool) -> int:
    y = net.conv(f"{name}.conv1", x, width, 3, stride=stride, padding=1, norm=f"{name}.bn1")
    y = net.conv(f"{name}.conv2", y, width, 3, padding=1, norm=f"{name}.bn2", relu=False)
    shortcut = _projection(net, name, x, width, stride) if project else x
    return net.add(f"{name}.add", y, shortcut)


def _bottleneck(net: GraphBuilder, name: str, x: int, width: int, *, stride: int, project: bool) -> int:
    y = net.conv(f"{name}.conv1", x, width, 1, norm=f"{name}.bn1")
    y = net.conv(f"{name}.conv2", y, width, 3, stride=stride, padding=1, norm=f"{name}.bn2")
    y = net.conv(f"{name}.conv3", y, _EXPANSION * width, 1, norm=f"{name}.bn3", relu=False)
    shortcut = _projection(net, name, x, _EXPANSION * width, stride) if project else x
    return net.add(f"{name}.add", y, shortcut)


def _projection(net: GraphBuilder, name: str, x: int, channels: int, stride: int) -> int:
    return net.conv(f"{name}.downsample.0", x, channels, 1, stride=stride, norm=f"{name}.downsample.1", relu=False)


def resnet_cifar(depth: int) -> LayerGraph:
    """Build the ResNet of a depth for CIFAR-10, 6n + 2 layers on images of 32 x 32, in three groups of n blocks.

    ResNet-20 has 19 CONV layers and 2 projections, 1 FC layer, 272,474 parameters. Source: He et al., 4.2. Where a
    block changes the shape, its shortcut is a projection (their option B), as frameworks without an operator that pads
    channels have it; theirs pads with zeros (option A) and has 2,752 weights less.
    """
    net = GraphBuilder(f"resnet{depth}", MapShape(3, 32, 32))
    y = net.conv("conv1", 0, _CIFAR_WIDTHS[0], 3, padding=1, norm="bn1")
    for group, width in enumerate(_CIFAR_WIDTHS, start=1):
        for block in range((depth - 2) // 6):
            changes = group > 1 and block == 0
            name, stride = f"layer{group}.{block}", 2 if changes else 1
            y = _two_convolutions(net, name, y, width, stride=stride, project=changes)
    y = net.average_pool("avgpool", y, 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 10, relu=False))


def wide_resnet(depth: int, width: int) -> LayerGraph:
    """Build the wide ResNet of a depth for CIFAR-10: few blocks, whose channels are multiplied by a width.

    WRN-28-10 has 28 CONV layers, 1 FC layer, 36,479,194 parameters. Source: Zagoruyko and Komodakis, Wide Residual
    Networks, BMVC 2016: normalization and rectifier stand before each convolution, and no dropout between them. They
    count 6n + 4 layers, of 3 n blocks of two convolutions, the first convolution and the three projections: WRN-16 has
    2 blocks in a group, WRN-28 has 4. No n gives the WRN-8 of Layrub (5.2.2); it is taken to be that of one block in a
    group, whose convolutions and FC layer are 8 without projections.
    """
    net = GraphBuilder(f"wrn_{depth}_{width}", MapShape(3, 32, 32))
    y = net.conv("conv1", 0, _CIFAR_WIDTHS[0], 3, padding=1, bias=False, relu=False)
    channels = _CIFAR_WIDTHS[0]
    for group, base in enumerate(_CIFAR_WIDTHS, start=1):
        for block in range(_WRN_BLOCKS[depth]):
            stride = 2 if group > 1 and block == 0 else 1
            y = _wide_block(
                net, f"group{group}.{block}", y, base * width, stride=stride, project=channels != base * width
            )
            channels = base * width
    y = net.average_pool("avgpool", net.batch_norm("bn", y), 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 10, relu=False))


def _wide_block(net: GraphBuilder, name: str, x: int, channels: int, *, stride: int, project: bool) -> int:
    before = net.batch_norm(f"{name}.bn1", x)
    y = net.conv(f"{name}.conv1", before, channels, 3, stride=stride, padding=1, norm=f"{name}.bn2")
    y = net.conv(f"{name}.conv2", y, channels, 3, padding=1, bias=False, relu=False)
    if project:
        x = net.conv(f"{name}.shortcut", before, channels, 1, stride=stride, bias=False, relu=False)
    return net.add(f"{name}.add", y, x, relu=False)
