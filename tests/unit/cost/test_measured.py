"""A machine whose law is known by hand: CONV at 2 TFLOP/s, at a quarter of that by `slow`; all else at 50 GB/s."""

from dataclasses import replace
from statistics import median

import pytest

from vdnnsim.cost.kernel_table import KernelRow, KernelShape
from vdnnsim.cost.measured import MeasuredCosts, left_out_errors
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Gpu, Host, Link, Origin, Server
from vdnnsim.units import ElementType

PEAKS = Roofline(1 / 4e12, 1 / 4e11, 0.0)
LAWS = {
    "fast": Roofline(1 / 2e12, 1 / 2e11, 5e-6),
    "slow": Roofline(1 / 0.5e12, 1 / 2e11, 5e-6),
    ONLY: Roofline(1 / 2e12, 1 / 5e10, 2e-6),
}
VGG = Workload(build_network("vgg116"), 16, optimizer=Optimizer.SGD)


def rows_of(workload: Workload) -> list[KernelRow]:
    """Measure every kernel of a workload by the laws; `fast` takes 2 bytes for each element of Y, `slow` none."""
    rows: dict[tuple[KernelShape, str], KernelRow] = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            shape = KernelShape.of(workload, layer, phase)
            flop, nbytes = workload.flop(layer, phase), workload.bytes_moved(layer, phase)
            y_elements = layer.out_shape.elements * workload.batch_size
            for name in ("fast", "slow") if shape.kind == "conv" else (ONLY,):
                seconds, workspace_bytes = LAWS[name].seconds(flop, nbytes), 2 * y_elements * (name == "fast")
                work = workspace_bytes, flop, nbytes
                rows[shape, name] = KernelRow(shape, name, "", seconds, 0.0, 10, *work, Origin.MEASURED)
    return list(rows.values())


def shape_and_work(workload: Workload, name: str, phase: Phase) -> tuple[KernelShape, int, int]:
    layer = next(each for each in workload.graph.layers if each.name == name)
    return KernelShape.of(workload, layer, phase), workload.flop(layer, phase), workload.bytes_moved(layer, phase)


def expected(workload: Workload, name: str, phase: Phase, algorithm: str) -> float:
    _, *work = shape_and_work(workload, name, phase)
    return LAWS[algorithm].seconds(*work)


@pytest.fixture(scope="module")
def vgg_costs() -> MeasuredCosts:
    return MeasuredCosts(rows_of(VGG), PEAKS, ElementType.FLOAT32)


def test_a_measured_shape_costs_what_was_measured_fastest_first(vgg_costs: MeasuredCosts) -> None:
    for row in rows_of(VGG):
        options = vgg_costs.options(row.shape, row.flop, row.nbytes)
        found = next(each for each in options if each.algorithm == row.algorithm)
        assert (found.seconds, found.workspace_bytes, found.origin) == (row.seconds, row.workspace_bytes, row.origin)
        assert found.dram_bytes == row.nbytes
        assert [each.seconds for each in options] == sorted(each.seconds for each in options)


@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS])
def test_a_network_that_was_not_measured_is_predicted(vgg_costs: MeasuredCosts, phase: Phase) -> None:
    """AlexNet's conv3 is a 3x3 convolution as VGG's; 5x5 of conv2 only shares its kind with them."""
    alexnet = Workload(build_network("alexnet"), 32)
    for name in ("conv3", "conv2"):
        options = vgg_costs.options(*shape_and_work(alexnet, name, phase))
        assert sorted(each.algorithm for each in options) == ["fast", "slow"]
        for option in options:
            assert option.origin is Origin.FITTED
            assert option.seconds == pytest.approx(expected(alexnet, name, phase, option.algorithm), rel=1e-3)
        layer = next(each for each in alexnet.graph.layers if each.name == name)
        workspaces = {each.algorithm: each.workspace_bytes for each in options}
        assert workspaces == {"fast": 2 * layer.out_shape.elements * 32, "slow": 0}


