"""ResNet-50: batch normalization behind every convolution, and shortcuts that are added to what they skip.

Source: `resnet50` of torchvision (github.com/pytorch/vision, torchvision/models/resnet.py), known as v1.5, for the
stride of a block lies in its 3x3 convolution where He et al., Deep Residual Learning for Image Recognition (CVPR 2016),
have it in the first 1x1. Convolutions have no bias. A block runs its three convolutions first, then the projection.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_EXPANSION = 4
_GROUPS = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))
"""Blocks, their width, and the stride of the first of them."""


def resnet50() -> LayerGraph:
    """Build ResNet-50: 53 CONV layers in 16 blocks and a stem, 1 FC layer, 25,557,032 parameters."""
    net = GraphBuilder("resnet50", MapShape(3, 224, 224))
    y = net.conv("conv1", 0, 64, 7, stride=2, padding=3, bias=False, relu=False)
    y = net.batch_norm("bn1", y)
    y = net.pool("maxpool", y, 3, stride=2, padding=1)
    for group, (blocks, width, stride) in enumerate(_GROUPS, start=1):
        y = _bottleneck(net, f"layer{group}.0", y, width, stride=stride, project=True)
        for block in range(1, blocks):
            y = _bottleneck(net, f"layer{group}.{block}", y, width, stride=1, project=False)
    y = net.average_pool("avgpool", y, 7, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1000, relu=False))


def _bottleneck(net: GraphBuilder, name: str, x: int, width: int, *, stride: int, project: bool) -> int:
    y = net.conv(f"{name}.conv1", x, width, 1, bias=False, relu=False)
    y = net.batch_norm(f"{name}.bn1", y)
    y = net.conv(f"{name}.conv2", y, width, 3, stride=stride, padding=1, bias=False, relu=False)
    y = net.batch_norm(f"{name}.bn2", y)
    y = net.conv(f"{name}.conv3", y, _EXPANSION * width, 1, bias=False, relu=False)
    y = net.batch_norm(f"{name}.bn3", y, relu=False)
    shortcut = x
    if project:
        shortcut = net.conv(f"{name}.downsample.0", x, _EXPANSION * width, 1, stride=stride, bias=False, relu=False)
        shortcut = net.batch_norm(f"{name}.downsample.1", shortcut, relu=False)
    return net.add(f"{name}.add", y, shortcut)
