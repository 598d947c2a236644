import pytest

from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.units import ElementType

F, D, W, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.UPDATE


def chain() -> LayerGraph:
    """2x4x4 -> conv 3x3 to 3x4x4 -> rectifier -> pool to 3x2x2 -> conv 1x1 to 1x2x2 -> fc to 5 -> loss."""
    net = GraphBuilder("chain", MapShape(2, 4, 4))
    y = net.conv("conv", 0, 3, 3, padding=1)
    y = net.pool("pool", y, 2, stride=2)
    y = net.conv("inner", y, 1, 1, relu=False)
    return net.build(net.fc("fc", y, 5, relu=False))


def fork() -> LayerGraph:
    """Input of 1 element -> trunk of 2 -> left of 3 and right of 4 -> join of 7 -> fc to 1 -> loss."""
    net = GraphBuilder("fork", MapShape(1))
    trunk = net.conv("trunk", 0, 2, 1, relu=False)
    left = net.conv("left", trunk, 3, 1, relu=False)
    right = net.conv("right", trunk, 4, 1, relu=False)
    return net.build(net.fc("fc", net.concat("join", (left, right)), 1, relu=False))


TWO_IMAGES = Workload(chain(), batch_size=2)


def layer_of(workload: Workload, name: str) -> Layer:
    (found,) = [layer for layer in workload.graph.layers if layer.name == name]
    return found


def test_bytes_of_maps_and_weights() -> None:
    """2 images of 4 B elements, 8 B an element: 32, 48, 12, 4, 5 and 5 elements."""
    assert [TWO_IMAGES.map_bytes(each.index) for each in TWO_IMAGES.graph.maps] == [256, 384, 96, 32, 40, 40]
    # conv: (18 + 1) x 3 = 57 weights, inner: 3 + 1 = 4, fc: (4 + 1) x 5 = 25, of 4 B each.
    assert [TWO_IMAGES.weight_bytes(layer) for layer in TWO_IMAGES.graph.layers] == [228, 0, 0, 16, 100, 0]


@pytest.mark.parametrize("element_type", [ElementType.FLOAT16, ElementType.BFLOAT16])
def test_sixteen_bits_halve_all_bytes_and_no_flop(element_type: ElementType) -> None:
    """256 B of input become 128 B, 228 B of W 114 B, the 868 B that conv moves in forward 434 B; 3456 FLOP stay."""
    half = Workload(chain(), batch_size=2, element_type=element_type)
    conv = half.graph.layers[0]

    assert half.map_bytes(0) == 128
    assert half.weight_bytes(conv) == 114
    assert half.bytes_moved(conv, F) == 434
    assert half.flop(conv, F) == 3456


@pytest.mark.parametrize(
    ("name", "phase", "flop", "nbytes"),
    [
        # 2 x 48 outputs, each a dot product of 18 multiplies and 18 adds. X 256, W 228, Y 384 B.
        ("conv", F, 96 * 18 * 2, 256 + 228 + 384),
        ("conv", W, 96 * 18 * 2, 256 + 384 + 228),
        # One comparison an element. X and Y are the same 384 B; backward reads Y and dY and writes dX.
        ("conv/relu", F, 96, 384 + 384),
        ("conv/relu", D, 96, 384 + 384 + 384),
        # 2 x 12 outputs, each from a window of 4. X 384, Y 96 B; backward reads X, Y, dY and writes dX.
        ("pool", F, 24 * 4, 384 + 96),
        ("pool", D, 24 * 4, 384 + 96 + 96 + 384),
        # 2 x 4 outputs of 3 multiplies and adds. X 96, W 16, Y 32 B; dX of W and dY, dW of X and dY.
        ("inner", F, 8 * 3 * 2, 96 + 16 + 32),
        ("inner", D, 8 * 3 * 2, 16 + 32 + 96),
        ("inner", W, 8 * 3 * 2, 96 + 32 + 16),
        # 2 x 5 outputs of 4 multiplies and adds. X 32, W 100, Y 40 B.
        ("fc", F, 10 * 4 * 2, 32 + 100 + 40),
        ("fc", D, 10 * 4 * 2, 100 + 40 + 32),
        ("fc", W, 10 * 4 * 2, 32 + 40 + 100),
        # Five operations for each of 2 x 5 probabilities. X 40, Y 40 B.
        ("loss", F, 50, 40 + 40),
    ],
)
def test_work_of_each_phase(name: str, phase: Phase, flop: int, nbytes: int) -> None:
    """Two images in float32; each operand moves once, and the bias is not counted."""
    layer = layer_of(TWO_IMAGES, name)
    assert (TWO_IMAGES.flop(layer, phase), TWO_IMAGES.bytes_moved(layer, phase)) == (flop, nbytes)


