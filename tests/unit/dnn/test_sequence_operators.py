"""Operators of sequences and regularization: shapes, saved tensors, work and traffic, by hand."""

import pytest

from tests.operands import Operands, operands
from vdnnsim.dnn.convolutional import Activation, Convolution, Pooling
from vdnnsim.dnn.elementwise import ElementwiseProduct, LocalResponseNormalization
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.units import ElementType

F, D, W, B, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.BACKWARD, Phase.UPDATE


def text(
    element_type: ElementType = ElementType.FLOAT32, mode: Mode = Mode.TRAINING, optimizer: Optimizer = Optimizer.NONE
) -> Workload:
    """Two sequences of 3 tokens, 7 words, 4 features; each layer with the map that it writes.

    table 0 (1), norm 1 (2), qkv 2 (3: 12 features), attention 3 (4), dropped 4 (5), sum 5 = map 5 + map 1 (6), rms 6
    (7), gate 7 (8), silu 8 (9), product 9 = map 9 + map 7 (10), lstm 10 (11: 5 features), narrow 11 (12: 4 features),
    head 12 (13: 7 features), loss 13 (14).
    """
    net = GraphBuilder("text", MapShape(1, steps=3))
    x = net.layer("table", Embedding(7, 4, positions=8), 0)
    y = net.layer(
        "attention",
        Attention(2, key_value_heads=2),
        net.layer("qkv", Linear(12), net.layer("norm", LayerNormalization(), x)),
    )
    x = net.add("sum", net.dropout("dropped", y, mask_bytes=1, in_place=False), x, relu=False)
    y = net.layer("rms", LayerNormalization(centered=False), x)
    gate = net.layer("silu", SmoothActivation(Smoothness.SILU), net.layer("gate", Linear(4, bias=False), y))
    y = net.layer("lstm", Lstm(5), net.layer("product", ElementwiseProduct(), gate, y))
    net.begin_classifier()
    y = net.layer("head", Linear(7, bias=False), net.layer("narrow", Linear(4), y), weights_of=0)
    return Workload(net.build(y), 2, element_type, optimizer, mode)


TEXT = text()
TABLE, NORM, QKV, ATTENTION, DROPPED, _, RMS, GATE, SILU, PRODUCT, LSTM, NARROW, HEAD, LOSS = TEXT.graph.layers


def image(mode: Mode = Mode.TRAINING) -> Workload:
    """Three images of 2x4x4 under a grouped convolution, in place dropped, locally normalized."""
    net = GraphBuilder("image", MapShape(2, 4, 4))
    y = net.conv("conv", 0, 6, 3, padding=1, groups=2)
    y = net.dropout("dropped", y, mask_bytes=4, in_place=True)
    net.begin_classifier()
    return Workload(
        net.build(net.fc("fc", net.layer("lrn", LocalResponseNormalization(5), y), 1, relu=False)), 3, mode=mode
    )


IMAGE = image()
CONV, RELU, MASKED, LRN, _, _ = IMAGE.graph.layers


def video() -> Workload:
    """One video of 4 frames of 2x6x6: a convolution of each frame, one in time, pooling of both."""
    net = GraphBuilder("video", MapShape(2, 6, 6, steps=4))
    y = net.conv("frames", 0, 3, 3, padding=1, bias=False, relu=False)
    y = net.layer("relu", Activation(), net.layer("time", Convolution(5, (1, 1), bias=False, steps=3), y))
    y = net.layer("pool", Pooling((3, 3), (3, 3), steps=2), y)
    net.begin_classifier()
    return Workload(net.build(net.layer("fc", Linear(1), y)), 1)


VIDEO = video()


def test_the_layers_have_kinds_and_shapes() -> None:
    layers = TEXT.graph.layers
    kinds = "EMBEDDING LN FC ATTENTION DROPOUT ADD LN FC ACTV PRODUCT RNN FC FC LOSS".split()
    assert [layer.kind.value for layer in layers] == kinds
    assert [layer.inputs for layer in layers] == [
        *((0,), (1,), (2,), (3,), (4,), (5, 1), (6,), (7,), (8,), (9, 7), (10,), (11,), (12,), (13,))
    ]
    assert [layer.out_shape.channels for layer in layers] == [4, 4, 12, 4, 4, 4, 4, 4, 4, 4, 5, 4, 7, 7]
    assert {layer.out_shape.steps for layer in layers} == {3}
    assert [str(layer.out_shape) for layer in VIDEO.graph.layers] == [
        *("4x3x6x6", "4x5x6x6", "4x5x6x6", "2x5x2x2", "2x1x1x1", "2x1x1x1")
    ]


def test_a_dropout_may_lie_over_its_input() -> None:
    assert [layer.in_place for layer in IMAGE.graph.layers] == [False, True, True, False, False, False]
    assert IMAGE.graph.maps[1].rewriters == (RELU.index, MASKED.index)
    assert not DROPPED.in_place


