"""ResNet for CIFAR-10: 6n + 2 layers on images of 32 x 32, in three groups of n blocks.

Source: He et al., Deep Residual Learning for Image Recognition, CVPR 2016, 4.2. Where a block changes the shape, its
shortcut is a projection (their option B), as frameworks without an operator that pads channels have it; theirs pads
with zeros (option A) and has 2,752 weights less.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.networks.resnet import two_convolutions
from vdnnsim.dnn.shapes import MapShape

_WIDTHS = (16, 32, 64)

CIFAR_DEPTHS = tuple(depth for depth in range(20, 111, 6) if depth != 50)
"""Layers with weights, projections aside; by the name of `resnet50` everybody means that for ImageNet."""


def resnet_cifar(depth: int) -> LayerGraph:
    """Build the ResNet of a depth; ResNet-20 has 19 CONV layers and 2 projections, 1 FC layer, 272,474 parameters."""
    net = GraphBuilder(f"resnet{depth}", MapShape(3, 32, 32))
    y = net.batch_norm("bn1", net.conv("conv1", 0, _WIDTHS[0], 3, padding=1, bias=False, relu=False))
    for group, width in enumerate(_WIDTHS, start=1):
        for block in range((depth - 2) // 6):
            changes = group > 1 and block == 0
            name, stride = f"layer{group}.{block}", 2 if changes else 1
            y = two_convolutions(net, name, y, width, stride=stride, project=changes)
    y = net.average_pool("avgpool", y, 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 10, relu=False))
