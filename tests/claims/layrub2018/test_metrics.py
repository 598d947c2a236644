"""Numbers of the Layrub paper, on networks small enough to work them out by hand."""

from dataclasses import replace

import pytest

from reports.layrub2018.readings import pool_bytes
from reports.layrub2018.tables import NETWORK_BYTES_PER_S
from tests.machines import shipped_server
from vdnnsim.claims.layrub2018.metrics import (
    at_one_node_pace,
    at_paper_pace,
    barrier_share,
    epoch_change,
    map_reduction,
    overhead,
    record_share,
    runtime_reduction,
    two_nodes_speedup,
    weight_bytes,
)
from vdnnsim.claims.layrub2018.runs import MXNET_CONTEXT_BYTES, LayrubCase, LayrubRuns
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.layrub import BARRIER_FRACTION
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.units import MIB

LENET = LayrubCase("k40m", "lenet", 64)
RESNET20 = LayrubCase("k40m", "resnet20", 2)


@pytest.fixture(scope="module")
def runs() -> LayrubRuns:
    return LayrubRuns({name: shipped_server(name) for name in ("k40m", "k40m_x2_ethernet")})


def test_blobs_of_lenet_are_data_and_diffs_of_its_maps(runs: LayrubRuns) -> None:
    """LeNet has no batch normalization, so nothing is inside a layer.

    Blobs are all maps, twice but for the input batch and what the loss writes, which have no gradient.
    """
    workload = runs.simulator(LENET).workload
    maps = [workload.map_bytes(each.index) for each in workload.graph.maps]
    assert runs.inside_bytes(LENET) == 0
    assert runs.blob_bytes(LENET) == 2 * sum(maps) - maps[0] - maps[-1]
    # ResNet-20 normalizes behind each of 19 CONV layers and 2 projections; its X is what the layer before it writes.
    # conv1 and six CONV layers of group 1 have 16 x 32 x 32 elements, those of group 2 32 x 16 x 16 (7 with the
    # projection), of group 3 64 x 8 x 8 (7): 7 x (16384 + 8192 + 4096) floats an image.
    assert runs.inside_bytes(RESNET20) == 2 * 4 * 7 * (16384 + 8192 + 4096)
    assert runs.blob_bytes(RESNET20) == runs.maps_bytes(RESNET20, "caffe") - 2 * runs.inside_bytes(RESNET20)


def test_runtime_memory_adds_context_and_handles_to_blocks_of_the_driver(runs: LayrubRuns) -> None:
    """LeNet has two CONV layers with three handles each. Blocks have 2 MiB; no buffer wastes more than one of them.

    Beside maps, W, dW, momentum and a workspace there are three more batches of 64 x 28 x 28 floats.
    """
    gpu = runs.machines["k40m"].gpu
    buffers = runs.plan(LENET, "caffe").buffers
    workspace = sum(each.nbytes for each in buffers if each.kind is BufferKind.WORKSPACE)
    needed = runs.maps_bytes(LENET, "caffe") + 3 * weight_bytes(runs, LENET) + workspace + 3 * 4 * 64 * 28 * 28

    pool = runs.memory(LENET, "caffe").runtime - gpu.context_bytes - 6 * gpu.handle_bytes

    assert pool % (2 * MIB) == 0
    assert needed < pool < needed + 2 * MIB * len(buffers)
    assert pool == pool_bytes(runs, LENET, "caffe")
    assert pool_bytes(runs, LENET, "caffe", MemoryModel.IDEAL) < pool


def test_mxnet_opens_no_handles_and_has_a_context_of_its_own(runs: LayrubRuns) -> None:
    pool = pool_bytes(runs, LENET, "memonger")
    assert runs.memory(LENET, "memonger").runtime == pool + MXNET_CONTEXT_BYTES
    assert pool_bytes(runs, LENET, "memonger", more_bytes=2 * MIB) > pool


def test_the_last_region_of_tensorflow_is_what_is_left_of_its_limit(runs: LayrubRuns) -> None:
    """ResNet-34, in MiB: with 32 images regions of 1, 2, 4 to 1024, of which that of 1 has a block of 2.

    With 300 a map has 918.75: after 256 come 1024 twice, 2048 and 4096, 8703 in all. Of 11580, less a context of 100, a
    twentieth is left to the system, and 2203 of the other 10906 to the last region. Without a capacity it were 8192.
    """
    small, large = LayrubCase("k40m", "resnet34", 32), LayrubCase("k40m", "resnet34", 300)
    assert pool_bytes(runs, small, "tensorflow") == 2048 * MIB
    assert pool_bytes(runs, large, "tensorflow") == (8704 + 2204) * MIB
    assert runs.memory(large, "tensorflow").fits


