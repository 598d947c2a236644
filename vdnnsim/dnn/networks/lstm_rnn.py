"""A network of four LSTM layers for the sounds of speech, which says at each step in which state the speaker is.

Layrub (Jin et al., TACO 15(3), 2018) trains such a network on sequences of 512 steps (Fig. 11) and counts one of 800
(Table 1, 148 MB of weights), citing Sak et al., Long Short-Term Memory Recurrent Neural Network Architectures for Large
Scale Acoustic Modeling (Interspeech 2014), but gives no sizes. Assumed here: of Sak et al. the 40 filter banks, layers
of 1024 cells without projection, and 8000 states, whose weights have 151 MB.
"""

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.sequence_builder import SequenceBuilder
from vdnnsim.dnn.shapes import MapShape

_FILTER_BANKS, _CELLS, _LAYERS, _STATES = 40, 1024, 4, 8000


def lstm_rnn(name: str, steps: int) -> LayerGraph:
    """Build the network for sequences of that many steps: 4 RNN layers, 1 FC layer, 37,756,736 parameters."""
    net = SequenceBuilder(name, MapShape(_FILTER_BANKS, steps=steps))
    y = 0
    for number in range(1, _LAYERS + 1):
        y = net.lstm(f"lstm{number}", y, _CELLS)
    net.begin_classifier()
    return net.build(net.linear("fc", y, _STATES))
