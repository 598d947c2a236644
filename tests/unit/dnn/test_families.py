"""Families of networks: their members, and published sizes."""

from collections import Counter

import pytest

from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.networks.families import FAMILIES
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
