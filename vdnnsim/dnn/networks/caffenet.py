"""CaffeNet: AlexNet with its groups, normalizations and dropouts, pooled before it is normalized.

Source: github.com/BVLC/caffe, models/bvlc_reference_caffenet/train_val.prototxt. Dropout works in place and keeps a
mask of 4 bytes an element, as Caffe's does.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


def caffenet() -> LayerGraph:
    """Build CaffeNet: 5 CONV and 3 FC layers, 60,965,224 parameters."""
    net = GraphBuilder("caffenet", MapShape(3, 227, 227))
    y = net.conv("conv1", 0, 96, 11, stride=4)
    y = net.local_response_norm("norm1", net.pool("pool1", y, 3, stride=2), 5)
    y = net.conv("conv2", y, 256, 5, padding=2, groups=2)
    y = net.local_response_norm("norm2", net.pool("pool2", y, 3, stride=2), 5)
    y = net.conv("conv3", y, 384, 3, padding=1)
    y = net.conv("conv4", y, 384, 3, padding=1, groups=2)
    y = net.conv("conv5", y, 256, 3, padding=1, groups=2)
    y = net.pool("pool5", y, 3, stride=2)
    net.begin_classifier()
    y = net.dropout("drop6", net.fc("fc6", y, 4096, relu=True), mask_bytes=4, in_place=True)
    y = net.dropout("drop7", net.fc("fc7", y, 4096, relu=True), mask_bytes=4, in_place=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))
