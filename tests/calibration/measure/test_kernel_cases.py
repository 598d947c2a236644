"""Kernels that are measured, and their operands outside of any plan."""

import pytest
import torch

from calibration.measure.kernel_cases import KernelCase, distinct_cases, selected_workloads
from calibration.measure.kernel_rows import kernel_operands
from tests.calibration.measure.fake_device import FakeDevice
from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
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


def every_operator() -> Workload:
    net = GraphBuilder("all", MapShape(4, 8, 8))
    left = net.conv("conv", 0, 4, 3, padding=1)
    right = net.batch_norm("bn", net.conv("twin", left, 4, 3, padding=1, relu=False))
    y = net.add("add", left, right)
    y = net.concat("concat", (y, net.pool("pool", left, 3, stride=1, padding=1)))
    return Workload(net.build(net.fc("fc", y, 3, relu=False)), 2, ElementType.FLOAT32, Optimizer.ADAM)


CASES = distinct_cases([every_operator()])


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_operands_are_what_the_phase_touches(case: KernelCase, *, channels_last: bool) -> None:
    """Maps in their shape and layout; Y over X and dX over dY in place; a gradient for each input that needs one."""
    device, layer, workload = FakeDevice(), case.layer, case.workload
    with kernel_operands(device, case, channels_last=channels_last) as (tensors,):
        maps = [each for each in (*tensors.inputs, tensors.output, *tensors.input_gradients) if each is not None]
        for each in maps:
            assert each.shape[0] == workload.batch_size
            assert each.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)
        if case.phase is Phase.FORWARD:
            assert [each.shape[1:].numel() for each in tensors.inputs] == [each.elements for each in layer.in_shapes]
            assert tensors.output is not None
            assert (tensors.output is tensors.inputs[0]) is layer.in_place
        if case.phase in (Phase.BACKWARD_DATA, Phase.BACKWARD):
            needed = [workload.graph.maps[x].needs_gradient for x in layer.inputs]
            assert [each is not None for each in tensors.input_gradients] == needed
            assert tensors.accumulates == tuple(workload.accumulates(layer, x) for x in layer.inputs)
        if case.phase.is_backward:
            assert (tensors.output_gradient is None) is (layer.kind is LayerKind.LOSS)
        if case.phase is Phase.UPDATE:
            assert len(tensors.states) == 2
        assert (tensors.statistics is not None) is (layer.kind is LayerKind.BN and case.phase is not Phase.UPDATE)
        assert (tensors.labels is not None) is (layer.kind is LayerKind.LOSS)
        flat = [tensors.weights, tensors.weight_gradient, *tensors.states]
        assert {len(each) for each in flat if each is not None} <= {layer.parameters}
        held = device.live_bytes

    assert held > 0
    assert device.live_bytes == 0


@pytest.mark.parametrize(("cache", "copies"), [(0.0, 1), (0.4, 1), (2.5, 5), (2.6, 6), (1000.0, 64)])
def test_copies_of_operands_fill_the_cache_twice(cache: float, copies: int) -> None:
    """A cache as large as 2.5 sets of operands is filled twice by five, a larger one by six; 64 are the most."""
    device = FakeDevice()
    with kernel_operands(device, CASES[0], channels_last=False):
        nbytes = device.live_bytes
    cache_bytes = round(cache * nbytes)
    with kernel_operands(device, CASES[0], channels_last=False, cache_bytes=cache_bytes) as operands:
        places = {tensors.inputs[0].data_ptr() for tensors in operands}
        held = device.live_bytes

    assert len(places) == len(operands) == copies
    assert held == copies * nbytes
    assert device.live_bytes == 0


def test_indices_of_a_pooling_are_valid_ones() -> None:
    """As autograd keeps them: 8 B for each of 2 x 4 x 8 x 8 elements of Y, all of which name the first element of X."""
    workload = every_operator().saved_by(SavingRule.AUTOGRAD)
    (case,) = (
        each for each in distinct_cases([workload]) if each.layer.name == "pool" and each.phase is not Phase.FORWARD
    )
    with kernel_operands(FakeDevice(), case, channels_last=False) as (tensors,):
        assert tensors.statistics is not None
        indices = tensors.statistics.view(torch.int64)
        assert indices.tolist() == [0] * 512
