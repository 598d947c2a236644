"""A Llama transformer in the size of TinyLlama 1.1B, on sequences of 2048 tokens or another length.

Source: Zhang et al., TinyLlama, arXiv:2401.02385, 2024, after Touvron et al., LLaMA, arXiv:2302.13971, 2023: RMSNorm,
no biases, no dropout, 32 heads that share 4 of keys and values, products gated by SiLU, a head of its own. Attention is
one fused layer, the rotation of Q and K included; gate and up are two products.
"""

from vdnnsim.dnn.elementwise import ElementwiseProduct
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape

_TOKENS, _VOCABULARY, _FEATURES, _HIDDEN, _BLOCKS = 2048, 32000, 2048, 5632, 22
_HEADS, _KEY_VALUE_HEADS = 32, 4


def llama_1b(tokens: int = _TOKENS) -> LayerGraph:
    """Build the transformer: 22 blocks, 111 products with the head, 1,100,048,384 parameters."""
    net = GraphBuilder("llama_1b", MapShape(1, steps=tokens))
    y = net.layer("embedding", Embedding(_VOCABULARY, _FEATURES), 0)
    for block in range(_BLOCKS):
        y = _block(net, f"layers{block}", y)
    y = net.layer("norm", LayerNormalization(centered=False), y)
    net.begin_classifier()
    return net.build(net.layer("head", Linear(_VOCABULARY, bias=False), y))


def _block(net: GraphBuilder, name: str, x: int) -> int:
    y = net.layer(f"{name}.attention_norm", LayerNormalization(centered=False), x)
    width = _FEATURES // _HEADS
    y = net.layer(f"{name}.attention.qkv", Linear((_HEADS + 2 * _KEY_VALUE_HEADS) * width, bias=False), y)
    y = net.layer(f"{name}.attention", Attention(_HEADS, key_value_heads=_KEY_VALUE_HEADS), y)
    x = net.add(
        f"{name}.attention.add", net.layer(f"{name}.attention.out", Linear(_FEATURES, bias=False), y), x, relu=False
    )
    y = net.layer(f"{name}.ffn_norm", LayerNormalization(centered=False), x)
    gate = net.layer(f"{name}.ffn.gate", Linear(_HIDDEN, bias=False), y)
    up = net.layer(f"{name}.ffn.up", Linear(_HIDDEN, bias=False), y)
    y = net.layer(
        f"{name}.ffn.product",
        ElementwiseProduct(),
        net.layer(f"{name}.ffn.silu", SmoothActivation(Smoothness.SILU), gate),
        up,
    )
    return net.add(f"{name}.ffn.add", net.layer(f"{name}.ffn.down", Linear(_FEATURES, bias=False), y), x, relu=False)
