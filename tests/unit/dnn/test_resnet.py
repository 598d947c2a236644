from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.shapes import MapShape


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
