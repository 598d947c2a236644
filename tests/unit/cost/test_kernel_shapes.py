from vdnnsim.cost.kernel_table import KINDS, KernelShape
from vdnnsim.dnn.convolutional import Convolution, Pooling
from vdnnsim.dnn.elementwise import ElementwiseProduct, LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.variants import under_autocast
from vdnnsim.dnn.vision import ClassToken, LearnedPositions, Relu6, TransposedConvolution
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.units import ElementType

ALL = "every operator"


def every_operator() -> Workload:
    """A network with one of each: the map of `conv` is read by `norm` first, and last by `add`."""
    net = GraphBuilder(ALL, MapShape(3, 9, 8))
    conv = net.conv("conv", 0, 4, 3, stride=2, padding=1)
    norm = net.batch_norm("norm", conv, relu=False)
    bare = net.conv("bare", norm, 4, 1, bias=False, relu=False)
    added = net.add("add", conv, bare, relu=False)
    pooled = net.pool("max", added, 2, stride=2)
    average = net.average_pool("average", added, 2, stride=2)
    joined = net.concat("join", (pooled, average))
    net.begin_classifier()
    return Workload(net.build(net.fc("fc", joined, 10, relu=False)), 6, ElementType.FLOAT16, Optimizer.MOMENTUM)


def every_operator_of_sequences() -> Workload:
    """A network with one of each of the others: two frames, their features as a sequence of two steps."""
    net = GraphBuilder(ALL, MapShape(4, 3, 3, steps=4))
    y = net.conv("grouped", 0, 6, 3, padding=1, groups=2)
    y = net.layer(
        "pool", Pooling((3, 3), (1, 1), steps=2), net.layer("in_time", Convolution(6, (1, 1), bias=False, steps=3), y)
    )
    y = net.dropout("dropout", net.layer("lrn", LocalResponseNormalization(5), y), mask_bytes=4, in_place=True)
    y = net.dropout("copied", y, mask_bytes=1, in_place=False)
    y = net.layer("layer_norm", LayerNormalization(), net.layer("linear", Linear(12), y))
    y = net.layer("attention", Attention(2, key_value_heads=2), net.layer("rms", LayerNormalization(centered=False), y))
    y = net.layer(
        "lstm",
        Lstm(3),
        net.layer("product", ElementwiseProduct(), net.layer("gelu", SmoothActivation(Smoothness.GELU), y), y),
    )
    y = net.layer("no_bias", Linear(2, bias=False), net.layer("silu", SmoothActivation(Smoothness.SILU), y))
    return Workload(net.build(y), 6)


def every_operator_of_tokens() -> Workload:
    """A table, with positions and without."""
    net = GraphBuilder(ALL, MapShape(1, steps=5))
    return Workload(net.build(net.layer("table", Embedding(11, 4, positions=8), 0)), 6)


def every_operator_of_images_as_sequences() -> Workload:
    """Patches of 2 x 2 behind a token, and a picture that is made larger on the way."""
    net = GraphBuilder(ALL, MapShape(3, 4, 4))
    y = net.layer("larger", TransposedConvolution(5, (3, 3), (2, 2)), 0)
    y = net.conv("patches", net.layer("relu6", Relu6(), y), 6, 2, stride=2, relu=False)
    y = net.layer("positions", LearnedPositions(), net.layer("token", ClassToken(), y))
    y = net.layer("both_ways", Attention(1, key_value_heads=1, bidirectional=True), y)
    return Workload(net.build(net.layer("head", Linear(2, first_step=True), y)), 6)


WORKLOADS = (
    every_operator(),
    every_operator_of_sequences(),
    every_operator_of_tokens(),
    every_operator_of_images_as_sequences(),
)
LAYERS = {layer.name: layer for layer in WORKLOADS[0].graph.layers}


def shape_of(name: str, phase: Phase = Phase.FORWARD) -> KernelShape:
    """Return the shape of a layer of the first network."""
    return KernelShape.of(WORKLOADS[0], LAYERS[name], phase)


