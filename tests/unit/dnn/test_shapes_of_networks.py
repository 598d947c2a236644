import pytest

from vdnnsim.dnn.layers import LayerKind, Phase
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


def test_the_blocks_of_resnet_step_in_their_middle_convolution() -> None:
    """Groups of 256, 512, 1,024 and 2,048 channels at 56, 28, 14 and 7 pixels a side (He et al., Table 1).

    The first block of the third group still has 28 pixels behind its 1x1 reduction, which is what v1.5 means.
    """
    shapes = {each.name: each.shape for each in build_network("resnet50").maps}

    assert [shapes[f"layer{group}.0.add"] for group in (1, 2, 3, 4)] == [
        MapShape(256, 56, 56),
        MapShape(512, 28, 28),
        MapShape(1024, 14, 14),
        MapShape(2048, 7, 7),
    ]
    assert shapes["layer3.0.conv1"] == MapShape(256, 28, 28)
    assert shapes["layer3.0.conv2"] == MapShape(256, 14, 14)
    assert shapes["avgpool"] == MapShape(2048)


def test_a_residual_block_adds_its_branch_to_its_input_or_to_the_projection_of_it() -> None:
    graph = build_network("resnet50")
    names = [each.name for each in graph.maps]
    added = {layer.name: [names[x] for x in layer.inputs] for layer in graph.layers if layer.kind is LayerKind.ADD}

    assert added["layer2.0.add"] == ["layer2.0.bn3", "layer2.0.downsample.1"]
    assert added["layer2.1.add"] == ["layer2.1.bn3", "layer2.0.add"]
