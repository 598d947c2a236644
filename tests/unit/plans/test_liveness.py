from dataclasses import replace

import pytest

from tests.operands import Operands, operands
from tests.toy import toy_graph
from vdnnsim.dnn.graph import FeatureMap
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.plans.liveness import last_forward_use, maps_touched, needed_in_backward

F, D, W, U = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS, Phase.UPDATE


def workload() -> Workload:
    """Layers and maps, each layer with the map that it writes; the rectifier rewrites map 1.

    conv 0 (1), conv/relu 1 (1), pool 2 (2), left 3 (3), right 4 (4), join 5 (5), fc 6 (6), loss 7 (7). The pool's map
    is forked to left and right.
    """
    graph = toy_graph("conv conv relu; pool pool; left conv; right conv pool; join concat left right")
    return Workload(graph, batch_size=1, optimizer=Optimizer.SGD)


WORKLOAD = workload()
MAPS = {each.name: each for each in WORKLOAD.graph.maps}


@pytest.mark.parametrize(
    ("layer", "phase", "expected"),
    [
        # Forward reads X and W and writes Y.
        (0, F, Operands(maps_read=(0,), maps_written=(1,), weights_read=True)),
        (1, F, Operands(maps_read=(1,), maps_written=(1,))),
        (2, F, Operands(maps_read=(1,), maps_written=(2,))),
        (5, F, Operands(maps_read=(3, 4), maps_written=(5,))),
        (6, F, Operands(maps_read=(5,), maps_written=(6,), weights_read=True)),
        (7, F, Operands(maps_read=(6,), maps_written=(7,))),
        # The loss begins backward from its own Y.
        (7, D, Operands(maps_read=(7,), gradients_written=(6,))),
        # FC and CONV: dX from dY and W, dW from dY and X.
        (6, D, Operands(gradients_read=(6,), gradients_written=(5,), weights_read=True)),
        (6, W, Operands(maps_read=(5,), gradients_read=(6,), weight_gradient_written=True)),
        # A join copies its dY apart.
        (5, D, Operands(gradients_read=(5,), gradients_written=(3, 4))),
        # `right` is the last reader of the fork and begins its gradient; `left` adds, so it reads what is there.
        (4, D, Operands(gradients_read=(4,), gradients_written=(2,), weights_read=True)),
        (3, D, Operands(gradients_read=(3, 2), gradients_written=(2,), weights_read=True)),
        # POOL reads X, Y and dY; an ACTV reads Y and dY and writes dX over dY.
        (2, D, Operands(maps_read=(1, 2), gradients_read=(2,), gradients_written=(1,))),
        (1, D, Operands(maps_read=(1,), gradients_read=(1,), gradients_written=(1,))),
        # The first layer reads the input batch for dW.
        (0, W, Operands(maps_read=(0,), gradients_read=(1,), weight_gradient_written=True)),
        # An update reads W and dW and writes W.
        (0, U, Operands(weights_read=True, weights_written=True, weight_gradient_read=True)),
    ],
)
def test_operands_of_each_phase(layer: int, phase: Phase, expected: Operands) -> None:
    assert operands(WORKLOAD, WORKLOAD.graph.layers[layer], phase) == expected
    maps = maps_touched(WORKLOAD, WORKLOAD.graph.layers[layer], phase)
    assert (maps.maps_read, maps.maps_written) == (expected.maps_read, expected.maps_written)
    assert (maps.gradients_read, maps.gradients_written) == (expected.gradients_read, expected.gradients_written)


def test_a_join_writes_no_gradient_of_the_input_batch() -> None:
    """It joins the input, map 0, with conv's map 1, and so writes the gradient of map 1 alone."""
    skip = Workload(toy_graph("conv conv; join concat input conv"), batch_size=1)

    assert operands(skip, skip.graph.layers[1], D) == Operands(gradients_read=(2,), gradients_written=(1,))


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("input", 0),
        # Read by the pool, 2, after it was rewritten by the rectifier, 1.
        ("conv", 2),
        # The later of its two readers, 3 and 4.
        ("pool", 4),
        ("left", 5),
        ("join", 6),
        ("fc", 7),
        # Nobody reads it, so it is its producer.
        ("loss", 7),
    ],
)
def test_the_last_layer_that_touches_a_map_in_forward(name: str, last: int) -> None:
    assert last_forward_use(MAPS[name]) == last


def test_maps_needed_in_backward_and_their_last_use() -> None:
    """CONV and FC save X, POOL X and Y, ACTV Y, the loss its Y: input, conv, pool, join and loss.

    `left` and `right` are read by the join alone, which saves nothing; fc only by the loss, which reads its own Y.
    """
    needed = {name for name, each in MAPS.items() if needed_in_backward(WORKLOAD, each)}
    assert needed == {"input", "conv", "pool", "join", "loss"}
    # In inference nothing outlives forward.
    inference = replace(WORKLOAD, mode=Mode.INFERENCE)
    assert not any(needed_in_backward(inference, each) for each in MAPS.values())
    # A map read by layer 1 and rewritten by layer 2; no builder of ours orders them so, but nothing forbids it.
    rewritten: FeatureMap = replace(MAPS["conv"], consumers=(1,), rewriters=(2,))
    assert last_forward_use(rewritten) == 2