def test_parameters_and_what_backward_reads() -> None:
    """Tables (7 + 8) x 4; norm 4 + 4; qkv 12 x (4 + 1); rms 4; gate 4 x 4; lstm 4 x 5 x (4 + 5 + 2); narrow 4 x 6.

    The head works with the table and has none of its own. A grouped filter sees 1 of 2 channels: 6 x (9 + 1). A
    filter in time sees 3 channels of 3 steps: 5 x 9; one over frames 3 x 2 x 9.
    """
    assert [layer.parameters for layer in TEXT.graph.layers] == [60, 8, 60, 0, 0, 0, 4, 16, 0, 0, 220, 24, 0, 0]
    assert HEAD.work.weights == 28
    assert (HEAD.weights_of, TABLE.shares_weights, QKV.shares_weights) == (TABLE.index, True, False)
    assert CONV.parameters == 60
    assert (GATE.work.filter_elements, NORM.work.filter_elements) == (4, 0)
    assert [layer.parameters for layer in VIDEO.graph.layers] == [54, 45, 0, 0, 5 * 2 * 2 + 1, 0]
    # What backward reads of maps.
    assert [layer.saved_maps for layer in TEXT.graph.layers] == [
        *((0,), (1,), (2,), (3, 4), (), (), (6,), (7,), (8,), (9, 7), (10, 11), (11,), (12,), (14,))
    ]
    assert [layer.saved_maps for layer in IMAGE.graph.layers[:4]] == [(0,), (1,), (), (1, 2)]
    # Of a batch of 6 tokens, and of 3 images of 6x4x4 elements. Each token has two moments of float32, one in rms; a
    # logarithm for each of 2 heads; a byte for each of 4 features; 5 elements of each of 5 cells. Each element of an
    # image has 4 bytes of a mask.
    half = text(ElementType.FLOAT16)
    expected = [0, 6 * 8, 0, 6 * 2 * 4, 6 * 4, 0, 6 * 4, 0, 0, 0, 6 * 25 * 4, 0, 0, 0]
    assert [TEXT.statistics_bytes(layer) for layer in TEXT.graph.layers] == expected
    assert half.statistics_bytes(LSTM) == 6 * 25 * 2
    assert [half.statistics_bytes(layer) for layer in (NORM, ATTENTION, DROPPED)] == [48, 48, 24]
    assert [IMAGE.statistics_bytes(layer) for layer in IMAGE.graph.layers] == [0, 0, 3 * 4 * 96, 0, 0, 0]
    # Inference keeps nothing.
    inference = text(mode=Mode.INFERENCE)
    assert {inference.statistics_bytes(layer) for layer in inference.graph.layers} == {0}
    assert operands(inference, ATTENTION, F) == Operands(maps_read=(3,), maps_written=(4,))


def test_phases() -> None:
    """The table's X wants no gradient; a layer with one whole backward has it; a tied layer is not updated."""
    trained = text(optimizer=Optimizer.SGD)

    letters = {F: "F", D: "D", W: "W", B: "B", U: "U"}
    phases = ["".join(letters[each] for each in trained.phases(layer)) for layer in TEXT.graph.layers]
    assert phases == "FWU FBU FDWU FD FD FD FBU FDWU FD FD FBU FDWU FDW FD".split()


@pytest.mark.parametrize(
    ("layer", "phase", "expected"),
    [
        (ATTENTION, F, Operands(maps_read=(3,), maps_written=(4,), statistics_written=True)),
        (ATTENTION, D, Operands(maps_read=(3, 4), gradients_read=(4,), gradients_written=(3,), statistics_read=True)),
        (DROPPED, D, Operands(gradients_read=(5,), gradients_written=(4,), statistics_read=True)),
        # The head begins dW; the table adds to it.
        (HEAD, W, Operands(maps_read=(12,), gradients_read=(13,), weight_gradient_written=True)),
        (
            TABLE,
            W,
            Operands(maps_read=(0,), gradients_read=(1,), weight_gradient_read=True, weight_gradient_written=True),
        ),
        (
            LSTM,
            B,
            Operands(
                maps_read=(10, 11),
                gradients_read=(11,),
                gradients_written=(10,),
                weights_read=True,
                weight_gradient_written=True,
                statistics_read=True,
            ),
        ),
        # The product, later in forward, has begun the gradient of the normalized map.
        (GATE, D, Operands(gradients_read=(8, 7), gradients_written=(7,), weights_read=True)),
    ],
)
def test_what_each_phase_touches(layer: Layer, phase: Phase, expected: Operands) -> None:
    assert operands(TEXT, layer, phase) == expected


