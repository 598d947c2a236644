from dataclasses import replace
from pathlib import Path

import pytest

from tests.machines import shipped_server
from tests.toy import kernel_table, toy_chain
from vdnnsim.cost.maxwell import MaxwellCosts
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.model import ServerCosts, check_cost_model
from vdnnsim.cost.roofline import RooflineCosts
from vdnnsim.cost.table import ONLY, CostTable, KernelCost, KernelWork
from vdnnsim.cost.workspace import IMPLICIT_GEMM
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Figure, Origin, Server
from vdnnsim.units import ElementType


@pytest.fixture(scope="module")
def titan_x() -> Server:
    return shipped_server("titan_x_maxwell")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("network", NETWORKS)
def test_every_kernel_has_its_options_fastest_first(network: str, titan_x: Server) -> None:
    workload = Workload(build_network(network), 32, optimizer=Optimizer.MOMENTUM)
    table = ServerCosts(titan_x).table(workload)
    expected = {(layer.index, phase) for layer in workload.graph.layers for phase in workload.phases(layer)}
    assert table.kernels.keys() == expected
    for (layer, phase), options in table.kernels.items():
        assert [option.seconds for option in options] == sorted(option.seconds for option in options)
        assert all(option.seconds > 0 for option in options)
        least = table.memory_optimal(layer, phase)
        convolves = workload.graph.layers[layer].operator.name == "conv" and phase is not Phase.UPDATE
        assert (least.algorithm, least.workspace_bytes) == (IMPLICIT_GEMM if convolves else ONLY, 0)


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
    workload = Workload(build_network("alexnet"), 32)
    costs = ServerCosts(titan_x)
    part = costs.table(replace(workload, parts=4))

    assert part == ServerCosts(titan_x).table(replace(workload, batch_size=8))
    assert part != costs.table(workload)
    assert part is costs.table(replace(workload, parts=4))
    algorithm = part.fastest(0, Phase.FORWARD).algorithm
    assert part.find(0, Phase.FORWARD, algorithm) is part.fastest(0, Phase.FORWARD)


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("maxwell", {"tile_load_flop": None}, "cost_model: lacks tile_load_flop"),
        ("maxwell", {"warp_speed": 9.0}, "cost_model: 'warp_speed' is not a parameter of this model"),
        ("maxwell", {"stream_dram_fraction": 0.0}, r"cost_model\.stream_dram_fraction: found 0.0, expected"),
        ("maxwell", {"stream_dram_fraction": 1.5}, r"cost_model\.stream_dram_fraction: found 1.5, expected"),
        ("flat", {}, "cost_model.kind: 'flat' is not a kind of cost model"),
        ("roofline", {}, "cost_model: 'kernel_overhead_s' is not a parameter of a roofline"),
        ("table", None, "has neither kernels nor a cost_model, so nothing can be timed on it"),
        ("maxwell", None, "has neither kernels nor a cost_model, so nothing can be timed on it"),
    ],
)
def test_a_model_that_cannot_time_anything_is_refused(
    toy_server: Server, kind: str, changed: dict[str, float | None] | None, message: str
) -> None:
    parameters = {} if changed is None else {**toy_server.cost_model, **changed}
    cost_model = {key: value for key, value in parameters.items() if value is not None}
    with pytest.raises(ProfileError, match=f"^toy: {message}"):
        ServerCosts(replace(toy_server, cost_model_kind=kind, cost_model=cost_model)).of_type(ElementType.FLOAT32)


def test_element_types_without_a_rate_are_refused(toy_server: Server) -> None:
    workload = Workload(build_network("alexnet"), 1, ElementType.FLOAT16)
    with pytest.raises(ProfileError, match=r"^toy states no gpu\.peak for 'float16', expected one of float32$"):
        ServerCosts(toy_server).table(workload)


