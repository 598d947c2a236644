"""ViT-B/16: an image as a sequence of 196 patches behind a learned class token.

Source: `vit_b_16` of torchvision (github.com/pytorch/vision, torchvision/models/vision_transformer.py), after
Dosovitskiy et al., An Image is Worth 16x16 Words (ICLR 2021). Its dropouts have p = 0 and are left out, as are the
copies of its inputs in attention (torch.nn.functional.multi_head_attention_forward), one of which is saved in place of
the map.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.sequences import Attention, LayerNormalization, Linear, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions

_PATCH, _FEATURES, _BLOCKS, _HEADS = 16, 768, 12, 12


def vit_b_16() -> LayerGraph:
    """Build ViT-B/16: 1 CONV layer, 12 blocks of 4 products, 86,567,656 parameters."""
    net = GraphBuilder("vit_b_16", MapShape(3, 224, 224))
    y = net.conv("conv_proj", 0, _FEATURES, _PATCH, stride=_PATCH, relu=False)
    y = net.layer("class_token", ClassToken(), y)
    y = net.layer("encoder.pos_embedding", LearnedPositions(), y)
    for block in range(_BLOCKS):
        y = _block(net, f"encoder.layers.{block}", y)
    y = net.layer("encoder.ln", LayerNormalization(), y)
    net.begin_classifier()
    return net.build(net.layer("heads.head", Linear(1000, first_step=True), y))


def _block(net: GraphBuilder, name: str, x: int) -> int:
    y = net.layer(
        f"{name}.self_attention.in_proj", Linear(3 * _FEATURES), net.layer(f"{name}.ln_1", LayerNormalization(), x)
    )
    y = net.layer(f"{name}.self_attention", Attention(_HEADS, key_value_heads=_HEADS, bidirectional=True), y)
    x = net.add(f"{name}.add_1", net.layer(f"{name}.self_attention.out_proj", Linear(_FEATURES), y), x, relu=False)
    y = net.layer(f"{name}.mlp.0", Linear(4 * _FEATURES), net.layer(f"{name}.ln_2", LayerNormalization(), x))
    y = net.layer(
        f"{name}.mlp.3", Linear(_FEATURES), net.layer(f"{name}.mlp.gelu", SmoothActivation(Smoothness.GELU), y)
    )
    return net.add(f"{name}.add_2", x, y, relu=False)
