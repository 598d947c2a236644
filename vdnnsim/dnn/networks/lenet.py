"""LeNet as Caffe's MNIST example has it, on images of 28 x 28.

Source: github.com/BVLC/caffe, examples/mnist/lenet_train_test.prototxt, after LeCun et al., Gradient-Based Learning
Applied to Document Recognition, Proc. IEEE 86(11), 1998. Convolutions have no rectifier.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape


def lenet() -> LayerGraph:
    """Build LeNet: 2 CONV layers, 2 FC layers, 431,080 parameters."""
    net = GraphBuilder("lenet", MapShape(1, 28, 28))
    y = net.pool("pool1", net.conv("conv1", 0, 20, 5, relu=False), 2, stride=2)
    y = net.pool("pool2", net.conv("conv2", y, 50, 5, relu=False), 2, stride=2)
    net.begin_classifier()
    y = net.fc("ip1", y, 500, relu=True)
    return net.build(net.fc("ip2", y, 10, relu=False))