@pytest.mark.parametrize(
    ("layer", "phase", "flop", "nbytes"),
    [
        # A map of 4 features holds 2 x 3 x 4 x 4 = 96 B, one of 12 288 B, one of 5 120 B, one of 7 168 B, X 24 B.
        # 6 tokens look up 6 of 7 rows and 3 of 8 positions, 16 B each; each token adds 4 positions.
        (TABLE, F, 24, 24 + 9 * 16 + 96),
        # dW has been begun: its rows are read and written.
        (TABLE, W, 24, 24 + 96 + 2 * 9 * 16),
        # W is 32 B, the moments 48 B.
        (NORM, F, 5 * 24, 96 + 32 + 96 + 48),
        # The sum has begun the gradient of its X, so that one is read as well.
        (NORM, B, 10 * 24, 96 + 96 + 2 * 32 + 48 + 2 * 96),
        (RMS, F, 4 * 24, 96 + 16 + 96 + 24),
        (RMS, B, 8 * 24, 96 + 96 + 2 * 16 + 24 + 96),
        # 6 tokens, 12 products of 4; W is 240 B.
        (QKV, F, 2 * 6 * 48, 96 + 240 + 288),
        (QKV, D, 2 * 6 * 48, 240 + 288 + 96),
        (QKV, W, 2 * 6 * 48, 96 + 240 + 288),
        # 2 sequences, 2 heads of 2 features, 1 + 2 + 3 pairs: a product is 2 x 2 x 6 x 2 x 2 FLOPs.
        (ATTENTION, F, 2 * 96, 288 + 96 + 48),
        (ATTENTION, D, 5 * 96, 288 + 96 + 96 + 48 + 288),
        (DROPPED, F, 24, 96 + 96 + 24),
        (DROPPED, D, 24, 96 + 96 + 24),
        (SILU, F, 24, 96 + 96),
        (SILU, D, 24, 96 + 96 + 96),
        (PRODUCT, F, 24, 3 * 96),
        (PRODUCT, D, 48, 2 * 96 + 96 + 2 * 96),
        # 6 tokens, 4 gates of 5 cells over 4 + 5 elements; W is 880 B, the reserve 600 B.
        (LSTM, F, 2 * 6 * 20 * 9, 96 + 880 + 120 + 600),
        (LSTM, B, 4 * 6 * 20 * 9, 96 + 120 + 120 + 2 * 880 + 600 + 96),
        # 7 words over 4 features; W is 112 B.
        (HEAD, F, 2 * 6 * 28, 96 + 112 + 168),
        (HEAD, W, 2 * 6 * 28, 96 + 112 + 168),
    ],
)
def test_work_on_sequences(layer: Layer, phase: Phase, flop: int, nbytes: int) -> None:
    assert TEXT.flop(layer, phase) == flop
    assert TEXT.bytes_moved(layer, phase) == nbytes


def test_work_on_images_and_videos() -> None:
    """3 images of 6x4x4 hold 288 elements, 1152 B; X 384 B; W 240 B; a filter multiplies 9 elements.

    The normalization multiplies and adds 5 squares, and 4 operations more, 8 backward.
    """
    assert IMAGE.flop(CONV, F) == 2 * 288 * 9
    assert IMAGE.bytes_moved(CONV, F) == 384 + 240 + 1152
    assert (IMAGE.flop(LRN, F), IMAGE.flop(LRN, D)) == (14 * 288, 18 * 288)
    assert (IMAGE.bytes_moved(LRN, F), IMAGE.bytes_moved(LRN, D)) == (2 * 1152, 4 * 1152)
    assert (IMAGE.bytes_moved(MASKED, F), IMAGE.bytes_moved(MASKED, D)) == (3 * 1152, 3 * 1152)
    # Frames: 4 x 3 x 36 outputs of 18 products. In time: 4 x 5 x 36 of 9. Pooling: 2 x 5 x 4 of 3 x 3 x 2.
    frames, time, _, pool, *_ = VIDEO.graph.layers
    assert [VIDEO.flop(layer, F) for layer in (frames, time, pool)] == [2 * 432 * 18, 2 * 720 * 9, 40 * 18]


def test_networks_that_cannot_be_built() -> None:
    """A rectifier over a map that a product has read would change what its backward reads."""
    net = GraphBuilder("read", MapShape(4, steps=2))
    x = net.layer("first", Linear(4), 0)
    net.layer("second", Linear(4), x)
    with pytest.raises(AssertionError, match="late would overwrite what a layer before it reads"):
        net.layer("late", Activation(), x)
    # Features are shared evenly among heads.
    net = GraphBuilder("odd", MapShape(10, steps=2))
    with pytest.raises(AssertionError, match="10 features cannot be shared among 4 heads"):
        net.layer("attention", Attention(2, key_value_heads=1), 0)
