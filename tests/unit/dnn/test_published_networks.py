"""Networks beside their publications, as Szegedy et al. (2016), Table 1: members of families, sizes, shapes of maps."""

from collections import Counter

import pytest

from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.networks.families import FAMILIES
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError

RESNET_50 = 25_557_032
SECOND_GROUP = 2 * 512 * 128 + 9 * 128 * 128 + 2 * (128 + 128 + 512)
"""Weights of one bottleneck without projection: 512 channels to 128, 3x3, back to 512, gamma and beta of each."""
THIRD_GROUP = 2 * 1024 * 256 + 9 * 256 * 256 + 2 * (256 + 256 + 1024)


@pytest.mark.parametrize(
    ("depth", "second", "third", "parameters"),
    [
        (50, 4, 6, 25_557_032),
        (101, 4, 23, 44_549_160),
        (152, 8, 36, 60_192_808),
        (302, 16, 78, None),
        (695, 38, 187, None),
        (1001, 57, 270, None),
        (1172, 64, 320, None),
        (1304, 71, 357, None),
        (1517, 83, 416, None),
    ],
)
def test_bottlenecks_of_resnet(depth: int, second: int, third: int, parameters: int | None) -> None:
    """Three layers a block, 3 blocks in the first and last group, a stem and an FC layer; one projection a group.

    The figures are torchvision's; those beyond 152 follow from them, a block more in each group at a time.
    """
    graph = build_network(f"resnet{depth}")
    kinds = Counter(layer.kind for layer in graph.layers)
    added = [layer.name.partition(".")[0] for layer in graph.layers if layer.kind is LayerKind.ADD]

    assert depth == 3 * (3 + second + third + 3) + 2
    assert Counter(added) == {"layer1": 3, "layer2": second, "layer3": third, "layer4": 3}
    assert kinds[LayerKind.CONV] == kinds[LayerKind.BN] == depth - 1 + 4
    expected = RESNET_50 + (second - 4) * SECOND_GROUP + (third - 6) * THIRD_GROUP
    assert graph.parameters == expected
    assert parameters in (expected, None)


@pytest.mark.parametrize(("depth", "millions"), [(20, 0.27), (32, 0.46), (44, 0.66), (56, 0.85), (110, 1.7)])
def test_resnets_for_cifar(depth: int, millions: float) -> None:
    """Parameters as He et al. (CVPR 2016, Table 6) round them; a group of n more blocks adds 97,216 weights.

    Of these 2 x (9 w w + 2 w) for w = 16, 32 and 64. Their shortcuts pad with zeros and have 2,752 weights less, which
    at 56 layers decides between 0.85 and 0.86.
    """
    graph = build_network(f"resnet{depth}")

    assert graph.parameters == 272_474 + (depth - 20) // 6 * 97_216
    assert round((graph.parameters - 2_752) / 1e6, 2 if depth < 110 else 1) == millions
    assert sum(layer.kind is LayerKind.CONV for layer in graph.layers) == depth - 1 + 2
    assert graph.maps[-4].shape == MapShape(64, 8, 8)


@pytest.mark.parametrize(
    ("name", "millions"), [("wrn_28_10", 36.5), ("wrn_28_12", 52.5), ("wrn_16_8", 11.0), ("wrn_16_10", 17.1)]
)
def test_wide_resnets(name: str, millions: float) -> None:
    """Parameters as Zagoruyko and Komodakis (BMVC 2016, Table 4) round them; projections and all are counted."""
    graph = build_network(name)

    assert round(graph.parameters / 1e6, 1) == millions
    assert sum(layer.kind is LayerKind.CONV for layer in graph.layers) == int(name.split("_")[1])


def test_every_resnet_listed_is_built_under_its_name() -> None:
    resnets = FAMILIES[0]
    assert len(resnets.numbers[0]) == 11 + 15
    for depth in resnets.numbers[0]:
        if depth < 200:
            assert build_network(f"resnet{depth}").name == f"resnet{depth}"
    # conv1, three groups of one block of two convolutions, projections in the second and third.
    graph = build_network("wrn_8_1")
    names = [layer.name for layer in graph.layers if layer.kind is LayerKind.CONV]
    assert [name for name in names if "shortcut" in name] == ["group2.0.shortcut", "group3.0.shortcut"]
    assert len(names) == 1 + 6 + 2
    assert next(each.shape for each in build_network("wrn_8_256").maps if each.name == "group3.0.add").channels == 16384


@pytest.mark.parametrize(
    ("typed", "nearest"),
    [
        *(("resnet51", "resnet50"), ("resnet1000", "resnet1001"), ("resnet9999", "resnet1517")),
        *(("wrn_28_0", "wrn_28_1"), ("wrn_22_8", "wrn_16_8"), ("wrn_40_300", "wrn_28_256")),
    ],
)
def test_a_number_that_is_no_member_is_refused_with_the_nearest(typed: str, nearest: str) -> None:
    with pytest.raises(InputError, match=rf"'{typed}' is not a network; did you mean '{nearest}'\? \((N|D) = .*\)$"):
        build_network(typed)


