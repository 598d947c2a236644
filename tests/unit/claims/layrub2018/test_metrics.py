"""Numbers of the Layrub paper, on networks small enough to work them out by hand."""

import pytest

from tests.toy import ROOT
from vdnnsim.claims.layrub2018.metrics import (
    NETWORK_BYTES_PER_S,
    barrier_share,
    epoch_change,
    map_reduction,
    record_share,
    runtime_reduction,
    two_nodes_speedup,
    weight_bytes,
)
from vdnnsim.claims.layrub2018.runs import Case, LayrubRuns
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.plan.training_plan import BufferKind
from vdnnsim.policies.layrub import BARRIER_FRACTION

LENET = Case("k40m", "lenet", 64)
RESNET20 = Case("k40m", "resnet20", 2)


@pytest.fixture(scope="module")
def runs() -> LayrubRuns:
    return LayrubRuns({"k40m": read_profile(find_profile("k40m", ROOT))})


def test_blobs_of_lenet_are_data_and_diffs_of_its_maps(runs: LayrubRuns) -> None:
    """LeNet has no batch normalization, so nothing is inside a layer.

    Blobs are all maps, twice but for the input batch and what the loss writes, which have no gradient.
    """
    workload = runs.bench(LENET).workload
    maps = [workload.map_bytes(each.index) for each in workload.graph.maps]

    assert runs.inside_bytes(LENET) == 0
    assert runs.blob_bytes(LENET) == 2 * sum(maps) - maps[0] - maps[-1]


def test_normalized_maps_are_no_blobs(runs: LayrubRuns) -> None:
    """ResNet-20 normalizes behind each of 19 CONV layers and 2 projections; its X is what the layer before it writes.

    conv1 and six CONV layers of group 1 have 16 x 32 x 32 elements, those of group 2 32 x 16 x 16 (7 with the
    projection), of group 3 64 x 8 x 8 (7): 7 x (16384 + 8192 + 4096) floats an image.
    """
    assert runs.inside_bytes(RESNET20) == 2 * 4 * 7 * (16384 + 8192 + 4096)
    assert runs.blob_bytes(RESNET20) == runs.memory(RESNET20, "caffe").maps - 2 * runs.inside_bytes(RESNET20)


def test_runtime_memory_adds_context_and_handles(runs: LayrubRuns) -> None:
    """LeNet has two CONV layers with three handles each."""
    gpu = runs.machines["k40m"].gpu
    weights = 3 * weight_bytes(runs, LENET)
    kinds = runs.memory(LENET, "caffe").maps + weights

    workspace = sum(b.nbytes for b in runs.plan(LENET, "caffe").buffers if b.kind is BufferKind.WORKSPACE)
    rest = runs.memory(LENET, "caffe").runtime - kinds - gpu.context_bytes - 6 * gpu.handle_bytes

    assert 0 <= rest - workspace < 32 * gpu.granule_bytes, "what the granule adds to each of some 30 buffers"


def test_what_overflows_the_gpu_does_not_fit(runs: LayrubRuns) -> None:
    """All of ResNet-50 (32) under Caffe takes 98 % of the GPU; a batch of 48 takes half as much again."""
    assert runs.memory(Case("k40m", "resnet50", 32), "caffe").fits
    assert not runs.memory(Case("k40m", "resnet50", 48), "caffe").fits


def test_a_record_is_a_quarter_and_a_barrier_costs_its_share(runs: LayrubRuns) -> None:
    assert record_share(runs, LENET, "layrub_hybrid") == pytest.approx(0.25)
    assert barrier_share(runs, LENET, "layrub_hybrid") == pytest.approx(BARRIER_FRACTION)


def test_a_policy_saves_nothing_over_itself(runs: LayrubRuns) -> None:
    assert runtime_reduction(runs, LENET, "caffe", "caffe") == 0
    assert map_reduction(runs, LENET, "caffe") == 0
    assert epoch_change(runs, LENET, LENET.batch_size, "caffe") == 0


def test_an_iteration_of_two_nodes_lasts_as_long_as_the_network_needs(runs: LayrubRuns) -> None:
    """LeNet computes for 1 ms and exchanges 1.7 MB at 125 MB/s, 14 ms: all but the first 2 ms of which is waiting."""
    alone_s = runs.iteration_s(LENET, "caffe")
    exchange_s = weight_bytes(runs, LENET) / NETWORK_BYTES_PER_S

    together_s = 2 * alone_s / two_nodes_speedup(runs, LENET, "caffe", paper_pace=False)

    assert exchange_s < together_s < alone_s + exchange_s


def test_a_network_that_is_slow_enough_hides_the_exchange(runs: LayrubRuns) -> None:
    """At the paper's pace ResNet-50 (32) takes 4.8 s an iteration, and 102 MB take 0.8 s."""
    speedup = two_nodes_speedup(runs, Case("k40m", "resnet50", 32), "caffe", paper_pace=True)

    assert 1.99 < speedup <= 2
