from calibration.measure.kernel_cases import distinct_cases, selected_workloads
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType


def two_equal_layers() -> Workload:
    net = GraphBuilder("twins", MapShape(4, 8, 8))
    y = net.conv("a", 0, 4, 3, padding=1, relu=False)
    y = net.conv("b", y, 4, 3, padding=1, relu=False)
    return Workload(net.build(net.fc("fc", y, 3, relu=False)), 2)


def test_equal_shapes_are_measured_once() -> None:
    """Both CONV layers share forward and backward weights; only the second has a backward data.

    Beside these three: three phases of the FC layer, forward and backward of the loss.
    """
    cases = distinct_cases([two_equal_layers(), two_equal_layers()])

    assert [(each.layer.name, each.phase) for each in cases] == [
        ("a", Phase.FORWARD),
        ("a", Phase.BACKWARD_WEIGHTS),
        ("b", Phase.BACKWARD_DATA),
        ("fc", Phase.FORWARD),
        ("fc", Phase.BACKWARD_DATA),
        ("fc", Phase.BACKWARD_WEIGHTS),
        ("loss", Phase.FORWARD),
        ("loss", Phase.BACKWARD_DATA),
    ]
    assert cases[0].name == "a of twins (2), forward"


def test_every_kernel_of_every_network_has_its_subject() -> None:
    """Also those of a VGG that is deeper than the one that was measured."""
    workloads = selected_workloads("cuda", (), (), ElementType.FLOAT32)
    shapes = {each.shape for each in distinct_cases(workloads)}
    for workload in workloads:
        for layer in workload.graph.layers:
            assert {KernelShape.of(workload, layer, phase) for phase in workload.phases(layer)} <= shapes


def test_a_user_chooses_networks_and_batch_sizes() -> None:
    """A network has its usual batch sizes, one that is no default 64 on a GPU and 8 on a CPU; each is taken once."""

    def chosen(kind: str, networks: list[str], sizes: list[int]) -> list[tuple[str, int]]:
        workloads = selected_workloads(kind, networks, sizes, ElementType.FLOAT32)
        return [(each.graph.name, each.batch_size) for each in workloads]

    assert chosen("cuda", ["vgg16", "vgg16"], []) == [("vgg16", 64), ("vgg16", 128), ("vgg16", 256)]
    assert chosen("cuda", ["tiny_linear"], []) == [("tiny_linear", 64)]
    assert chosen("cpu", ["alexnet"], []) == [("alexnet", 8)]
    assert chosen("cpu", ["tiny_linear", "tiny_forked"], [2, 4, 2]) == [
        *(("tiny_linear", 2), ("tiny_linear", 4)),
        *(("tiny_forked", 2), ("tiny_forked", 4)),
    ]
