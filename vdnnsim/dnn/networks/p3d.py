"""Pseudo-3D ResNet-199 on clips of 16 frames: ResNet-152 with convolutions in time beside the 3x3 ones of a frame.

Source: Qiu et al., Learning Spatio-Temporal Representation with Pseudo-3D Residual Networks, ICCV 2017, and
github.com/qijiezhao/pseudo-3d-pytorch, p3d_model.py at 13964317. Blocks take turns: in A the convolution in time
follows that of each frame, in B both read the same map and are added, in C the first is added to the second, which
reads it. Three groups halve the frames at their end, so that the last is of images. The classes are the 487 of
Sports-1M.
"""

from vdnnsim.dnn.convolutional import Convolution, Pooling
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape

_GROUPS = ((3, 64), (8, 128), (36, 256), (3, 512))
"""Blocks and their width."""
_EXPANSION, _IMAGE_GROUP, _CLASSES = 4, 4, 487


def p3d_resnet199() -> LayerGraph:
    """Build the network: 198 CONV layers and 4 projections, 1 FC layer, 65,845,479 parameters."""
    net = GraphBuilder("p3d_resnet199", MapShape(3, 160, 160, steps=16))
    y = net.conv("conv1", 0, 64, 7, stride=2, padding=3, norm="bn1")
    y = net.layer("maxpool", Pooling((3, 3), (2, 2), (1, 1), steps=2), y)
    turn = 0
    for group, (blocks, width) in enumerate(_GROUPS, start=1):
        for block in range(blocks):
            kind = "image" if group == _IMAGE_GROUP else "ABC"[turn % 3]
            stride = 2 if group > 1 and block == 0 else 1
            y = _block(net, f"layer{group}.{block}", y, width, kind, stride=stride, project=block == 0)
            turn += 1
        if group != _IMAGE_GROUP:
            y = net.layer(f"maxpool_{group}", Pooling((1, 1), (1, 1), steps=2), y)
    y = net.average_pool("avgpool", y, 5, stride=1)
    net.begin_classifier()
    y = net.dropout("dropout", y, mask_bytes=1, in_place=False)
    return net.build(net.fc("fc", y, _CLASSES, relu=False))


def _block(net: GraphBuilder, name: str, x: int, width: int, kind: str, *, stride: int, project: bool) -> int:
    y = net.conv(f"{name}.conv1", x, width, 1, stride=stride, norm=f"{name}.bn1")
    frames = net.conv(f"{name}.conv2", y, width, 3, padding=1, norm=f"{name}.bn2")
    match kind:
        case "A":
            y = _in_time(net, name, frames, width)
        case "B":
            y = net.add(f"{name}.sum", _in_time(net, name, y, width), frames, relu=False)
        case "C":
            y = net.add(f"{name}.sum", frames, _in_time(net, name, frames, width), relu=False)
        case _:
            y = frames
    y = net.conv(f"{name}.conv4", y, _EXPANSION * width, 1, norm=f"{name}.bn4", relu=False)
    if project:
        x = net.conv(
            f"{name}.downsample.0", x, _EXPANSION * width, 1, stride=stride, norm=f"{name}.downsample.1", relu=False
        )
    return net.add(f"{name}.add", y, x)


def _in_time(net: GraphBuilder, name: str, x: int, width: int) -> int:
    return net.batch_norm(f"{name}.bn3", net.layer(f"{name}.conv3", Convolution(width, (1, 1), bias=False, steps=3), x))
