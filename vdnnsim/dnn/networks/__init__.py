"""The networks, one builder file per family.

`NETWORKS` maps each name to a builder without arguments; `build_network` is the way in.
"""

from collections.abc import Callable, Mapping
from functools import partial

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.alexnet import alexnet
from vdnnsim.dnn.networks.cifar10_quick import cifar10_quick
from vdnnsim.dnn.networks.googlenet import googlenet
from vdnnsim.dnn.networks.inception_v3 import inception_v3
from vdnnsim.dnn.networks.overfeat import overfeat
from vdnnsim.dnn.networks.resnet import resnet50
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.networks.vgg import vgg, vgg_paper
from vdnnsim.errors import InputError
from vdnnsim.yaml_file import not_one_of

NETWORKS: Mapping[str, Callable[[], LayerGraph]] = {
    "alexnet": alexnet,
    "overfeat": overfeat,
    "googlenet": googlenet,
    "vgg16": partial(vgg_paper, 16),
    "vgg116": partial(vgg_paper, 116),
    "vgg216": partial(vgg_paper, 216),
    "vgg316": partial(vgg_paper, 316),
    "vgg416": partial(vgg_paper, 416),
    "vgg_a_8conv": partial(vgg, "vgg_a_8conv", (1, 1, 2, 2, 2)),
    "vgg_d_13conv": partial(vgg, "vgg_d_13conv", (2, 2, 3, 3, 3)),
    "resnet50": resnet50,
    "inception_v3": inception_v3,
    "cifar10_quick": cifar10_quick,
    "tiny_linear": tiny_linear,
    "tiny_forked": tiny_forked,
    "tiny_residual": tiny_residual,
}


def build_network(name: str) -> LayerGraph:
    """Build the network called `name`.

    Raises:
        InputError: no network has this name; the message offers the nearest one.
    """
    if name not in NETWORKS:
        raise InputError(not_one_of(name, NETWORKS, "a network"))
    return NETWORKS[name]()
