"""OverFeat, the fast model, as in the vDNN paper's reference models.

Source: github.com/soumith/convnet-benchmarks, torch7/imagenet_winners/overfeat.lua at b458aab6.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


def overfeat() -> LayerGraph:
    """Build OverFeat: 5 CONV and 3 FC layers, 145,920,872 parameters."""
    net = GraphBuilder("overfeat", MapShape(3, 231, 231))
    y = net.conv("conv1", 0, 96, 11, stride=4)
    y = net.pool("pool1", y, 2, stride=2)
    y = net.conv("conv2", y, 256, 5)
    y = net.pool("pool2", y, 2, stride=2)
    y = net.conv("conv3", y, 512, 3, padding=1)
    y = net.conv("conv4", y, 1024, 3, padding=1)
    y = net.conv("conv5", y, 1024, 3, padding=1)
    y = net.pool("pool3", y, 2, stride=2)
    net.begin_classifier()
    y = net.fc("fc6", y, 3072, relu=True)
    y = net.fc("fc7", y, 4096, relu=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))
