"""GoogLeNet (v1) without auxiliary classifiers, as in the vDNN paper's reference models.

Source: github.com/soumith/convnet-benchmarks, torch7/imagenet_winners/googlenet.lua at b458aab6. A module forks its
input to four branches and joins their outputs; the branches run in the order 1x1, 3x3, 5x5, pool.
"""

from dataclasses import dataclass

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


@dataclass(frozen=True, slots=True)
class _Inception:
    """Output channels of the convolutions of one module."""

    name: str
    conv1x1: int
    reduce3x3: int
    conv3x3: int
    reduce5x5: int
    conv5x5: int
    pool_projection: int

    def add_to(self, net: GraphBuilder, x: int) -> int:
        a = net.conv(f"{self.name}/1x1", x, self.conv1x1, 1)
        b = net.conv(f"{self.name}/3x3_reduce", x, self.reduce3x3, 1)
        b = net.conv(f"{self.name}/3x3", b, self.conv3x3, 3, padding=1)
        c = net.conv(f"{self.name}/5x5_reduce", x, self.reduce5x5, 1)
        c = net.conv(f"{self.name}/5x5", c, self.conv5x5, 5, padding=2)
        d = net.pool(f"{self.name}/pool", x, 3, stride=1, padding=1)
        d = net.conv(f"{self.name}/pool_projection", d, self.pool_projection, 1)
        return net.concat(self.name, (a, b, c, d))


_MODULES_28 = (_Inception("3a", 64, 96, 128, 16, 32, 32), _Inception("3b", 128, 128, 192, 32, 96, 64))
_MODULES_14 = (
    _Inception("4a", 192, 96, 208, 16, 48, 64),
    _Inception("4b", 160, 112, 224, 24, 64, 64),
    _Inception("4c", 128, 128, 256, 24, 64, 64),
    _Inception("4d", 112, 144, 288, 32, 64, 64),
    _Inception("4e", 256, 160, 320, 32, 128, 128),
)
_MODULES_7 = (_Inception("5a", 256, 160, 320, 32, 128, 128), _Inception("5b", 384, 192, 384, 48, 128, 128))


def googlenet() -> LayerGraph:
    """Build GoogLeNet: 57 CONV layers in 9 modules and a stem, 1 FC layer, 6,998,552 parameters."""
    net = GraphBuilder("googlenet", MapShape(3, 224, 224))
    y = net.conv("conv1", 0, 64, 7, stride=2, padding=3)
    y = net.pool("pool1", y, 3, stride=2, padding=1)
    y = net.conv("conv2_reduce", y, 64, 1)
    y = net.conv("conv2", y, 192, 3, padding=1)
    y = net.pool("pool2", y, 3, stride=2, padding=1)
    for module in _MODULES_28:
        y = module.add_to(net, y)
    y = net.pool("pool3", y, 3, stride=2, padding=1)
    for module in _MODULES_14:
        y = module.add_to(net, y)
    y = net.pool("pool4", y, 3, stride=2, padding=1)
    for module in _MODULES_7:
        y = module.add_to(net, y)
    y = net.average_pool("average_pool", y, 7, stride=1)
    net.begin_classifier()
    return net.build(net.fc("fc", y, 1000, relu=True))
