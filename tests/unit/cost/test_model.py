import time
from dataclasses import replace
from pathlib import Path

import pytest

from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import ONLY, CostTable
from vdnnsim.cost.workspace import IMPLICIT_GEMM
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.element_type import ElementType
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.profile import read_profile
from vdnnsim.hardware.server import Figure, Origin, Server

TITAN_X = Path(__file__).parents[3] / "hw_profiles" / "titan_x_maxwell.yaml"


@pytest.fixture(scope="module")
def titan_x() -> Server:
    return read_profile(TITAN_X)


@pytest.mark.parametrize("network", NETWORKS)
def test_every_kernel_has_its_options_fastest_first(network: str, titan_x: Server) -> None:
    workload = Workload(build_network(network), 32, optimizer=Optimizer.MOMENTUM)
    table = ServerCosts(titan_x).table(workload)
    expected = {(layer.index, phase) for layer in workload.graph.layers for phase in workload.phases(layer)}
    assert table.kernels.keys() == expected
    for options in table.kernels.values():
        assert [option.seconds for option in options] == sorted(option.seconds for option in options)
        assert all(option.seconds > 0 and option.origin is Origin.FITTED for option in options)


def test_memory_optimal_convolutions_need_no_workspace(titan_x: Server) -> None:
    workload = Workload(build_network("vgg16"), 64, optimizer=Optimizer.SGD)
    table = ServerCosts(titan_x).table(workload)
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            chosen = table.memory_optimal(layer.index, phase)
            convolves = layer.kind is LayerKind.CONV and phase is not Phase.UPDATE
            assert (chosen.algorithm, chosen.workspace_bytes) == (IMPLICIT_GEMM if convolves else ONLY, 0)


def test_half_precision_storage_is_faster_only_where_bytes_count(titan_x: Server) -> None:
    """The Titan X computes 16 bit elements at its float32 rate, so FC of a batch costs the same and ACTV half."""
    graph = build_network("alexnet")
    full, half = (
        ServerCosts(titan_x).table(Workload(graph, 256, element_type))
        for element_type in (ElementType.FLOAT32, ElementType.FLOAT16)
    )
    overhead_s = titan_x.cost_model["kernel_overhead_s"]
    fc = next(layer.index for layer in graph.layers if layer.name == "fc6")
    relu = next(layer.index for layer in graph.layers if layer.name == "conv1/relu")
    assert half.fastest(fc, Phase.FORWARD).seconds == full.fastest(fc, Phase.FORWARD).seconds

    def streaming_s(table: CostTable) -> float:
        return table.fastest(relu, Phase.FORWARD).seconds - overhead_s

    assert streaming_s(half) == pytest.approx(streaming_s(full) / 2)


def test_the_table_of_a_batch_in_parts_is_built_once(titan_x: Server) -> None:
    """It is that of the workload with the batch of a part."""
    workload = Workload(build_network("alexnet"), 32)
    costs = ServerCosts(titan_x)
    part = costs.table(replace(workload, parts=4))

    assert part == ServerCosts(titan_x).table(replace(workload, batch_size=8))
    assert part != costs.table(workload)
    assert part is costs.table(replace(workload, parts=4))
    algorithm = part.fastest(0, Phase.FORWARD).algorithm
    assert part.find(0, Phase.FORWARD, algorithm) is part.fastest(0, Phase.FORWARD)


def test_inference_has_forward_only(titan_x: Server) -> None:
    table = ServerCosts(titan_x).table(Workload(build_network("alexnet"), 1, mode=Mode.INFERENCE))
    assert {phase for _, phase in table.kernels} == {Phase.FORWARD}


def test_the_deepest_network_takes_well_under_a_second(titan_x: Server) -> None:
    workload = Workload(build_network("vgg416"), 32)
    start = time.process_time()
    ServerCosts(titan_x).table(workload)
    assert time.process_time() - start < 0.5


def test_missing_parameters_are_named(toy_server: Server) -> None:
    cost_model = {key: value for key, value in toy_server.cost_model.items() if key != "tile_load_flop"}
    with pytest.raises(ProfileError, match=r"^toy: cost_model: lacks tile_load_flop$"):
        ServerCosts(replace(toy_server, cost_model=cost_model)).table(Workload(build_network("alexnet"), 1))


def test_unknown_parameters_are_named(toy_server: Server) -> None:
    cost_model = {**toy_server.cost_model, "warp_speed": 9.0}
    with pytest.raises(ProfileError, match=r"^toy: cost_model: does not know warp_speed$"):
        ServerCosts(replace(toy_server, cost_model=cost_model)).table(Workload(build_network("alexnet"), 1))


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_fractions_of_a_peak_are_fractions(toy_server: Server, value: float) -> None:
    cost_model = {**toy_server.cost_model, "stream_dram_fraction": value}
    with pytest.raises(ProfileError, match=rf"^toy: cost_model\.stream_dram_fraction: found {value}, expected"):
        ServerCosts(replace(toy_server, cost_model=cost_model)).table(Workload(build_network("alexnet"), 1))


def test_element_types_without_a_rate_are_refused(toy_server: Server) -> None:
    workload = Workload(build_network("alexnet"), 1, ElementType.FLOAT16)
    with pytest.raises(ProfileError, match=r"^toy: gpu\.peak: lacks float16, has float32$"):
        ServerCosts(toy_server).table(workload)


def stated(origin: Origin) -> tuple[Figure, ...]:
    """Return the figures of a profile whose overhead is assumed, and whose one rate has an origin."""
    return (
        Figure("gpu.memory", "12 GiB", Origin.MEASURED, "a box"),
        Figure("cost_model.kernel_overhead_s", "1", Origin.ASSUMED, "a toy"),
        Figure("cost_model.product_flop_fraction", "1", origin, "a toy"),
    )


def test_times_of_the_model_are_as_good_as_its_parameters(toy_server: Server) -> None:
    """Four rates of the toy are halves of their peaks; without Winograd their rates are 0, which are of no kernel."""
    peaks = {key: 1.0 if value == 0.5 else value for key, value in toy_server.cost_model.items()}

    def origins(server: Server) -> set[Origin]:
        table = ServerCosts(server).table(Workload(build_network("alexnet"), 1, optimizer=Optimizer.SGD))
        return {option.origin for options in table.kernels.values() for option in options}

    assert origins(replace(toy_server, figures=stated(Origin.FITTED))) == {Origin.FITTED}
    assert origins(replace(toy_server, figures=stated(Origin.ASSUMED))) == {Origin.ASSUMED}
    assert origins(replace(toy_server, figures=stated(Origin.ASSUMED), cost_model=peaks)) == {Origin.DATASHEET}
    assert origins(replace(toy_server, figures=stated(Origin.MEASURED), cost_model=peaks)) == {Origin.FITTED}
