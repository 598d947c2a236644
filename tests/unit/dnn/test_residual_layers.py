"""Batch normalization, element-wise addition, average pooling and convolutions without bias."""

import pytest

from tests.operands import Operands, operands
from tests.toy import toy_graph
from vdnnsim.dnn.convolutional import Convolution, Pooling
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.units import ElementType

F, D, W, B, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.BACKWARD, Phase.UPDATE


def residual(
    element_type: ElementType = ElementType.FLOAT32, mode: Mode = Mode.TRAINING, optimizer: Optimizer = Optimizer.NONE
) -> Workload:
    """Two images through layers and maps, each layer with the map that it writes.

    conv 0 (1), norm 1 (2), norm/relu 2 (2), inner 3 (3), inner_norm 4 (4), sum 5 = map 4 + map 2 (5), sum/relu 6 (5),
    average 7 (6), fc 8 (7), loss 9 (8). Input 2x4x4; maps 1 to 5 are 3x4x4, map 6 is 3x2x2, the rest 1x1x1.
    """
    net = GraphBuilder("residual", MapShape(2, 4, 4))
    x = net.batch_norm("norm", net.conv("conv", 0, 3, 3, padding=1, bias=False, relu=False))
    y = net.conv("inner", x, 3, 1, bias=False, relu=False)
    y = net.add("sum", net.batch_norm("inner_norm", y, relu=False), x)
    y = net.average_pool("average", y, 2, stride=2)
    return Workload(net.build(net.fc("fc", y, 1, relu=False)), 2, element_type, optimizer, mode)


WORKLOAD = residual()
CONV, NORM, _, INNER, INNER_NORM, SUM, _, AVERAGE, _, _ = WORKLOAD.graph.layers


def test_layers_weights_statistics_and_saved_maps() -> None:
    layers = WORKLOAD.graph.layers
    assert [layer.kind.value for layer in layers] == "CONV BN ACTV CONV BN ADD ACTV POOL FC LOSS".split()
    assert [layer.inputs for layer in layers] == [(0,), (1,), (2,), (2,), (3,), (4, 2), (5,), (5,), (6,), (7,)]
    assert [layer.output for layer in layers] == [1, 2, 2, 3, 4, 5, 5, 6, 7, 8]
    assert CONV.operator == Convolution(3, (3, 3), padding=(1, 1), bias=False)
    assert AVERAGE.operator == Pooling((2, 2), (2, 2), average=True)
    # For conv 3 x 2 x 3 x 3 = 54, for inner 3 x 3 = 9, gamma and beta of 3 channels 6, fc 12 + 1 = 13.
    assert [layer.parameters for layer in WORKLOAD.graph.layers] == [54, 6, 0, 9, 6, 0, 0, 0, 13, 0]
    # A mean and an inverse deviation of 3 channels: 6 x 4 B. W, of 6 elements, halves in float16.
    half = residual(ElementType.FLOAT16)
    assert [half.statistics_bytes(layer) for layer in half.graph.layers] == [0, 24, 0, 0, 24, 0, 0, 0, 0, 0]
    assert (WORKLOAD.weight_bytes(NORM), half.weight_bytes(NORM)) == (24, 12)
    # So bn's Y under a rectifier is kept for that one, and where there is none it ends with forward: map 4.
    assert NORM.saved_maps == (1,)
    assert SUM.saved_maps == ()
    needed = [needed_in_backward(WORKLOAD, each) for each in WORKLOAD.graph.maps]
    assert needed == [True, True, True, True, False, True, True, False, True]


def test_maps_of_different_shape_cannot_be_added() -> None:
    net = GraphBuilder("odd", MapShape(2, 4, 4))

    with pytest.raises(AssertionError, match=r"^add of 2x4x4 and 3x4x4, expected equal shapes$"):
        net.add("sum", 0, net.conv("conv", 0, 3, 1))


def test_backward_of_a_normalization_is_one_phase_also_over_the_input_batch() -> None:
    first = toy_graph("norm bn relu").layers[0]

    assert NORM.training_phases == first.training_phases == (F, B)
    assert SUM.training_phases == (F, D)
    assert residual(optimizer=Optimizer.SGD).phases(NORM) == (F, B, U)


def test_inference_reads_what_it_normalizes_once_for_it_knows_the_moments() -> None:
    """2 images of 3 x 4 x 4 are 384 B; W is 24 B, the moments, which are read, 24 B."""
    inference = residual(mode=Mode.INFERENCE)
    assert inference.bytes_moved(inference.graph.layers[1], F) == 2 * 384 + 48
    assert operands(inference, NORM, F) == Operands(
        maps_read=(1,), maps_written=(2,), weights_read=True, statistics_read=True
    )


@pytest.mark.parametrize(
    ("layer", "phase", "expected"),
    [
        (NORM, F, Operands(maps_read=(1,), maps_written=(2,), weights_read=True, statistics_written=True)),
        (
            NORM,
            B,
            Operands(
                maps_read=(1,),
                gradients_read=(2,),
                gradients_written=(1,),
                weights_read=True,
                weight_gradient_written=True,
                statistics_read=True,
            ),
        ),
        (NORM, U, Operands(weights_read=True, weights_written=True, weight_gradient_read=True)),
        (SUM, F, Operands(maps_read=(4, 2), maps_written=(5,))),
        # The addition is the last reader of both and begins their gradients; `inner` then adds to that of map 2.
        (SUM, D, Operands(gradients_read=(5,), gradients_written=(4, 2))),
        (INNER, D, Operands(gradients_read=(3, 2), gradients_written=(2,), weights_read=True)),
    ],
)
def test_what_each_phase_touches(layer: Layer, phase: Phase, expected: Operands) -> None:
    assert operands(residual(optimizer=Optimizer.SGD), layer, phase) == expected


def test_a_normalization_adds_to_a_gradient_that_another_layer_has_begun() -> None:
    """Map 1 is normalized and added to that: backward of the sum begins its gradient.

    A map of 2 elements holds 8 B, W and the statistics 16 B each: X and dY twice, dX read and written, W, dW.
    """
    around = Workload(toy_graph("conv conv 2; norm bn; sum add norm conv"), batch_size=1)
    norm = around.graph.layers[1]

    assert operands(around, norm, B).gradients_read == (2, 1)
    assert around.bytes_moved(norm, B) == 6 * 8 + 2 * 16 + 16


@pytest.mark.parametrize(
    ("layer", "phase", "flop", "nbytes"),
    [
        # 2 images of 3x4x4 in float32 hold 96 elements, 384 B; W and the statistics 24 B each. X twice and Y.
        (NORM, F, 5 * 96, 3 * 384 + 24 + 24),
        # X and dY twice, dX; W read, dW written, the statistics read.
        (NORM, B, 7 * 96, 5 * 384 + 2 * 24 + 24),
        (SUM, F, 96, 3 * 384),
        (SUM, D, 0, 3 * 384),
        # 96 outputs of 18 multiplies and adds; X 256 B, W 216 B, Y 384 B.
        (CONV, F, 96 * 18 * 2, 256 + 216 + 384),
        # 24 outputs from a window of 4, whether of the maximum or the average.
        (AVERAGE, F, 24 * 4, 384 + 96),
    ],
)
def test_work(layer: Layer, phase: Phase, flop: int, nbytes: int) -> None:
    assert WORKLOAD.flop(layer, phase) == flop
    assert WORKLOAD.bytes_moved(layer, phase) == nbytes
