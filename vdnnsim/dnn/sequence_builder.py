"""Builds networks of sequences: the layers of transformers, of LSTMs and of videos beside those of images."""

from dataclasses import dataclass

from vdnnsim.dnn.convolutional import Activation, Convolution, Pooling
from vdnnsim.dnn.elementwise import ElementwiseProduct
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness


@dataclass
class SequenceBuilder(GraphBuilder):
    """Adds layers over maps with steps; each method returns the index of the map that the layer writes."""

    def embedding(self, name: str, x: int, vocabulary: int, features: int, *, positions: int = 0) -> int:
        """Add a table of vectors, and one of positions unless there are none."""
        return self._add(name, Embedding(vocabulary, features, positions), (x,))

    def layer_norm(self, name: str, x: int, *, centered: bool = True) -> int:
        """Add a layer normalization, or, if not centered, an RMSNorm."""
        return self._add(name, LayerNormalization(centered), (x,))

    def linear(self, name: str, x: int, out_features: int, *, bias: bool = True, relu: bool = False) -> int:
        """Add a product over each step, with an in-place rectifier behind it if `relu`."""
        return self._add_with_activation(name, Linear(out_features, bias), (x,), relu=relu)

    def tied_linear(self, name: str, x: int, embedding: str) -> int:
        """Add a product of each step with the table of the embedding of that name, which has no positions' table.

        The tables of one layer are one W; the product multiplies with the rows of the vocabulary.
        """
        (owner,) = (layer for layer in self._layers if layer.name == embedding)
        assert isinstance(owner.operator, Embedding), f"{embedding} has no table"
        return self._add(name, Linear(owner.operator.vocabulary, bias=False), (x,), weights_of=owner.index)

    def attention(self, name: str, x: int, heads: int, *, key_value_heads: int, bidirectional: bool = False) -> int:
        """Add fused attention over the Q, K and V in each step."""
        parts = heads + 2 * key_value_heads
        channels = self._shapes[x].channels
        assert channels % parts == 0, f"{name}: {channels} features cannot be shared among {parts} heads"
        return self._add(name, Attention(heads, key_value_heads, bidirectional), (x,))

    def smooth(self, name: str, x: int, function: Smoothness) -> int:
        """Add a smooth activation, into a map of its own."""
        return self._add(name, SmoothActivation(function), (x,))

    def multiply(self, name: str, a: int, b: int) -> int:
        """Add the element-wise product of two maps of equal shape."""
        return self._add(name, ElementwiseProduct(), (a, b))

    def lstm(self, name: str, x: int, cells: int) -> int:
        """Add a layer of long short-term memory."""
        return self._add(name, Lstm(cells), (x,))

    def conv_in_time(self, name: str, x: int, out_channels: int, steps: int) -> int:
        """Add a convolution over the steps of each pixel, without bias, which keeps their number."""
        return self._add(name, Convolution(out_channels, (1, 1), bias=False, steps=steps), (x,))

    def relu(self, name: str, x: int) -> int:
        """Add an in-place rectifier."""
        return self._add(name, Activation(), (x,))

    def pool_in_time(self, name: str, x: int, kernel: int, *, stride: int, steps: int, padding: int = 0) -> int:
        """Add a maximum pooling of square windows over several steps, which do not overlap in time."""
        return self._add(name, Pooling((kernel, kernel), (stride, stride), (padding, padding), steps=steps), (x,))