def test_gradients_of_forks_and_joins() -> None:
    """Forward reads 3 + 4 elements and writes 7; backward reads dY and writes the dX of both branches: 14 x 4 B."""
    workload = Workload(fork(), batch_size=1)
    join = layer_of(workload, "join")
    assert workload.flop(join, F) == 0
    assert workload.bytes_moved(join, F) == 56
    assert workload.bytes_moved(join, D) == 56
    # Backward runs `right` first: it reads W, (2 + 1) x 4 = 12 elements, and dY, 4, and writes dX, 2: 18 x 4 = 72 B.
    # `left` then reads W, 9, dY, 3, and the dX that is there, 2, and writes dX, 2: 16 x 4 = 64 B.
    left, right = layer_of(workload, "left"), layer_of(workload, "right")
    assert not workload.accumulates(right, 1)
    assert workload.bytes_moved(right, D) == 72
    assert workload.accumulates(left, 1)
    assert workload.bytes_moved(left, D) == 64
    # Its dX lies over dY, so it is written for the first time whoever else reads the map.
    rectifier = layer_of(TWO_IMAGES, "conv/relu")
    assert not TWO_IMAGES.accumulates(rectifier, rectifier.output)


@pytest.mark.parametrize(
    ("optimizer", "states", "passes", "flop_per_weight"),
    [(Optimizer.SGD, 0, 3, 2), (Optimizer.MOMENTUM, 1, 5, 4), (Optimizer.ADAM, 2, 7, 12)],
)
def test_an_update_reads_and_writes_the_weights_and_each_state(
    optimizer: Optimizer, states: int, passes: int, flop_per_weight: int
) -> None:
    """Read W and dW, write W: 3 passes over the 228 B of conv; each state is read and written: 2 more. 57 weights."""
    workload = Workload(chain(), batch_size=2, optimizer=optimizer)
    conv = workload.graph.layers[0]

    assert optimizer.states == states
    assert workload.bytes_moved(conv, U) == passes * 228
    assert workload.flop(conv, U) == flop_per_weight * 57
    assert workload.phases(conv) == (F, W, U)


def test_without_weights_there_is_no_update_and_without_an_optimizer_neither() -> None:
    trained = Workload(chain(), batch_size=1, optimizer=Optimizer.ADAM)
    assert [layer.name for layer in trained.graph.layers if U in trained.phases(layer)] == ["conv", "inner", "fc"]
    assert [layer.name for layer in TWO_IMAGES.graph.layers if U in TWO_IMAGES.phases(layer)] == []
    assert Optimizer.NONE.states == 0
    assert Optimizer.NONE.flop_per_weight == 0
    # Even an optimizer that was named has nothing to do.
    workload = Workload(chain(), batch_size=1, optimizer=Optimizer.SGD, mode=Mode.INFERENCE)
    assert {workload.phases(layer) for layer in workload.graph.layers} == {(F,)}


@pytest.mark.parametrize(
    ("network", "batch_size", "expected"),
    [
        ("alexnet", 128, [17.991, 57.331, 28.708, 38.277, 25.518, 9.664, 4.295, 1.049]),
        ("overfeat", 128, [27.977, 90.597, 43.487, 173.946, 347.892, 28.991, 3.221, 1.049]),
        ("vgg_a_8conv", 64, [11.098, 118.380, 118.380, 236.76, 118.38, 236.76, 59.19, 59.19, 13.153, 2.147, 0.524]),
    ],
)
def test_forward_products_of_each_layer(network: str, batch_size: int, expected: list[float]) -> None:
    """GFLOP of CONV and FC layers in their order, from the shapes of github.com/soumith/convnet-benchmarks, b458aab6.

    As AlexNet's conv1: 128 x 64 x 55 x 55 outputs of 3 x 11 x 11 = 363 multiply-adds are 17.991 GFLOP. Of
    GoogLeNet the same source has the sum, for 128 images.
    """
    found, googlenet = (
        [workload.flop(layer, F) for layer in workload.graph.layers if layer.parameters]
        for workload in (Workload(build_network(network), batch_size), Workload(build_network("googlenet"), 128))
    )
    assert [round(flop / 1e9, 3) for flop in found] == expected
    assert round(sum(googlenet) / 1e9, 2) == 405.16