def test_an_operator_is_one_line_with_its_parameters() -> None:
    operators = {
        layer.name: KernelShape.of(each, layer, Phase.FORWARD).operator
        for each in WORKLOADS
        for layer in each.graph.layers
    }
    assert operators == {
        "conv": "conv 4 3x3 stride 2x2 padding 1x1 bias",
        "conv/relu": "relu",
        "norm": "batch_norm",
        "bare": "conv 4 1x1 stride 1x1 padding 0x0",
        "add": "add",
        "max": "max_pool 2x2 stride 2x2 padding 0x0",
        "average": "average_pool 2x2 stride 2x2 padding 0x0",
        "join": "concat",
        "fc": "fc 10 bias",
        "grouped": "conv 6 3x3 stride 1x1 padding 1x1 bias groups 2",
        "grouped/relu": "relu",
        "in_time": "conv 6 1x1 stride 1x1 padding 0x0 steps 3",
        "pool": "max_pool 3x3 stride 1x1 padding 0x0 steps 2",
        "lrn": "lrn window 5",
        "dropout": "dropout mask_bytes 4 over_input",
        "copied": "dropout mask_bytes 1",
        "linear": "linear out_features 12 bias",
        "layer_norm": "layer_norm centered",
        "rms": "layer_norm",
        "attention": "attention heads 2 key_value_heads 2",
        "gelu": "smooth gelu",
        "product": "multiply",
        "lstm": "lstm cells 3",
        "silu": "smooth silu",
        "no_bias": "linear out_features 2",
        "table": "embedding vocabulary 11 features 4 positions 8",
        "larger": "transposed_conv 5 3x3 stride 2x2 bias",
        "relu6": "relu6 over_input",
        "patches": "conv 6 2x2 stride 2x2 padding 0x0 bias",
        "token": "class_token",
        "positions": "positions",
        "both_ways": "attention heads 1 key_value_heads 1 bidirectional",
        "head": "linear out_features 2 bias first_step",
        "loss": "softmax_loss",
    }
    assert KernelShape.of(WORKLOADS[1], WORKLOADS[1].graph.layers[0], Phase.FORWARD).inputs_text == "4x4x3x3"


def test_a_shape_leads_to_the_output_of_its_layer() -> None:
    """Also of a concatenation, and of the weights that an update changes."""
    for workload in WORKLOADS:
        for layer in workload.graph.layers:
            assert KernelShape.of(workload, layer, Phase.FORWARD).output == layer.out_shape
    assert shape_of("conv", Phase.UPDATE).output == MapShape(112)


def test_a_shape_says_what_is_computed_of_how_much() -> None:
    shape = shape_of("add")
    assert (shape.batch_size, shape.element_type, shape.gradients) == (6, ElementType.FLOAT16, "")
    assert shape.inputs == (MapShape(4, 5, 4), MapShape(4, 5, 4))
    assert shape.inputs_text == "4x5x4+4x5x4"


def test_a_shape_says_which_gradients_are_written_and_which_added_to() -> None:
    """Backward meets `add` before `norm`, which adds to the gradient of their common map; `conv` reads the images.

    Of the map of `add` the average runs first in backward.
    """
    data = {name: shape_of(name, Phase.BACKWARD_DATA).gradients for name in ("add", "average", "max", "bare", "conv")}
    assert data == {"add": "ww", "average": "w", "max": "a", "bare": "w", "conv": "-"}
    assert shape_of("norm", Phase.BACKWARD).gradients == "a"
    assert shape_of("bare", Phase.BACKWARD_WEIGHTS).gradients == ""


def test_an_update_is_of_weights_whatever_they_are_of() -> None:
    """The first CONV layer has 4 x (27 + 1) weights; no image takes part."""
    expected = KernelShape("momentum", Phase.UPDATE, 1, ElementType.FLOAT16, (MapShape(112),), "")
    assert shape_of("conv", Phase.UPDATE) == expected


def test_every_operator_has_a_kind_that_tables_may_hold() -> None:
    """Of all networks and of those above, in all phases; casts are those of mixed precision."""
    kinds = set()
    mixed = under_autocast(WORKLOADS[0].graph, ElementType.BFLOAT16)
    for graph in (*(each.graph for each in WORKLOADS[:3]), mixed, *map(build_network, NETWORKS)):
        for optimizer in (Optimizer.SGD, Optimizer.MOMENTUM, Optimizer.ADAM):
            workload = Workload(graph, 2, optimizer=optimizer)
            kinds |= {
                KernelShape.of(workload, layer, phase).kind
                for layer in graph.layers
                for phase in workload.phases(layer)
            }
    assert kinds == set(KINDS)
