"""Shapes of the maps of networks, and what PyTorch keeps of torchvision's."""

import pytest

from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Workload

OTHER_BYTES = 100
"""PyTorch counts the weight of the loss, 4 B, which is no storage of ours."""


@pytest.mark.parametrize(
    ("name", "parameters", "saved_of_one", "saved_of_eight"),
    [
        ("alexnet_torchvision", 61_100_840, 3_705_260, 29_642_052),
        ("vgg11_torchvision", 132_863_336, 48_848_812, 390_790_468),
        ("vgg13_torchvision", 133_047_848, 68_116_396, 544_931_140),
        ("vgg16_torchvision", 138_357_544, 73_334_700, 586_677_572),
        ("vgg19_torchvision", 143_667_240, 78_553_004, 628_424_004),
        ("mobilenet_v2", 3_504_872, 78_346_156, 625_814_084),
        ("densenet121", 7_978_856, 130_699_948, 1_043_257_412),
        ("unet", 31_037_698, 1_376_827_396, 11_014_289_412),
        ("vit_b_16", 86_567_656, 118_164_692, 945_317_508),
        ("resnet18", 11_689_512, None, 177_509_188),
        ("resnet34", 21_797_672, None, 257_820_484),
        ("resnet50", 25_557_032, None, 687_520_580),
        ("resnet101", 44_549_160, None, 1_015_278_404),
        ("resnet152", 60_192_808, None, 1_420_081_988),
    ],
)
def test_parameters_and_saved_bytes(name: str, parameters: int, saved_of_one: int | None, saved_of_eight: int) -> None:
    """Observed on the modules themselves, in training, float32, with cross entropy, for batches of 1 and 8.

    Source: torch 2.13.0, torchvision 0.28.0, github.com/milesial/Pytorch-UNet; distinct storages that
    `saved_tensors_hooks` sees under `FakeTensorMode`, parameters and buffers left out, with `aten::native_dropout`, as
    CUDA has it. Labels are in it.
    """
    graph = build_network(name)

    assert graph.parameters == parameters
    for batch_size, expected in ((1, saved_of_one), (8, saved_of_eight)):
        saved_bytes = Workload(graph, batch_size).saved_by(SavingRule.AUTOGRAD).step.saved_bytes
        assert expected is None or saved_bytes == pytest.approx(expected, abs=OTHER_BYTES)


@pytest.mark.parametrize(("name", "first"), [("unet", "outc"), ("vit_b_16", "heads.head")])
def test_what_classifies_pixels_or_the_token_is_the_classifier(name: str, first: str) -> None:
    layers = build_network(name).layers

    assert next(layer.name for layer in layers if layer.stage is Stage.CLASSIFIER) == first


def test_a_residual_block_adds_its_branch_to_its_input_or_to_the_projection_of_it() -> None:
    graph = build_network("resnet50")
    names = [each.name for each in graph.maps]
    added = {layer.name: [names[x] for x in layer.inputs] for layer in graph.layers if layer.kind is LayerKind.ADD}

    assert added["layer2.0.add"] == ["layer2.0.bn3", "layer2.0.downsample.1"]
    assert added["layer2.1.add"] == ["layer2.1.bn3", "layer2.0.add"]
