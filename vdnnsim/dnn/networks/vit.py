"""ViT-B/16: a picture as a sequence of 196 patches behind a learned token, of which alone the head reads.

Source: `vit_b_16` of torchvision (github.com/pytorch/vision, torchvision/models/vision_transformer.py), after
Dosovitskiy et al., An Image is Worth 16x16 Words (ICLR 2021). Its dropouts clear nothing (p = 0) and are left out, as
are the copies that its attention makes of what it reads (torch.nn.functional.multi_head_attention_forward), of which
one is kept in place of the map.
"""

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.sequence_builder import SequenceBuilder
from vdnnsim.dnn.sequences import Linear, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions

_PATCH, _FEATURES, _BLOCKS, _HEADS = 16, 768, 12, 12


def vit_b_16() -> LayerGraph:
    """Build ViT-B/16: 1 CONV layer, 12 blocks of 4 products, 86,567,656 parameters."""
    net = SequenceBuilder("vit_b_16", MapShape(3, 224, 224))
    y = net.conv("conv_proj", 0, _FEATURES, _PATCH, stride=_PATCH, relu=False)
    y = net.append("class_token", ClassToken(), (y,)).output
    y = net.append("encoder.pos_embedding", LearnedPositions(), (y,)).output
    for block in range(_BLOCKS):
        y = _block(net, f"encoder.layers.{block}", y)
    y = net.layer_norm("encoder.ln", y)
    net.begin_classifier()
    return net.build(net.append("heads.head", Linear(1000, first_step=True), (y,)).output)


def _block(net: SequenceBuilder, name: str, x: int) -> int:
    y = net.linear(f"{name}.self_attention.in_proj", net.layer_norm(f"{name}.ln_1", x), 3 * _FEATURES)
    y = net.attention(f"{name}.self_attention", y, _HEADS, key_value_heads=_HEADS, bidirectional=True)
    x = net.add(f"{name}.add_1", net.linear(f"{name}.self_attention.out_proj", y, _FEATURES), x, relu=False)
    y = net.linear(f"{name}.mlp.0", net.layer_norm(f"{name}.ln_2", x), 4 * _FEATURES)
    y = net.linear(f"{name}.mlp.3", net.smooth(f"{name}.mlp.gelu", y, Smoothness.GELU), _FEATURES)
    return net.add(f"{name}.add_2", x, y, relu=False)
