"""LSTM networks: four layers for acoustic modelling, and convolutions with one layer for videos.

Layrub (Jin et al., TACO 15(3), 2018) trains such a network on sequences of 512 steps (Fig. 11) and counts one of 800
(Table 1, 148 MB of weights), citing Sak et al., Long Short-Term Memory Recurrent Neural Network Architectures for Large
Scale Acoustic Modeling (Interspeech 2014), but gives no sizes. Assumed here: of Sak et al. the 40 filter banks, layers
of 1024 cells without projection, and 8000 states, whose weights have 151 MB.
"""

from vdnnsim.dnn.elementwise import LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.sequences import Linear, Lstm
from vdnnsim.dnn.shapes import MapShape

_FILTER_BANKS, _CELLS, _LAYERS, _STATES = 40, 1024, 4, 8000
_FRAMES, _CLASSES = 16, 101


def lstm_rnn(name: str, steps: int) -> LayerGraph:
    """Build the network for sequences of that many steps: 4 RNN layers, 1 FC layer, 37,756,736 parameters."""
    net = GraphBuilder(name, MapShape(_FILTER_BANKS, steps=steps))
    y = 0
    for number in range(1, _LAYERS + 1):
        y = net.layer(f"lstm{number}", Lstm(_CELLS), y)
    net.begin_classifier()
    return net.build(net.layer("fc", Linear(_STATES), y))


def lstm_cnn() -> LayerGraph:
    """Build a network for videos: convolutions of each frame, then an LSTM over 16 frames.

    It has 5 CONV layers, 1 RNN layer, 2 FC layers, 67,816,933 parameters. Source: Donahue et al., Long-Term Recurrent
    Convolutional Networks for Visual Recognition and Description, CVPR 2015, and github.com/LisaAnne/lisa-caffe-public,
    examples/LRCN_activity_recognition/train_test_lstm_RGB.prototxt at 1b4877d9. Layrub's batch of 384 are the
    frames of 24 clips; here a batch counts clips. Caffe pools the last incomplete window as well; pool2 is padded
    instead, so that maps and weights have the sizes of Caffe's.
    """
    net = GraphBuilder("lstm_cnn", MapShape(3, 227, 227, steps=_FRAMES))
    y = net.pool("pool1", net.conv("conv1", 0, 96, 7, stride=2), 3, stride=2)
    y = net.conv("conv2", net.layer("norm1", LocalResponseNormalization(5), y), 384, 5, stride=2, groups=2)
    y = net.layer("norm2", LocalResponseNormalization(5), net.pool("pool2", y, 3, stride=2, padding=1))
    y = net.conv("conv3", y, 512, 3, padding=1)
    y = net.conv("conv4", y, 512, 3, padding=1, groups=2)
    y = net.conv("conv5", y, 384, 3, padding=1, groups=2)
    y = net.pool("pool5", y, 3, stride=2)
    net.begin_classifier()
    y = net.dropout("drop6", net.layer("fc6", Linear(4096), y, relu=True), mask_bytes=4, in_place=True)
    y = net.dropout("lstm1-drop", net.layer("lstm1", Lstm(256), y), mask_bytes=4, in_place=False)
    return net.build(net.layer("fc8-final", Linear(_CLASSES), y))
