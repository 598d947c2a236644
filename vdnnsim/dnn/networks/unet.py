"""U-Net with padded convolutions and batch normalization, on images of 512 x 512 with two classes.

Source: github.com/milesial/Pytorch-UNet, unet/unet_model.py and unet_parts.py, with `bilinear=False` and its names,
after Ronneberger et al., U-Net: Convolutional Networks for Biomedical Image Segmentation (MICCAI 2015), whose
convolutions are not padded. Its padding of a map to the size of its counterpart is left out, for here they are equal.
The loss is one for each pixel.
"""

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import TransposedConvolution

_WIDTHS, _CLASSES = (64, 128, 256, 512, 1024), 2


def unet() -> LayerGraph:
    """Build the U-Net: 19 CONV layers and 4 transposed ones, 18 BN layers, 31,037,698 parameters."""
    net = GraphBuilder("unet", MapShape(3, 512, 512))
    y = _two_convolutions(net, "inc", 0, _WIDTHS[0])
    maps = []
    for step, width in enumerate(_WIDTHS[1:], start=1):
        maps.append(y)
        y = _two_convolutions(net, f"down{step}", net.pool(f"down{step}.pool", y, 2, stride=2), width)
    for step, width in enumerate(reversed(_WIDTHS[:-1]), start=1):
        y = net.layer(f"up{step}.up", TransposedConvolution(width, (2, 2), (2, 2)), y)
        y = _two_convolutions(net, f"up{step}", net.concat(f"up{step}.cat", (maps.pop(), y)), width)
    net.begin_classifier()
    return net.build(net.conv("outc", y, _CLASSES, 1, relu=False))


def _two_convolutions(net: GraphBuilder, name: str, x: int, width: int) -> int:
    for number in (1, 2):
        x = net.conv(f"{name}.conv{number}", x, width, 3, padding=1, norm=f"{name}.bn{number}")
    return x