def test_predictions_from_datasheet_peaks_have_their_origin() -> None:
    """Only the forward of conv1_1 was not measured: so is what it is with 64 images.

    AlexNet's conv3 has no sibling; its forward comes from all 3x3 convolutions forward, the one of conv1_1 among them.
    """
    stated = shape_and_work(VGG, "conv1_1", Phase.FORWARD)[0]
    rows = [replace(row, origin=Origin.DATASHEET) if row.shape == stated else row for row in rows_of(VGG)]
    costs = MeasuredCosts(rows, PEAKS, ElementType.FLOAT32)
    larger, alexnet = Workload(VGG.graph, 64), Workload(build_network("alexnet"), 32)

    def origins(workload: Workload, name: str, phase: Phase) -> set[Origin]:
        return {each.origin for each in costs.options(*shape_and_work(workload, name, phase))}

    assert origins(VGG, "conv1_1", Phase.FORWARD) == {Origin.DATASHEET}
    assert origins(VGG, "conv2_1", Phase.FORWARD) == {Origin.MEASURED}
    assert origins(larger, "conv1_1", Phase.FORWARD) == {Origin.DATASHEET}
    assert origins(larger, "conv1_1", Phase.BACKWARD_WEIGHTS) == {Origin.FITTED}
    assert origins(alexnet, "conv3", Phase.FORWARD) == {Origin.DATASHEET}
    assert origins(alexnet, "conv3", Phase.BACKWARD_DATA) == {Origin.FITTED}


def test_updates_and_what_streams_are_predicted_too(vgg_costs: MeasuredCosts) -> None:
    """Concatenation and the update by Adam were never measured: both stream as ReLU, pooling and SGD do."""
    googlenet = Workload(build_network("googlenet"), 32, optimizer=Optimizer.ADAM)
    concat = next(layer.name for layer in googlenet.graph.layers if layer.kind.value == "CONCAT")
    conv = next(layer.name for layer in googlenet.graph.layers if layer.kind.value == "CONV")
    for name, phase in ((concat, Phase.FORWARD), (conv, Phase.UPDATE)):
        (option,) = vgg_costs.options(*shape_and_work(googlenet, name, phase))
        assert option.algorithm == ONLY
        assert option.workspace_bytes == 0
        assert option.seconds == pytest.approx(expected(googlenet, name, phase, ONLY), rel=1e-3)


def test_another_batch_of_a_measured_layer_is_scaled_to_its_measurement() -> None:
    """One layer takes 3 times what the law says, as measured with 16 images; then it does with 64 as well."""
    name, phase = "conv3_1", Phase.FORWARD
    peculiar = shape_and_work(VGG, name, phase)[0]
    rows = [
        replace(row, seconds=3 * row.seconds, workspace_bytes=5 * row.workspace_bytes)
        if row.shape == peculiar and row.seconds
        else row
        for row in rows_of(VGG)
    ]
    costs = MeasuredCosts(rows, PEAKS, ElementType.FLOAT32)
    larger = Workload(VGG.graph, 64)
    options = {each.algorithm: each for each in costs.options(*shape_and_work(larger, name, phase))}
    assert options["fast"].seconds == pytest.approx(3 * expected(larger, name, phase, "fast"), rel=1e-2)
    layer = next(each for each in VGG.graph.layers if each.name == name)
    assert options["fast"].workspace_bytes == 5 * 2 * layer.out_shape.elements * 64


def test_an_overhead_that_many_shapes_have_is_no_launch() -> None:
    """All convolutions take 0.1 ms more than their work, as smaller ones fill a GPU worse, but none is a launch longer.

    Four times the batch is four times the FLOPs of conv3_1, which is bound by them: of its time what is beyond the
    shortest kernel, a launch at most, grows by four.
    """
    rows = [
        replace(row, seconds=row.seconds + 1e-4) if row.shape.kind == "conv" and row.seconds else row
        for row in rows_of(VGG)
    ]
    shape, *_ = shape_and_work(VGG, "conv3_1", Phase.FORWARD)
    larger = shape_and_work(Workload(VGG.graph, 64), "conv3_1", Phase.FORWARD)
    options = {each.algorithm: each for each in MeasuredCosts(rows, PEAKS, ElementType.FLOAT32).options(*larger)}
    (measured_s,) = (row.seconds for row in rows if row.shape == shape and row.algorithm == "fast" and row.seconds)
    shortest_s = min(row.seconds for row in rows if row.seconds)
    assert options["fast"].seconds == pytest.approx(shortest_s + 4 * (measured_s - shortest_s), rel=1e-6)


