"""The VGG family: five groups of 3x3 convolutions with 64 to 512 filters, a 2x2 pooling after each, three FC layers.

The vDNN paper's VGG-16 has 16 CONV layers and is elsewhere called VGG-19 (configuration E of Simonyan and Zisserman);
the common VGG-16 with 13 CONV and 3 FC layers is `vgg_d_13conv` here. The paper's deep networks
add 20 CONV layers to each of the five groups per step of 100 (IV-C): `vgg116` to `vgg416`.
`vgg_a_8conv` is configuration A, which public benchmarks time.

Those of torchvision (github.com/pytorch/vision, torchvision/models/vgg.py) have its names: `vgg16_torchvision` has 13
CONV layers. They add adaptive pooling and dropouts, with masks of one byte an element.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_FILTERS = (64, 128, 256, 512, 512)
_PAPER_GROUPS = (2, 2, 4, 4, 4)
_TORCHVISION_GROUPS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
"""By layers with weights."""


def vgg(name: str, groups: tuple[int, ...]) -> LayerGraph:
    """Build a VGG with groups[i] CONV layers in its i-th group."""
    net = GraphBuilder(name, MapShape(3, 224, 224))
    y = _features(net, groups)
    net.begin_classifier()
    y = net.fc("fc6", y, 4096, relu=True)
    y = net.fc("fc7", y, 4096, relu=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))


def vgg_paper(convolutions: int) -> LayerGraph:
    """Build the vDNN paper's VGG with 16, 116, 216, 316 or 416 CONV layers."""
    added = (convolutions - 16) // 5
    return vgg(f"vgg{convolutions}", tuple(group + added for group in _PAPER_GROUPS))


def vgg_torchvision(depth: int) -> LayerGraph:
    """Build torchvision's VGG with 11, 13, 16 or 19 layers with weights, three of them FC."""
    net = GraphBuilder(f"vgg{depth}_torchvision", MapShape(3, 224, 224))
    y = net.adaptive_average_pool("avgpool", _features(net, _TORCHVISION_GROUPS[depth]), 7)
    net.begin_classifier()
    y = net.dropout("drop6", net.fc("fc6", y, 4096, relu=True), mask_bytes=1, in_place=False)
    y = net.dropout("drop7", net.fc("fc7", y, 4096, relu=True), mask_bytes=1, in_place=False)
    return net.build(net.fc("fc8", y, 1000, relu=False))


def _features(net: GraphBuilder, groups: tuple[int, ...]) -> int:
    y = 0
    for group, (convolutions, filters) in enumerate(zip(groups, _FILTERS, strict=True), start=1):
        for position in range(1, convolutions + 1):
            y = net.conv(f"conv{group}_{position}", y, filters, 3, padding=1)
        y = net.pool(f"pool{group}", y, 2, stride=2)
    return y
