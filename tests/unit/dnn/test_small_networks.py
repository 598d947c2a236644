import pytest

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload


def test_caffes_quick_network_loses_incomplete_windows() -> None:
    """(32 - 3) // 2 + 1 = 15, (15 - 3) // 2 + 1 = 7, (7 - 3) // 2 + 1 = 3."""
    shapes = {each.name: each.shape for each in build_network("cifar10_quick").maps}

    assert [shapes[name] for name in ("pool1", "pool2", "pool3")] == [
        MapShape(32, 15, 15),
        MapShape(32, 7, 7),
        MapShape(64, 3, 3),
    ]


@pytest.mark.parametrize(("name", "layers"), [("tiny_linear", 15), ("tiny_forked", 20), ("tiny_residual", 23)])
def test_the_tiny_networks_are_tiny(name: str, layers: int) -> None:
    """Forward of an image takes less than 40 MFLOP, so an iteration of 8 images, thrice that, less than 1 GFLOP."""
    workload = Workload(build_network(name), batch_size=1)

    assert len(workload.graph.layers) == layers
    assert sum(workload.flop(layer, Phase.FORWARD) for layer in workload.graph.layers) < 40e6
