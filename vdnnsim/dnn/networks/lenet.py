"""The small networks of Caffe's examples: LeNet on MNIST's images of 28 x 28, and the quick one on CIFAR-10's.

Source of LeNet: github.com/BVLC/caffe, examples/mnist/lenet_train_test.prototxt, after LeCun et al., Gradient-Based
Learning Applied to Document Recognition, Proc. IEEE 86(11), 1998. Convolutions have no rectifier.
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


def cifar10_quick() -> LayerGraph:
    """Build the quick network of Caffe's CIFAR-10 example: 3 CONV layers, 2 FC layers, 116,906 parameters.

    Source: github.com/BVLC/caffe, examples/cifar10/cifar10_quick_train_test.prototxt. Two things differ. Caffe pools
    the last incomplete window as well, which is left out here, so that maps have 15, 7 and 3 pixels a side where
    Caffe's have 16, 8 and 4, and ip1 has 36,928 weights instead of 65,600. And Caffe rectifies conv1 behind pool1; here
    it is done before, which gives the same values.
    """
    net = GraphBuilder("cifar10_quick", MapShape(3, 32, 32))
    y = net.conv("conv1", 0, 32, 5, padding=2)
    y = net.pool("pool1", y, 3, stride=2)
    y = net.conv("conv2", y, 32, 5, padding=2)
    y = net.average_pool("pool2", y, 3, stride=2)
    y = net.conv("conv3", y, 64, 5, padding=2)
    y = net.average_pool("pool3", y, 3, stride=2)
    net.begin_classifier()
    y = net.fc("ip1", y, 64, relu=False)
    return net.build(net.fc("ip2", y, 10, relu=False))
