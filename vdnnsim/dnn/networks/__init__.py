"""The networks, one builder file per family.

`NETWORKS` maps each name to a builder without arguments; names of members of `FAMILIES` have one or two numbers;
`build_network` builds any of them.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.alexnet import alexnet, alexnet_torchvision, caffenet, overfeat
from vdnnsim.dnn.networks.densenet import densenet121
from vdnnsim.dnn.networks.families import FAMILIES
from vdnnsim.dnn.networks.googlenet import googlenet
from vdnnsim.dnn.networks.gpt2 import gpt2_small
from vdnnsim.dnn.networks.inception_v3 import inception_v3
from vdnnsim.dnn.networks.lenet import cifar10_quick, lenet
from vdnnsim.dnn.networks.llama import llama_1b
from vdnnsim.dnn.networks.lstm import lstm_cnn, lstm_rnn
from vdnnsim.dnn.networks.mobilenet_v2 import mobilenet_v2
from vdnnsim.dnn.networks.p3d import p3d_resnet199
from vdnnsim.dnn.networks.resnet import resnet
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.networks.unet import unet
from vdnnsim.dnn.networks.vgg import vgg, vgg_paper, vgg_torchvision
from vdnnsim.dnn.networks.vit import vit_b_16
from vdnnsim.errors import InputError
from vdnnsim.files.messages import not_one_of, plain, quote, spelled_as

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
    "resnet50": partial(resnet, 50),
    "inception_v3": inception_v3,
    "lenet": lenet,
    "cifar10_quick": cifar10_quick,
    "caffenet": caffenet,
    "lstm_rnn": partial(lstm_rnn, "lstm_rnn", 512),
    "lstm_rnn_800": partial(lstm_rnn, "lstm_rnn_800", 800),
    "lstm_cnn": lstm_cnn,
    "p3d_resnet199": p3d_resnet199,
    "gpt2_small": gpt2_small,
    "llama_1b": llama_1b,
    "alexnet_torchvision": alexnet_torchvision,
    "vgg11_torchvision": partial(vgg_torchvision, 11),
    "vgg13_torchvision": partial(vgg_torchvision, 13),
    "vgg16_torchvision": partial(vgg_torchvision, 16),
    "vgg19_torchvision": partial(vgg_torchvision, 19),
    "mobilenet_v2": mobilenet_v2,
    "densenet121": densenet121,
    "unet": unet,
    "vit_b_16": vit_b_16,
    "tiny_linear": tiny_linear,
    "tiny_forked": tiny_forked,
    "tiny_residual": tiny_residual,
}

SEQUENCES: Mapping[str, Callable[[int], LayerGraph]] = {"gpt2_small": gpt2_small, "llama_1b": llama_1b}
"""Networks on sequences of any number of tokens."""

CALLED_OTHERWISE: Mapping[str, str] = {"vgg16": "16 CONV layers, as in the vDNN paper: VGG-19 elsewhere"}
"""Remarks on names that commonly mean another network."""

NETWORK_NAMES: Sequence[str] = (*NETWORKS, *(family.name for family in FAMILIES))
"""As messages list them: a family once."""


def build_network(name: str, tokens: int | None = None) -> LayerGraph:
    """Build the network called `name`, on sequences of so many tokens, by default of its own length.

    Raises:
        InputError: no network has this name, the message has the nearest one; or it has no tokens, or not so many.
    """
    name = spelled_as(name, NETWORKS) or name
    if tokens is not None:
        if name not in SEQUENCES:
            known = ", ".join(SEQUENCES)
            raise InputError(f"{quote(name)} has no tokens, expected one of {known}, or a captured model of sequences")
        return SEQUENCES[name](tokens)
    if name in NETWORKS:
        return NETWORKS[name]()
    for family in FAMILIES:
        numbers = family.numbers_of(name) or family.numbers_of(plain(name))
        if numbers is None:
            continue
        if not family.holds(numbers):
            nearest = family.nearest(numbers)
            raise InputError(f"{quote(name)} is not a network; did you mean {nearest!r}? ({family.members})")
        return family.build(*numbers)
    raise InputError(not_one_of(name, NETWORK_NAMES, "a network"))
