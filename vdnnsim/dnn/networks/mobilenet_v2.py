"""MobileNetV2: inverted bottlenecks with depthwise convolutions.

Source: `mobilenet_v2` of torchvision (github.com/pytorch/vision, torchvision/models/mobilenetv2.py), after Sandler et
al., MobileNetV2: Inverted Residuals and Linear Bottlenecks (CVPR 2018). Names are torchvision's, by what a layer is.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import Relu6

_GROUPS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Expansion, output channels, number of blocks, and stride of the first (Table 2)."""


def mobilenet_v2() -> LayerGraph:
    """Build MobileNetV2: 52 CONV layers in 17 blocks, a stem and an end, 1 FC layer, 3,504,872 parameters."""
    net = GraphBuilder("mobilenet_v2", MapShape(3, 224, 224))
    y = _conv(net, "features.0", 0, 32, 3, stride=2)
    channels, number = 32, 1
    for times, width, blocks, stride in _GROUPS:
        for block in range(blocks):
            step = stride if block == 0 else 1
            z = _block(net, f"features.{number}", y, width, inside=times * channels, stride=step, widens=times > 1)
            same = step == 1 and channels == width
            y = net.add(f"features.{number}.add", y, z, relu=False) if same else z
            channels, number = width, number + 1
    y = _conv(net, f"features.{number}", y, 1280, 1)
    y = net.adaptive_average_pool("avgpool", y, 1)
    net.begin_classifier()
    y = net.dropout("classifier.0", y, mask_bytes=1, in_place=False)
    return net.build(net.fc("classifier.1", y, 1000, relu=False))


def _block(net: GraphBuilder, name: str, x: int, channels: int, *, inside: int, stride: int, widens: bool) -> int:
    y = _conv(net, f"{name}.expand", x, inside, 1) if widens else x
    y = _conv(net, f"{name}.depthwise", y, inside, 3, stride=stride, groups=inside)
    return net.conv(f"{name}.project.conv", y, channels, 1, norm=f"{name}.project.bn", relu=False)


def _conv(net: GraphBuilder, name: str, x: int, channels: int, kernel: int, *, stride: int = 1, groups: int = 1) -> int:
    """Add CONV, BN and ReLU6, padded so that a window lies around each pixel."""
    around, norm = kernel // 2, f"{name}.bn"
    y = net.conv(
        f"{name}.conv", x, channels, kernel, stride=stride, padding=around, groups=groups, norm=norm, relu=False
    )
    return net.layer(f"{name}.relu6", Relu6(), y)