def stated(origin: Origin) -> tuple[Figure, ...]:
    """Return the figures of a profile whose overhead is assumed, and whose one rate has an origin."""
    return (
        Figure("gpu.memory", "12 GiB", Origin.MEASURED, "a box"),
        Figure("cost_model.kernel_overhead_s", "1", Origin.ASSUMED, "a toy"),
        Figure("cost_model.product_flop_fraction", "1", origin, "a toy"),
    )


def test_kernels_have_the_origin_of_the_rates_that_they_use(toy_server: Server) -> None:
    """Four rates of the toy are halves of their peaks; without Winograd their rates are 0, which are of no kernel.

    Products rest on the one rate that is stated, what streams on others, which are assumed then.
    """
    peaks = {key: 1.0 if value == 0.5 else value for key, value in toy_server.cost_model.items()}

    def origins(server: Server) -> set[Origin]:
        table = ServerCosts(server).table(Workload(build_network("alexnet"), 1, optimizer=Optimizer.SGD))
        return {option.origin for options in table.kernels.values() for option in options}

    assert origins(replace(toy_server, figures=stated(Origin.FITTED))) == {Origin.FITTED, Origin.ASSUMED}
    assert origins(replace(toy_server, figures=stated(Origin.ASSUMED))) == {Origin.ASSUMED}
    assert origins(replace(toy_server, figures=stated(Origin.ASSUMED), cost_model=peaks)) == {Origin.DATASHEET}
    assert origins(replace(toy_server, figures=stated(Origin.MEASURED), cost_model=peaks)) == {
        Origin.FITTED,
        Origin.ASSUMED,
    }


def test_each_kind_is_made_once_and_by_its_name(toy_server: Server) -> None:
    costs = ServerCosts(toy_server)
    datasheet = replace(toy_server, cost_model_kind="roofline", cost_model={"launch_overhead_s": 1.0})
    assert isinstance(costs.of_type(ElementType.FLOAT32), MaxwellCosts)
    assert costs.of_type(ElementType.FLOAT32) is costs.of_type(ElementType.FLOAT32)
    assert isinstance(ServerCosts(datasheet).of_type(ElementType.FLOAT32), RooflineCosts)
    # A table has no parameters.
    server = replace(toy_server, cost_model_kind="table", cost_model={"warp": 1.0, "speed": 9.0})
    with pytest.raises(ProfileError, match=r"^toy: cost_model: found speed, warp, but a table has no parameters$"):
        check_cost_model("toy", server)
    check_cost_model("toy", replace(server, cost_model={}))


def on_table(server: Server, folder: Path, *lines: str, kind: str = "table", **parameters: float) -> Server:
    """A server with a table of kernels beside a cost model of a kind."""
    return replace(server, kernels=kernel_table(folder, lines), cost_model_kind=kind, cost_model=parameters)


def test_a_table_alone_refuses_what_was_not_timed(toy_server: Server, tmp_path: Path) -> None:
    """A profile that names `table` has no model to fall back on."""
    server = on_table(toy_server, tmp_path, "relu,forward,1,float32,5x1x1,,only,,1.0,0.0,1,0,5,40,measured,")
    assert isinstance(ServerCosts(server).of_type(ElementType.FLOAT32), MeasuredCosts)
    with pytest.raises(ProfileError, match=r"toy\.kernels\.csv: times no kernel in float16, only in float32$"):
        ServerCosts(server).of_type(ElementType.FLOAT16)


def test_machines_with_one_table_share_fits_and_keep_their_costs(toy_server: Server, tmp_path: Path) -> None:
    """As the points of a study, which differ in their link."""
    server = on_table(toy_server, tmp_path, "relu,forward,1,float32,5x1x1,,only,,1.0,0.0,1,0,5,40,measured,")
    one, other = (ServerCosts(replace(server, name=name)).of_type(ElementType.FLOAT32) for name in "ab")
    one.kernel(KernelWork("tanh", ElementType.FLOAT32, {}, 40))
    one.table(Workload(toy_chain(1), 1))
    assert vars(one)["_rooflines"] is vars(other)["_rooflines"]
    assert vars(one)["_rooflines"]
    assert vars(one)["_tables"]
    assert not vars(other)["_tables"]


