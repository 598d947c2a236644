"""A transformer in the manner of Llama, in the size of TinyLlama 1.1B, on texts of 2048 tokens.

Source: Zhang et al., TinyLlama, arXiv:2401.02385, 2024, after Touvron et al., LLaMA, arXiv:2302.13971, 2023: RMSNorm,
no biases, no dropout, 32 heads that share 4 of keys and values, products gated by SiLU, a head of its own. Attention is
one fused layer, the rotation of Q and K included; gate and up are two products.
"""

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.sequence_builder import SequenceBuilder
from vdnnsim.dnn.sequences import Smoothness
from vdnnsim.dnn.shapes import MapShape

_TOKENS, _VOCABULARY, _FEATURES, _HIDDEN, _BLOCKS = 2048, 32000, 2048, 5632, 22
_HEADS, _KEY_VALUE_HEADS = 32, 4


def llama_1b() -> LayerGraph:
    """Build the transformer: 22 blocks, 111 products with the head, 1,100,048,384 parameters."""
    net = SequenceBuilder("llama_1b", MapShape(1, steps=_TOKENS))
    y = net.embedding("embedding", 0, _VOCABULARY, _FEATURES)
    for block in range(_BLOCKS):
        y = _block(net, f"layers{block}", y)
    y = net.layer_norm("norm", y, centered=False)
    net.begin_classifier()
    return net.build(net.linear("head", y, _VOCABULARY, bias=False))


def _block(net: SequenceBuilder, name: str, x: int) -> int:
    y = net.layer_norm(f"{name}.attention_norm", x, centered=False)
    width = _FEATURES // _HEADS
    y = net.linear(f"{name}.attention.qkv", y, (_HEADS + 2 * _KEY_VALUE_HEADS) * width, bias=False)
    y = net.attention(f"{name}.attention", y, _HEADS, key_value_heads=_KEY_VALUE_HEADS)
    x = net.add(f"{name}.attention.add", net.linear(f"{name}.attention.out", y, _FEATURES, bias=False), x, relu=False)
    y = net.layer_norm(f"{name}.ffn_norm", x, centered=False)
    gate = net.linear(f"{name}.ffn.gate", y, _HIDDEN, bias=False)
    up = net.linear(f"{name}.ffn.up", y, _HIDDEN, bias=False)
    y = net.multiply(f"{name}.ffn.product", net.smooth(f"{name}.ffn.silu", gate, Smoothness.SILU), up)
    return net.add(f"{name}.ffn.add", net.linear(f"{name}.ffn.down", y, _FEATURES, bias=False), x, relu=False)