def test_kernels_are_issued_as_those_of_their_kind() -> None:
    """What was measured keeps its own; another shape has the median of its kind, 1 ms; of others nothing is known."""
    rows = [
        replace(row, issue_s=1e-3) if row.shape.kind == "conv" and row.algorithm == "fast" else row
        for row in rows_of(VGG)
    ]
    shape, *_ = shape_and_work(VGG, "conv3_1", Phase.FORWARD)
    rows = [replace(row, issue_s=2e-3) if row.shape == shape else row for row in rows]
    costs = MeasuredCosts(rows, PEAKS, ElementType.FLOAT32)
    alexnet = Workload(build_network("alexnet"), 32)

    def issues(workload: Workload, name: str) -> dict[str, float | None]:
        options = costs.options(*shape_and_work(workload, name, Phase.FORWARD))
        return {each.algorithm: each.issue_s for each in options}

    assert issues(VGG, "conv3_1") == {"fast": 2e-3, "slow": 2e-3}
    assert issues(Workload(VGG.graph, 64), "conv3_1") == {"fast": 2e-3, "slow": 2e-3}
    assert issues(alexnet, "conv3") == {"fast": 1e-3, "slow": 2e-3}
    assert issues(alexnet, "fc7") == {ONLY: None}


def test_an_algorithm_that_few_shapes_have_is_not_offered_to_others() -> None:
    """`rare` was measured for one of the 3x3 convolutions: it is offered there, but not to a shape never measured."""
    rows = rows_of(VGG)
    one = next(row for row in rows if row.shape.kind == "conv" and row.shape.phase is Phase.FORWARD)
    costs = MeasuredCosts([*rows, replace(one, algorithm="rare")], PEAKS, ElementType.FLOAT32)
    there = costs.options(one.shape, one.flop, one.nbytes)
    assert "rare" in [each.algorithm for each in there]
    alexnet = Workload(build_network("alexnet"), 32)
    elsewhere = costs.options(*shape_and_work(alexnet, "conv3", Phase.FORWARD))
    assert sorted(each.algorithm for each in elsewhere) == ["fast", "slow"]
    sibling = Workload(VGG.graph, 64)
    layer = next(each for each in VGG.graph.layers if KernelShape.of(VGG, each, Phase.FORWARD) == one.shape)
    again = costs.options(*shape_and_work(sibling, layer.name, Phase.FORWARD))
    assert "rare" in [each.algorithm for each in again]


def failed(row: KernelRow) -> KernelRow:
    return replace(row, seconds=None, count=0, note="out of memory")


def test_failed_algorithms_are_not_offered_while_another_is_left() -> None:
    """Of conv3_1 `fast` ran out of memory; of conv3_2 both did, so both are predicted."""
    first, second = (shape_and_work(VGG, name, Phase.FORWARD) for name in ("conv3_1", "conv3_2"))
    rows = [
        failed(row) if row.shape == second[0] or (row.shape == first[0] and row.algorithm == "fast") else row
        for row in rows_of(VGG)
    ]
    costs = MeasuredCosts(rows, PEAKS, ElementType.FLOAT32)
    assert [each.algorithm for each in costs.options(*first)] == ["slow"]
    predicted = costs.options(*second)
    assert sorted(each.algorithm for each in predicted) == ["fast", "slow"]
    assert {each.origin for each in predicted} == {Origin.FITTED}
    # Where a machine was too noisy to time any convolution: a device knows them by these names, and by no other.
    rows = [failed(row) if row.shape.kind == "conv" else row for row in rows_of(VGG)]
    costs = MeasuredCosts(rows, PEAKS, ElementType.FLOAT32)
    for workload in (VGG, replace(VGG, batch_size=3)):
        predicted = costs.options(*shape_and_work(workload, "conv3_1", Phase.FORWARD))
        assert sorted(each.algorithm for each in predicted) == ["fast", "slow"]
        assert {each.origin for each in predicted} == {Origin.FITTED}


def test_each_kernel_is_predicted_from_other_layers() -> None:
    """Most follow the laws and are met; one ReLU is twice as slow as predicted: -50 %.

    A single layer leaves nothing to predict it from.
    """
    rows = rows_of(VGG)
    odd = [row for row in rows if row.shape.kind == "relu" and row.shape.phase is Phase.FORWARD][1]
    assert odd.seconds is not None
    rows[rows.index(odd)] = replace(odd, seconds=2 * odd.seconds)
    gpu = Gpu("toy", 1, {ElementType.FLOAT32: 4e12}, 4e11, 1, 1)
    server = Server("toy", gpu, Link("toy", 1.0, 1.0, 0.0), Host(1, 0.0, 0.0, 1.0), {}, ())
    errors = left_out_errors(rows, server)
    assert len(errors) == len(rows)
    assert pytest.approx(-0.5, rel=1e-3) in errors
    assert median(map(abs, errors)) == pytest.approx(0.0, abs=1e-5)
    assert left_out_errors([odd], server) == []
