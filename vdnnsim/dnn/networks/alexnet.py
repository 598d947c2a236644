"""AlexNet in the one-tower form, that of the vDNN paper's reference models and torchvision's; OverFeat; CaffeNet.

Sources of AlexNet: github.com/soumith/convnet-benchmarks, torch7/imagenet_winners/alexnet.lua at b458aab6 ("One weird
trick" form: no grouped convolutions, no local response normalization, no dropout); `alexnet` of torchvision
(github.com/pytorch/vision, torchvision/models/alexnet.py), which adds adaptive pooling and dropouts, with masks of one
byte an element.
"""

from vdnnsim.dnn.elementwise import LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


def alexnet() -> LayerGraph:
    """Build the paper's AlexNet: 5 CONV and 3 FC layers, 61,100,840 parameters."""
    net = GraphBuilder("alexnet", MapShape(3, 224, 224))
    y = _features(net)
    net.begin_classifier()
    y = net.fc("fc6", y, 4096, relu=True)
    y = net.fc("fc7", y, 4096, relu=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))


def alexnet_torchvision() -> LayerGraph:
    """Build torchvision's AlexNet: 5 CONV and 3 FC layers, 2 dropouts, 61,100,840 parameters."""
    net = GraphBuilder("alexnet_torchvision", MapShape(3, 224, 224))
    y = net.adaptive_average_pool("avgpool", _features(net), 6)
    net.begin_classifier()
    y = net.fc("fc6", net.dropout("drop6", y, mask_bytes=1, in_place=False), 4096, relu=True)
    y = net.fc("fc7", net.dropout("drop7", y, mask_bytes=1, in_place=False), 4096, relu=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))


def _features(net: GraphBuilder) -> int:
    y = net.conv("conv1", 0, 64, 11, stride=4, padding=2)
    y = net.pool("pool1", y, 3, stride=2)
    y = net.conv("conv2", y, 192, 5, padding=2)
    y = net.pool("pool2", y, 3, stride=2)
    y = net.conv("conv3", y, 384, 3, padding=1)
    y = net.conv("conv4", y, 256, 3, padding=1)
    y = net.conv("conv5", y, 256, 3, padding=1)
    return net.pool("pool3", y, 3, stride=2)


def overfeat() -> LayerGraph:
    """Build OverFeat, the fast model of the vDNN paper: 5 CONV and 3 FC layers, 145,920,872 parameters.

    Source: github.com/soumith/convnet-benchmarks, torch7/imagenet_winners/overfeat.lua at b458aab6.
    """
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


def caffenet() -> LayerGraph:
    """Build AlexNet with its groups, normalizations and dropouts: 5 CONV and 3 FC layers, 60,965,224 parameters.

    Source: github.com/BVLC/caffe, models/bvlc_reference_caffenet/train_val.prototxt. It is pooled before it is
    normalized. Dropout works in place and keeps a mask of 4 bytes an element, as Caffe's does.
    """
    net = GraphBuilder("caffenet", MapShape(3, 227, 227))
    y = net.conv("conv1", 0, 96, 11, stride=4)
    y = net.layer("norm1", LocalResponseNormalization(5), net.pool("pool1", y, 3, stride=2))
    y = net.conv("conv2", y, 256, 5, padding=2, groups=2)
    y = net.layer("norm2", LocalResponseNormalization(5), net.pool("pool2", y, 3, stride=2))
    y = net.conv("conv3", y, 384, 3, padding=1)
    y = net.conv("conv4", y, 384, 3, padding=1, groups=2)
    y = net.conv("conv5", y, 256, 3, padding=1, groups=2)
    y = net.pool("pool5", y, 3, stride=2)
    net.begin_classifier()
    y = net.dropout("drop6", net.fc("fc6", y, 4096, relu=True), mask_bytes=4, in_place=True)
    y = net.dropout("drop7", net.fc("fc7", y, 4096, relu=True), mask_bytes=4, in_place=True)
    return net.build(net.fc("fc8", y, 1000, relu=False))
