"""AlexNet in the one-tower form of the vDNN paper's reference models.

Source: github.com/soumith/convnet-benchmarks, torch7/imagenet_winners/alexnet.lua at b458aab6 ("One weird trick" form:
no grouped convolutions, no local response normalization, no dropout).
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


def alexnet() -> LayerGraph:
    """Build AlexNet: 5 CONV and 3 FC layers, 61,100,840 parameters."""
    net = GraphBuilder("alexnet", MapShape(3, 224, 224))
    y = net.conv("conv1", 0, 64, 11, stride=4, padding=2)
    y = net.pool("pool1", y, 3, stride=2)
    y = net.conv("conv2", y, 192, 5, padding=2)
    y = net.pool("pool2", y, 3, stride=2)
    y = net.conv("conv3", y, 384, 3, padding=1)
    y = net.conv("conv4", y, 256, 3, padding=1)
    y = net.conv("conv5", y, 256, 3, padding=1)
    y = net.pool("pool3", y, 3, stride=2)
    net.begin_classifier()
    y = net.fc("fc6", y, 4096, relu=True)
    y = net.fc("fc7", y, 4096, relu=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))
