"""Shapes of kernels, and operators as text."""

import pytest

from tests.toy import with_fc
from vdnnsim.cost.kernel_table import KINDS, KernelShape
from vdnnsim.cost.operator_text import operator_text
from vdnnsim.dnn.convolutional import Convolution, FullyConnected, Pooling
from vdnnsim.dnn.elementwise import Cast, Dropout, LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.operator import Operator
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import Relu6, TransposedConvolution
from vdnnsim.dnn.workload import Optimizer, Workload, under_autocast
from vdnnsim.units import ElementType


def every_operator() -> Workload:
    """One of each operator of the papers: the map of `conv` is read by `norm` first, and last by `add`."""
    net = GraphBuilder("every operator", MapShape(3, 9, 8))
    conv = net.conv("conv", 0, 4, 3, stride=2, padding=1)
    norm = net.batch_norm("norm", conv, relu=False)
    bare = net.conv("bare", norm, 4, 1, bias=False, relu=False)
    added = net.add("add", conv, bare, relu=False)
    pooled = net.pool("max", added, 2, stride=2)
    average = net.average_pool("average", added, 2, stride=2)
    joined = net.concat("join", (pooled, average))
    return Workload(with_fc(net, joined, 10), 6, ElementType.FLOAT16, Optimizer.MOMENTUM)


WORKLOAD = every_operator()
LAYERS = {layer.name: layer for layer in WORKLOAD.graph.layers}


def shape_of(name: str, phase: Phase = Phase.FORWARD) -> KernelShape:
    return KernelShape.of(WORKLOAD, LAYERS[name], phase)


@pytest.mark.parametrize(
    ("operator", "text"),
    [
        (Convolution(4, (3, 3), (2, 2), (1, 1)), "conv 4 3x3 stride 2x2 padding 1x1 bias"),
        (Convolution(4, (1, 1), bias=False), "conv 4 1x1 stride 1x1 padding 0x0"),
        (Convolution(6, (3, 3), groups=2), "conv 6 3x3 stride 1x1 padding 0x0 bias groups 2"),
        (Convolution(6, (1, 1), bias=False, steps=3), "conv 6 1x1 stride 1x1 padding 0x0 steps 3"),
        (Pooling((3, 3), (1, 1), steps=2), "max_pool 3x3 stride 1x1 padding 0x0 steps 2"),
        (Pooling((2, 2), (2, 2), average=True), "average_pool 2x2 stride 2x2 padding 0x0"),
        (FullyConnected(10), "fc 10 bias"),
        (LocalResponseNormalization(5), "lrn window 5"),
        (Dropout(4, over_input=True), "dropout mask_bytes 4 over_input"),
        (Dropout(1, over_input=False), "dropout mask_bytes 1"),
        (Linear(12), "linear out_features 12 bias"),
        (Linear(2, bias=False, first_step=True), "linear out_features 2 first_step"),
        (LayerNormalization(), "layer_norm centered"),
        (LayerNormalization(centered=False), "layer_norm"),
        (Attention(2, key_value_heads=2), "attention heads 2 key_value_heads 2"),
        (Attention(1, key_value_heads=1, bidirectional=True), "attention heads 1 key_value_heads 1 bidirectional"),
        (SmoothActivation(Smoothness.GELU), "smooth gelu"),
        (Lstm(3), "lstm cells 3"),
        (Embedding(11, 4, positions=8), "embedding vocabulary 11 features 4 positions 8"),
        (TransposedConvolution(5, (3, 3), (2, 2)), "transposed_conv 5 3x3 stride 2x2 bias"),
        (Relu6(), "relu6 over_input"),
        (Cast(ElementType.FLOAT16), "cast float16"),
    ],
)
def test_an_operator_as_text(operator: Operator, text: str) -> None:
    assert operator_text(operator) == text


@pytest.mark.parametrize("network", ["tiny_forked", "caffenet", "unet", "gpt2_small", "vit_b_16", "p3d_resnet199"])
def test_a_shape_leads_to_the_output_of_its_layer(network: str) -> None:
    workload = Workload(build_network(network), 2)
    for layer in workload.graph.layers:
        assert KernelShape.of(workload, layer, Phase.FORWARD).output == layer.out_shape


def test_a_shape_says_which_gradients_are_written_and_which_added_to() -> None:
    """Backward meets `add` before `norm`, which adds to the gradient of their common map; `conv` reads the images.

    Of the map of `add` the average runs first in backward.
    """
    data = {name: shape_of(name, Phase.BACKWARD_DATA).gradients for name in ("add", "average", "max", "bare", "conv")}
    assert data == {"add": "ww", "average": "w", "max": "a", "bare": "w", "conv": "-"}
    assert shape_of("norm", Phase.BACKWARD).gradients == "a"
    assert shape_of("bare", Phase.BACKWARD_WEIGHTS).gradients == ""
    added = shape_of("add")
    assert (added.batch_size, added.element_type, added.gradients) == (6, ElementType.FLOAT16, "")
    assert added.inputs == (MapShape(4, 5, 4), MapShape(4, 5, 4))
    assert added.inputs_text == "4x5x4+4x5x4"


def test_an_update_is_of_weights_whatever_they_are_of() -> None:
    """The first CONV layer has 4 x (27 + 1) weights; no image takes part."""
    shape = shape_of("conv", Phase.UPDATE)
    assert shape == KernelShape("momentum", Phase.UPDATE, 1, ElementType.FLOAT16, (MapShape(112),), "")
    assert shape.output == MapShape(112)


def test_every_operator_has_a_kind_that_tables_may_hold() -> None:
    """Of all networks, in all phases; casts are those of mixed precision."""
    kinds = set()
    mixed = under_autocast(WORKLOAD.graph, ElementType.BFLOAT16)
    for graph in (mixed, *map(build_network, NETWORKS)):
        for optimizer in (Optimizer.SGD, Optimizer.MOMENTUM, Optimizer.ADAM):
            workload = Workload(graph, 2, optimizer=optimizer)
            kinds |= {
                KernelShape.of(workload, layer, phase).kind
                for layer in graph.layers
                for phase in workload.phases(layer)
            }
    assert kinds == set(KINDS)
