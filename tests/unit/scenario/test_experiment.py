from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.trace import StallCause
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.iterations.layerwise import PrefetchSearch
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.units import GIB

SCENARIOS = Path(__file__).parents[3] / "scenarios"

DEEP = {"densenet121", "p3d_resnet199", "vgg316", "vgg416"}
"""Networks of hundreds of layers, which have nothing but more of what others have."""


@cache
def results(name: str, *labels: str) -> tuple[ScenarioResult, dict[str, PolicyResult]]:
    """Run policies of a shipped scenario; their results by policy."""
    scenario = read_scenario(SCENARIOS / f"{name}.yaml")
    policies = tuple(each for each in scenario.policies if each.label in labels)
    result = run_scenario(replace(scenario, policies=policies))
    return result, {each.policy: each for each in result.results}


def test_vgg416_trains_under_vdnn_and_not_without() -> None:
    """V-E of the vDNN paper: batch 32 takes 67.1 GB (GiB, within 5 %) network-wide and fits 12 GiB under vDNN_dyn."""
    result, rows = results("vgg416", "base(p)", "vdnn_dyn")

    assert not rows["base(p)"].fits
    assert result.oracle.max_memory_bytes == pytest.approx(67.1 * GIB, rel=0.05)
    assert rows["vdnn_dyn"].fits


def test_vgg16_256_takes_28_gib_and_offloads_16() -> None:
    """I and V-A: 28 GB of network-wide allocation (within 10 %), 16 GB of offload under vDNN_all (within 5 %)."""
    result, rows = results("vgg16_256", "base(p)", "vdnn_all(m)", "vdnn_all(p)")

    assert result.oracle.max_memory_bytes == pytest.approx(28 * GIB, rel=0.10)
    for policy in ("vdnn_all(m)", "vdnn_all(p)"):
        assert rows[policy].metrics.offloaded_bytes == pytest.approx(16 * GIB, rel=0.05)


def test_vgg16_128_under_all_m_peaks_as_the_paper_says() -> None:
    """V-A: 4.8 GB at most for feature extraction: within 15 % as Fig. 10 prints the search, within 5 % without POOL."""
    scenario = read_scenario(SCENARIOS / "vgg16_128.yaml")
    least = Algorithms.MEMORY_OPTIMAL
    policies = VdnnAll(algorithms=least), VdnnAll(algorithms=least, prefetch_search=PrefetchSearch.FIG10_WITHOUT_POOL)

    printed, without_pool = run_scenario(replace(scenario, policies=policies)).results

    assert printed.metrics.feature_max_memory_bytes == pytest.approx(4.8 * GIB, rel=0.15)
    assert without_pool.metrics.feature_max_memory_bytes == pytest.approx(4.8 * GIB, rel=0.05)


def test_a_row_that_does_not_fit_is_replayed_without_a_capacity() -> None:
    """base(p) of VGG-16 (256) is the oracular baseline itself: ratio 1, and the refusal stands beside the numbers."""
    _, rows = results("vgg16_256", "base(p)", "vdnn_all(m)", "vdnn_all(p)")

    assert rows["base(p)"].refusal is not None
    assert rows["base(p)"].performance_ratio == 1
    assert rows["base(p)"].metrics.max_memory_bytes > 12 * GIB


def test_the_passes_of_vdnn_dyn_cost_what_their_iterations_take() -> None:
    """AlexNet fits as a whole, so two passes run: one iteration of vdnn_all(m), then one of base(p), which is taken."""
    _, rows = results("alexnet", "base(p)", "vdnn_all(m)", "vdnn_dyn")

    assert [each.cost_s for each in rows["vdnn_dyn"].trace.plan.passes] == [
        rows["vdnn_all(m)"].metrics.iteration_s,
        rows["base(p)"].metrics.iteration_s,
    ]


def test_a_pass_that_fails_costs_the_part_before_it_failed() -> None:
    """With 0.7 GiB AlexNet (128) under all(m) gets through a part of its iteration, which costs more than nothing."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    small = replace(scenario.server, gpu=replace(scenario.server.gpu, memory_bytes=int(0.7 * GIB)))

    result = run_scenario(replace(scenario, server=small, policies=(VdnnDyn(),))).results[0]

    (only,) = result.trace.plan.passes
    assert not only.fits
    assert 0 < only.cost_s < result.metrics.iteration_s


@pytest.mark.parametrize("model", MemoryModel)
def test_memory_models_differ_in_gaps_alone(model: MemoryModel) -> None:
    """Bytes in use are the same under every model; what the pool needs for them is at least that.

    PyTorch's allocator counts as in use what it cannot cut off a block, at most 1 MiB for each. TensorFlow's counts
    the whole of a chunk that it does not split, which is less than twice as large as what was asked for. Mapped memory
    comes in blocks of 2 MiB, of which the last of each buffer may be all but empty.
    """
    scenario = replace(read_scenario(SCENARIOS / "alexnet.yaml"), memory_model=model, policies=(VdnnAll(),))
    ideal = run_scenario(replace(scenario, memory_model=MemoryModel.IDEAL)).results[0].metrics

    result = run_scenario(scenario).results[0]
    metrics, buffers = result.metrics, len(result.trace.plan.buffers)

    slack_of = {
        MemoryModel.PYTORCH: 2**20 * buffers,
        MemoryModel.TENSORFLOW: ideal.max_memory_bytes,
        MemoryModel.CUDA_VMM: 2**21 * buffers,
    }
    assert 0 <= metrics.max_memory_bytes - ideal.max_memory_bytes <= slack_of.get(model, 0)
    assert metrics.pool_bytes >= ideal.pool_bytes


def test_pinning_at_each_offload_costs_time() -> None:
    """The paper's text has cudaMallocHost at every offload: dearer than an arena pinned once."""
    scenario = replace(read_scenario(SCENARIOS / "alexnet.yaml"), policies=(VdnnAll(),))

    arena = run_scenario(scenario).results[0].metrics
    per_offload = run_scenario(replace(scenario, pinned_memory=PinnedMemory.PER_OFFLOAD)).results[0].metrics

    assert per_offload.iteration_s > arena.iteration_s
    assert {cause for cause, _ in per_offload.stall_by_cause} >= {StallCause.PINNING}


@pytest.mark.replay
@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.thorough) if each in DEEP else each for each in sorted(NETWORKS)]
)
def test_every_network_runs_in_every_mode(name: str) -> None:
    """Training with and without an update, and inference; the update and backward each add time."""
    scenario = read_scenario(SCENARIOS / "alexnet.yaml")
    graph = build_network(name)
    policies = (VdnnConv(), VdnnDyn())

    seconds = []
    for mode, optimizer in (
        (Mode.INFERENCE, Optimizer.NONE),
        (Mode.TRAINING, Optimizer.NONE),
        (Mode.TRAINING, Optimizer.ADAM),
    ):
        workload = Workload(graph, batch_size=2, mode=mode, optimizer=optimizer)
        result = run_scenario(replace(scenario, workload=workload, policies=policies))
        seconds.append(result.results[0].metrics.iteration_s)

    assert seconds == sorted(seconds)