def intermediate_bytes(workload: Workload) -> int:
    """Data and gradients as Caffe has them, which Layrub counts (Jin et al., TACO 15(3), 2018, Table 1).

    A batch normalization works in place, so its Y is no blob of its own. Every blob has a gradient as large. One that
    several layers read goes through a Split layer, whose tops share its data but have a gradient each.
    """
    graph = workload.graph
    total = 0
    for each in graph.maps:
        if each.producer is not None and graph.layers[each.producer].kind is LayerKind.BN:
            continue
        readers = len(each.consumers)
        total += workload.map_bytes(each.index) * (2 + (readers if readers > 1 else 0))
    return total


@pytest.mark.parametrize(
    ("network", "batch_size", "gibibytes", "published", "error"),
    [
        ("resnet152", 32, 11.8, 11.61, 0.02),
        ("resnet1001", 32, 67.4, 67.2, 0.005),
        # The text says roughly 100 GB (8).
        ("resnet1517", 32, 100.5, 100, 0.01),
        # Table 1 speaks of a VGGNet of 19 layers and gives its weights (548 MB), but the maps of that of 16.
        ("vgg16", 64, 7.9, 7.24, 0.1),
        ("vgg_d_13conv", 64, 7.25, 7.24, 0.005),
    ],
)
def test_intermediate_data(network: str, batch_size: int, gibibytes: float, published: float, error: float) -> None:
    """In GiB, which Layrub writes as GB: the 548 MB of VGGNet are 143,667,240 weights in MiB."""
    total = intermediate_bytes(Workload(build_network(network), batch_size)) / 2**30

    assert total == pytest.approx(gibibytes, rel=0.01)
    assert total == pytest.approx(published, rel=error)


GRAPH = build_network("inception_v3")
SHAPES = {each.name: each.shape for each in GRAPH.maps}


def test_the_trunk_shrinks_as_in_table_1() -> None:
    """299 pixels a side become 149, 147, 147, 73, 73, 71, 35; modules at 35, 17 and 8 pixels; their average.

    The stem is that of the code: where it has convolutions of 1x1 and 3x3 and a pooling, the paper's table has three
    convolutions of 3x3, the second of stride 2.
    """
    trunk = [
        ("Conv2d_1a_3x3.bn", MapShape(32, 149, 149)),
        ("Conv2d_2a_3x3.bn", MapShape(32, 147, 147)),
        ("Conv2d_2b_3x3.bn", MapShape(64, 147, 147)),
        ("maxpool1", MapShape(64, 73, 73)),
        ("Conv2d_3b_1x1.bn", MapShape(80, 73, 73)),
        ("Conv2d_4a_3x3.bn", MapShape(192, 71, 71)),
        ("maxpool2", MapShape(192, 35, 35)),
        ("Mixed_5b", MapShape(256, 35, 35)),
        ("Mixed_5c", MapShape(288, 35, 35)),
        ("Mixed_5d", MapShape(288, 35, 35)),
        ("Mixed_6a", MapShape(768, 17, 17)),
        ("Mixed_6e", MapShape(768, 17, 17)),
        ("Mixed_7a", MapShape(1280, 8, 8)),
        ("Mixed_7b", MapShape(2048, 8, 8)),
        ("Mixed_7c", MapShape(2048, 8, 8)),
        ("avgpool", MapShape(2048)),
    ]

    assert {name: SHAPES[name] for name, _ in trunk} == dict(trunk)


@pytest.mark.parametrize(
    ("name", "kernel", "padding"),
    [
        ("Mixed_6b.branch7x7_2", (1, 7), (0, 3)),
        ("Mixed_6b.branch7x7_3", (7, 1), (3, 0)),
        ("Mixed_6b.branch7x7dbl_2", (7, 1), (3, 0)),
        ("Mixed_6b.branch7x7dbl_5", (1, 7), (0, 3)),
        ("Mixed_7a.branch7x7x3_2", (1, 7), (0, 3)),
        ("Mixed_7b.branch3x3_2a", (1, 3), (0, 1)),
        ("Mixed_7b.branch3x3dbl_3b", (3, 1), (1, 0)),
        ("Mixed_5b.branch5x5_2", (5, 5), (2, 2)),
    ],
)
def test_rows_and_columns_keep_their_inputs_size(name: str, kernel: tuple[int, int], padding: tuple[int, int]) -> None:
    """Heights come first: a row of seven is a kernel of (1, 7), padded by 3 at its left and right."""
    (layer,) = [layer for layer in GRAPH.layers if layer.name == f"{name}.conv"]

    assert isinstance(layer.operator, Convolution)
    assert (layer.operator.kernel, layer.operator.padding) == (kernel, padding)
    assert (layer.out_shape.height, layer.out_shape.width) == (layer.in_shapes[0].height, layer.in_shapes[0].width)


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
