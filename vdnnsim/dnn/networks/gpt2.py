"""GPT-2 in its smallest size, on texts of 1024 tokens.

Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019, and github.com/openai/gpt-2,
src/model.py: normalization before attention and before the two products, the head multiplies with the table of tokens.
Attention is one fused layer. Dropout at 0.1 stands behind the embedding and each of the two branches of a block, with
PyTorch's mask; that of the attention's weights is part of the fused layer, which draws it again in backward.
"""

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.sequence_builder import SequenceBuilder
from vdnnsim.dnn.sequences import Smoothness
from vdnnsim.dnn.shapes import MapShape

_TOKENS, _VOCABULARY, _FEATURES, _BLOCKS, _HEADS = 1024, 50257, 768, 12, 12


def gpt2_small() -> LayerGraph:
    """Build GPT-2: 12 blocks, 49 products with the head, 124,439,808 parameters."""
    net = SequenceBuilder("gpt2_small", MapShape(1, steps=_TOKENS))
    y = net.embedding("embedding", 0, _VOCABULARY, _FEATURES, positions=_TOKENS)
    y = _dropout(net, "drop", y)
    for block in range(_BLOCKS):
        y = _block(net, f"h{block}", y)
    y = net.layer_norm("ln_f", y)
    net.begin_classifier()
    return net.build(net.tied_linear("head", y, "embedding"))


def _block(net: SequenceBuilder, name: str, x: int) -> int:
    y = net.linear(f"{name}.attn.qkv", net.layer_norm(f"{name}.ln_1", x), 3 * _FEATURES)
    y = net.attention(f"{name}.attn", y, _HEADS, key_value_heads=_HEADS)
    y = _dropout(net, f"{name}.attn.drop", net.linear(f"{name}.attn.proj", y, _FEATURES))
    x = net.add(f"{name}.attn.add", y, x, relu=False)
    y = net.linear(f"{name}.mlp.fc", net.layer_norm(f"{name}.ln_2", x), 4 * _FEATURES)
    y = net.linear(f"{name}.mlp.proj", net.smooth(f"{name}.mlp.gelu", y, Smoothness.GELU), _FEATURES)
    return net.add(f"{name}.mlp.add", _dropout(net, f"{name}.mlp.drop", y), x, relu=False)


def _dropout(net: SequenceBuilder, name: str, x: int) -> int:
    return net.dropout(name, x, mask_bytes=1, in_place=False)
