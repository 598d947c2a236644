"""Wide ResNets for CIFAR-10: few blocks, whose channels are multiplied by a width.

Source: Zagoruyko and Komodakis, Wide Residual Networks, BMVC 2016: normalization and rectifier stand before each
convolution, and no dropout between them. They count 6n + 4 layers, of 3 n blocks of two convolutions, the first
convolution and the three projections: WRN-16 has 2 blocks in a group, WRN-28 has 4. No n gives the WRN-8 of Layrub (Jin
et al., TACO 15(3), 2018, 5.2.2); it is taken to be that of one block in a group, whose convolutions and FC layer are 8
without projections.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_BLOCKS = {8: 1, 16: 2, 28: 4}
_CHANNELS = (16, 32, 64)

WRN_DEPTHS = tuple(_BLOCKS)
LARGEST_WIDTH = 256


def wide_resnet(depth: int, width: int) -> LayerGraph:
    """Build the wide ResNet of a depth and a width; WRN-28-10 has 28 CONV layers, 1 FC layer, 36,479,194 parameters."""
    net = GraphBuilder(f"wrn_{depth}_{width}", MapShape(3, 32, 32))
    y = net.conv("conv1", 0, _CHANNELS[0], 3, padding=1, bias=False, relu=False)
    channels = _CHANNELS[0]
    for group, base in enumerate(_CHANNELS, start=1):
        for block in range(_BLOCKS[depth]):
            stride = 2 if group > 1 and block == 0 else 1
            y = _block(net, f"group{group}.{block}", y, base * width, stride=stride, project=channels != base * width)
            channels = base * width
    y = net.average_pool("avgpool", net.batch_norm("bn", y), 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 10, relu=False))


def _block(net: GraphBuilder, name: str, x: int, channels: int, *, stride: int, project: bool) -> int:
    before = net.batch_norm(f"{name}.bn1", x)
    y = net.conv(f"{name}.conv1", before, channels, 3, stride=stride, padding=1, bias=False, relu=False)
    y = net.batch_norm(f"{name}.bn2", y)
    y = net.conv(f"{name}.conv2", y, channels, 3, padding=1, bias=False, relu=False)
    if project:
        x = net.conv(f"{name}.shortcut", before, channels, 1, stride=stride, bias=False, relu=False)
    return net.add(f"{name}.add", y, x, relu=False)
