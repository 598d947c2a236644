"""Three small networks on images of 32 x 32, for tests and examples on a CPU.

One is a chain, one forks, one has shortcuts. Nearly all of their convolutions multiply one to five million pairs per
image, so that with a batch of 8 a kernel takes about a millisecond on one core, far longer than issuing it.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_IMAGE = MapShape(3, 32, 32)
_CLASSES = 10


def tiny_linear() -> LayerGraph:
    """Build a chain in the manner of VGG: 5 CONV layers, 3 POOL layers, 1 FC layer, 46,170 parameters."""
    net = GraphBuilder("tiny_linear", _IMAGE)
    y = net.conv("conv1_1", 0, 16, 5, padding=2)
    y = net.conv("conv1_2", y, 16, 3, padding=1)
    y = net.pool("pool1", y, 2, stride=2)
    y = net.conv("conv2_1", y, 32, 3, padding=1)
    y = net.conv("conv2_2", y, 32, 3, padding=1)
    y = net.pool("pool2", y, 2, stride=2)
    y = net.conv("conv3", y, 64, 3, padding=1)
    y = net.pool("pool3", y, 2, stride=2)
    net.begin_classifier()
    return net.build(net.fc("fc", y, _CLASSES, relu=False))


def tiny_forked() -> LayerGraph:
    """Build two modules of two branches in the manner of GoogLeNet: 6 CONV layers, 1 FC layer, 50,202 parameters."""
    net = GraphBuilder("tiny_forked", _IMAGE)
    y = net.conv("conv", 0, 32, 5, padding=2)
    y = net.pool("pool1", y, 2, stride=2)
    left = net.conv("a/3x3", y, 32, 3, padding=1)
    right = net.conv("a/5x5", y, 16, 5, padding=2)
    y = net.concat("a", (left, right))
    left = net.conv("b/3x3_reduce", y, 64, 1)
    left = net.conv("b/3x3", left, 32, 3, padding=1)
    right = net.pool("b/pool", y, 3, stride=1, padding=1)
    right = net.conv("b/pool_projection", right, 64, 1)
    y = net.concat("b", (left, right))
    y = net.pool("pool2", y, 2, stride=2)
    y = net.average_pool("average_pool", y, 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, _CLASSES, relu=False))


def tiny_residual() -> LayerGraph:
    """Build two blocks in the manner of ResNet: 6 CONV layers, 6 BN layers, 1 FC layer, 79,402 parameters."""
    net = GraphBuilder("tiny_residual", _IMAGE)
    y = net.conv("conv", 0, 32, 5, padding=2, norm="bn")
    y = net.pool("pool", y, 2, stride=2)
    y = net.add("a/add", _two_convolutions(net, "a", y, 32, stride=1), y)
    left = _two_convolutions(net, "b", y, 64, stride=2)
    right = net.conv("b/projection", y, 64, 1, stride=2, norm="b/projection_bn", relu=False)
    y = net.add("b/add", left, right)
    y = net.average_pool("average_pool", y, 8, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, _CLASSES, relu=False))


def _two_convolutions(net: GraphBuilder, name: str, x: int, channels: int, *, stride: int) -> int:
    y = net.conv(f"{name}/conv1", x, channels, 3, stride=stride, padding=1, norm=f"{name}/bn1")
    return net.conv(f"{name}/conv2", y, channels, 3, padding=1, norm=f"{name}/bn2", relu=False)