def test_a_roofline_stands_beside_a_table_for_types_that_it_lacks(toy_server: Server, tmp_path: Path) -> None:
    """What the table has keeps its algorithms and workspaces; in float16 conv1 of the toy chain is a roofline.

    One image of 5 elements through 30 weights: 50 FLOPs, at 25 FLOP/s 2 s; 10 + 60 + 10 B take 0.8 s at 100 B/s; and a
    launch of 1 s.
    """
    row = "conv 5 1x1 stride 1x1 padding 0x0 bias,forward,1,float32,5x1x1,,{},,{},0.0,1,{},50,160,measured,"
    rates = {**toy_server.gpu.flop_per_s, ElementType.FLOAT16: 25.0}
    gpu = replace(toy_server.gpu, flop_per_s=rates, dram_bytes_per_s=100.0)
    rows = row.format("fast", 2.0, 7), row.format("lean", 3.0, 0)
    server = on_table(replace(toy_server, gpu=gpu), tmp_path, *rows, kind="roofline", launch_overhead_s=1.0)
    wide, half = (
        ServerCosts(server).table(Workload(toy_chain(1), 1, element_type, mode=Mode.INFERENCE))
        for element_type in (ElementType.FLOAT32, ElementType.FLOAT16)
    )

    offered = [
        [(each.algorithm, each.seconds, each.workspace_bytes) for each in table.options(0, Phase.FORWARD)]
        for table in (wide, half)
    ]
    assert offered == [[("fast", 2.0, 7), ("lean", 3.0, 0)], [(ONLY, 3.0, 0)]]
    assert wide.gap == ""
    assert "times no kernel in float16" in half.gap
    assert "roofline knows no workspaces" in half.gap


def test_of_two_without_a_workspace_the_faster_is_memory_optimal() -> None:
    fast, middle, slow = (KernelCost(str(s), s, 100 * (s == 1), Origin.ASSUMED) for s in (1.0, 2.0, 3.0))
    table = CostTable({(0, Phase.FORWARD): (fast, middle, slow)})
    assert (table.fastest(0, Phase.FORWARD), table.memory_optimal(0, Phase.FORWARD)) == (fast, middle)


def test_a_pooling_costs_what_its_saving_rule_makes_it_move(titan_x: Server) -> None:
    """Backward of pool1 in VGG-16 (256): X holds 256 x 64 x 224 x 224 x 4 B = 3.29 GB, Y a quarter of it.

    By the paper's rule it reads X, Y and dY and writes dX, 2.5 times X; by autograd's it reads X, dY and the indices,
    an int64 for each element of Y and so as large as two of it, and writes dX: 2.75 times X. At three quarters of
    336 GB/s, and with 10 us of overhead, that is 32.6 ms and 35.9 ms.
    """
    workload = Workload(build_network("vgg16"), 256)
    pool = next(layer for layer in workload.graph.layers if layer.name == "pool1")
    x_bytes = 256 * 64 * 224 * 224 * 4
    bytes_per_s, overhead_s = 0.75 * 336e9, 1e-5

    def seconds(rule: SavingRule) -> float:
        return ServerCosts(titan_x).table(workload.saved_by(rule)).fastest(pool.index, Phase.BACKWARD_DATA).seconds

    assert seconds(SavingRule.PAPER) == pytest.approx(2.5 * x_bytes / bytes_per_s + overhead_s, rel=1e-12)
    assert seconds(SavingRule.AUTOGRAD) == pytest.approx(2.75 * x_bytes / bytes_per_s + overhead_s, rel=1e-12)
    assert (round(seconds(SavingRule.PAPER), 4), round(seconds(SavingRule.AUTOGRAD), 4)) == (0.0326, 0.0359)