def test_tensorflow_trains_with_the_workspaces_that_its_allocator_can_give(runs: LayrubRuns) -> None:
    """VGG-16 (80): the fastest algorithms fit where bytes are added up, but not in what the regions leave free."""
    case = LayrubCase("k40m", "vgg_d_13conv", 80)
    simulator = runs.simulator(case)
    fastest = resolve_policy("tensorflow", known_policies()).plan(simulator.setting())
    assert isinstance(place_plan(fastest, simulator.limits), Placement)
    assert isinstance(place_plan(fastest, replace(simulator.limits, model=MemoryModel.TENSORFLOW)), DoesNotFit)
    assert runs.memory(case, "tensorflow").fits


def test_a_plan_beyond_the_capacity_does_not_fit(runs: LayrubRuns) -> None:
    """ResNet-50 (32) under Caffe takes 99 % of the GPU in the paper: half of that fits, half as much again does not."""
    assert runs.memory(LayrubCase("k40m", "resnet50", 16), "caffe").fits
    assert not runs.memory(LayrubCase("k40m", "resnet50", 48), "caffe").fits


@pytest.mark.parametrize(
    ("network", "batch_size", "pass_s"), [("lenet", 64, 2.148 / 20), ("resnet50", 32, 55.131 / 40)]
)
def test_at_the_paper_s_pace_the_base_takes_as_long_as_there(
    runs: LayrubRuns, network: str, batch_size: int, pass_s: float
) -> None:
    """20 iterations take 2.148 s and 55.131 s; those of ResNet-50 have two passes each. Launches take no longer."""
    own = LayrubCase("k40m", network, batch_size)
    case = at_paper_pace(runs, own, "caffe")
    assert runs.iteration_s(case, "caffe") == pytest.approx(pass_s, rel=1e-2)
    assert runs.memory(case, "caffe") == runs.memory(own, "caffe")
    passes = 2 if network == "resnet50" else 1
    assert at_paper_pace(runs, own, "caffe", passes={}).slowdown == pytest.approx(passes * case.slowdown)


def test_copies_records_barriers_and_savings(runs: LayrubRuns) -> None:
    """LeNet's takes 90 times as long in the paper."""
    paced, own = (overhead(runs, LENET, "layrub_hybrid", "caffe", paper_pace=pace) for pace in (True, False))
    assert 0 < paced < own / 10
    # A record is a quarter and a barrier costs its share.
    assert record_share(runs, LENET, "layrub_hybrid") == pytest.approx(0.25)
    assert barrier_share(runs, LENET, "layrub_hybrid") == pytest.approx(BARRIER_FRACTION)
    # A policy saves nothing over itself.
    assert runtime_reduction(runs, LENET, "caffe", "caffe") == 0
    assert map_reduction(runs, LENET, "caffe") == 0
    assert epoch_change(runs, LENET, LENET.batch_size, "caffe") == 0


def test_an_iteration_of_two_nodes_lasts_as_long_as_the_network_needs(runs: LayrubRuns) -> None:
    """LeNet computes for 1 ms and exchanges 1.7 MB at 125 MB/s, 14 ms, most of which is waiting.

    Of each of four layers a ring of two takes two steps of 50 us beside that.
    """
    two = replace(LENET, hardware="k40m_x2_ethernet")
    alone_s = runs.iteration_s(two, "caffe")
    exchange_s = weight_bytes(runs, LENET) / NETWORK_BYTES_PER_S
    together_s = 2 * alone_s / two_nodes_speedup(runs, two, "caffe", paper_pace=False)
    assert alone_s == pytest.approx(runs.iteration_s(LENET, "caffe"))
    assert exchange_s < together_s < alone_s + exchange_s + 4 * 2 * 50e-6
    # At the paper's pace ResNet-50 (32) takes 4.8 s an iteration, and 102 MB take 0.8 s.
    resnet50 = LayrubCase("k40m_x2_ethernet", "resnet50", 32)
    paced = at_one_node_pace(runs, resnet50, "caffe")
    assert runs.iteration_s(paced, "caffe") == pytest.approx((53 * 60 + 16) * 60 * 32 / 1_281_167, rel=1e-3)
    assert 1.98 < two_nodes_speedup(runs, resnet50, "caffe", paper_pace=True) <= 2
