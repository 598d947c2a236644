"""GPT-2 in its smallest size, on sequences of up to 1024 tokens.

Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019, and github.com/openai/gpt-2,
src/model.py: normalization before attention and before the two products, the head multiplies with the table of tokens.
Attention is one fused layer. Dropout at 0.1 stands behind the embedding and each of the two branches of a block, with
PyTorch's mask; that of the attention's weights is part of the fused layer, which redraws it in backward.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.errors import InputError

_TOKENS, _VOCABULARY, _FEATURES, _BLOCKS, _HEADS = 1024, 50257, 768, 12, 12


def gpt2_small(tokens: int = _TOKENS) -> LayerGraph:
    """Build GPT-2: 12 blocks, 49 products with the head, 124,439,808 parameters.

    Raises:
        InputError: there are more tokens than positions.
    """
    if tokens > _TOKENS:
        raise InputError(f"gpt2_small: found {tokens} tokens, expected {_TOKENS} at most, for which it has positions")
    net = GraphBuilder("gpt2_small", MapShape(1, steps=tokens))
    embedding = net.append("embedding", Embedding(_VOCABULARY, _FEATURES, positions=_TOKENS), (0,))
    y = _dropout(net, "drop", embedding.output)
    for block in range(_BLOCKS):
        y = _block(net, f"h{block}", y)
    y = net.layer("ln_f", LayerNormalization(), y)
    net.begin_classifier()
    return net.build(net.layer("head", Linear(_VOCABULARY, bias=False), y, weights_of=embedding.index))


def _block(net: GraphBuilder, name: str, x: int) -> int:
    y = net.layer(f"{name}.attn.qkv", Linear(3 * _FEATURES), net.layer(f"{name}.ln_1", LayerNormalization(), x))
    y = net.layer(f"{name}.attn", Attention(_HEADS, key_value_heads=_HEADS), y)
    y = _dropout(net, f"{name}.attn.drop", net.layer(f"{name}.attn.proj", Linear(_FEATURES), y))
    x = net.add(f"{name}.attn.add", y, x, relu=False)
    y = net.layer(f"{name}.mlp.fc", Linear(4 * _FEATURES), net.layer(f"{name}.ln_2", LayerNormalization(), x))
    y = net.layer(
        f"{name}.mlp.proj", Linear(_FEATURES), net.layer(f"{name}.mlp.gelu", SmoothActivation(Smoothness.GELU), y)
    )
    return net.add(f"{name}.mlp.add", _dropout(net, f"{name}.mlp.drop", y), x, relu=False)


def _dropout(net: GraphBuilder, name: str, x: int) -> int:
    return net.dropout(name, x, mask_bytes=1, in_place=False)
