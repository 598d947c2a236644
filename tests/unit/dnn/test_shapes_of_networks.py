"""Shapes of the maps of networks, and what PyTorch keeps of torchvision's."""

import pytest

from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
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


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Table 2 of Sandler et al.: 112, 56, 28, 14 and 7 pixels; a block of 160 channels is 960 wide inside.
        (
            "mobilenet_v2",
            {
                "features.1.project.conv": MapShape(16, 112, 112),
                "features.2.expand.conv": MapShape(96, 112, 112),
                "features.3.add": MapShape(24, 56, 56),
                "features.6.add": MapShape(32, 28, 28),
                "features.13.add": MapShape(96, 14, 14),
                "features.16.depthwise.conv": MapShape(960, 7, 7),
                "features.18.conv": MapShape(1280, 7, 7),
            },
        ),
        # A layer reads all before it in its block. Blocks end in 256, 512, 1024 and 1024 channels, of which a
        # transition leaves half (Table 1 of Huang et al.).
        (
            "densenet121",
            {
                "features.denseblock1.denselayer1.cat": MapShape(64, 56, 56),
                "features.denseblock1.denselayer6.cat": MapShape(64 + 5 * 32, 56, 56),
                "features.denseblock1": MapShape(256, 56, 56),
                "features.transition1.pool": MapShape(128, 28, 28),
                "features.denseblock2": MapShape(512, 28, 28),
                "features.denseblock3": MapShape(1024, 14, 14),
                "features.denseblock4": MapShape(1024, 7, 7),
            },
        ),
        # Four times half as large and twice as deep; each step up joins what is as large on the way down.
        (
            "unet",
            {
                "down4.conv2": MapShape(1024, 32, 32),
                "up1.up": MapShape(512, 64, 64),
                "up1.cat": MapShape(1024, 64, 64),
                "up4.cat": MapShape(128, 512, 512),
                "loss": MapShape(2, 512, 512),
            },
        ),
        # A token and 196 patches.
        (
            "vit_b_16",
            {
                "conv_proj": MapShape(768, 14, 14),
                "class_token": MapShape(768, steps=197),
                "encoder.ln": MapShape(768, steps=197),
                "heads.head": MapShape(1000),
            },
        ),
        # Incomplete windows are lost: (32 - 3) // 2 + 1 = 15, (15 - 3) // 2 + 1 = 7, (7 - 3) // 2 + 1 = 3.
        (
            "cifar10_quick",
            {"pool1": MapShape(32, 15, 15), "pool2": MapShape(32, 7, 7), "pool3": MapShape(64, 3, 3)},
        ),
        # Groups of 256, 512, 1,024 and 2,048 channels at 56, 28, 14 and 7 pixels a side (He et al., Table 1). Blocks
        # step in their middle convolution, which is what v1.5 means: behind its 1x1 the third group has 28 pixels.
        (
            "resnet50",
            {
                "layer1.0.add": MapShape(256, 56, 56),
                "layer2.0.add": MapShape(512, 28, 28),
                "layer3.0.conv1": MapShape(256, 28, 28),
                "layer3.0.conv2": MapShape(256, 14, 14),
                "layer3.0.add": MapShape(1024, 14, 14),
                "layer4.0.add": MapShape(2048, 7, 7),
                "avgpool": MapShape(2048),
            },
        ),
    ],
)
def test_shapes_of_maps(name: str, expected: dict[str, MapShape]) -> None:
    shapes = {each.name: each.shape for each in build_network(name).maps}
    assert {each: shapes[each] for each in expected} == expected


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
