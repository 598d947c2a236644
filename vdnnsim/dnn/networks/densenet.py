"""DenseNet-121: each layer of a block reads what all before it in the block have written, joined anew.

Source: `densenet121` of torchvision (github.com/pytorch/vision, torchvision/models/densenet.py), after Huang et al.,
Densely Connected Convolutional Networks (CVPR 2017), with its names. The first layer of a block joins a single map,
which `torch.cat` copies all the same.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_LAYERS, _GROWTH, _BOTTLENECK = (6, 12, 24, 16), 32, 128


def densenet121() -> LayerGraph:
    """Build DenseNet-121: 120 CONV layers, 121 BN layers, 1 FC layer, 7,978,856 parameters."""
    net = GraphBuilder("densenet121", MapShape(3, 224, 224))
    y = net.conv("features.conv0", 0, 64, 7, stride=2, padding=3, norm="features.norm0")
    y = net.pool("features.pool0", y, 3, stride=2, padding=1)
    channels = 64
    for block, layers in enumerate(_LAYERS, start=1):
        name = f"features.denseblock{block}"
        maps: tuple[int, ...] = (y,)
        for layer in range(1, layers + 1):
            maps += (_dense_layer(net, f"{name}.denselayer{layer}", maps),)
        y, channels = net.concat(name, maps), channels + layers * _GROWTH
        if block < len(_LAYERS):
            channels //= 2
            y = _transition(net, f"features.transition{block}", y, channels)
    y = net.adaptive_average_pool("avgpool", net.batch_norm("features.norm5", y), 1)
    net.begin_classifier()
    return net.build(net.fc("classifier", y, 1000, relu=False))


def _dense_layer(net: GraphBuilder, name: str, maps: tuple[int, ...]) -> int:
    y = net.batch_norm(f"{name}.norm1", net.concat(f"{name}.cat", maps))
    y = net.conv(f"{name}.conv1", y, _BOTTLENECK, 1, norm=f"{name}.norm2")
    return net.conv(f"{name}.conv2", y, _GROWTH, 3, padding=1, bias=False, relu=False)


def _transition(net: GraphBuilder, name: str, x: int, channels: int) -> int:
    y = net.conv(f"{name}.conv", net.batch_norm(f"{name}.norm", x), channels, 1, bias=False, relu=False)
    return net.average_pool(f"{name}.pool", y, 2, stride=2)
