"""Replays of Kim et al. (2018): policies, largest batches, readings and speed, on AlexNet where that is enough."""

import msgspec
import pytest

from reports.swap2018.readings import ReadRuns, SwapReading, behind_one_port
from tests.machines import shipped_server
from vdnnsim.claims.claim import Claim, Verdict
from vdnnsim.claims.swap2018.runs import METRICS, FirstRow, Place, ServerRuns, first_row
from vdnnsim.dnn.networks import build_network
from vdnnsim.hardware.topology import Topology
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.algorithms import Algorithms

TWO = Place("p100_x2", 2)
SWAP = "swap(tensorflow, interval=2)"


def claim(**changes: object) -> Claim:
    """Swap halves the speed of AlexNet (16) on two GPUs within 10 %, unless changed."""
    what = {"networks": ("alexnet(16)",), "policy": SWAP, "baseline": "none(tensorflow)", "gpus": 2, **changes}
    stated = {"metric": "throughput_ratio", "expected": 0.5, "tolerance": 0.1, **what}
    return msgspec.convert({"id": "c-1", "where": "I", **stated}, Claim)


def test_a_ratio_of_throughputs_is_that_of_iterations_the_other_way_round(swap_runs: ServerRuns) -> None:
    none_s, swap_s = (swap_runs.iteration_s(TWO, "alexnet", 16, policy) for policy in ("none(tensorflow)", SWAP))
    stated = claim(expected=none_s / swap_s)

    row = METRICS.check(stated, swap_runs, "p100_x2")

    assert none_s < swap_s
    assert row.verdict is Verdict.REPRODUCED
    assert row.error == "+0.0%"
    assert row.simulated == f"{none_s / swap_s:.1%}"
    assert row.scenario == "scenarios/swap2018_2gpus.yaml"
    assert METRICS.check(claim(expected=1.2 * none_s / swap_s), swap_runs, "p100_x2").verdict is Verdict.NOT_REPRODUCED


def test_largest_batches_and_their_throughput(swap_runs: ServerRuns) -> None:
    """Of AlexNet on one Titan Xp, which the claim names, not the file."""
    found = swap_runs.largest(Place("titan_xp", 1), "alexnet", "none(m)")
    alone = {"networks": ["alexnet"], "policy": "none(m)", "hardware": "titan_xp", "gpus": 1, "baseline": ""}

    batch = METRICS.check(claim(metric="largest_batch", unit="images", **alone), swap_runs, "p100_x2")
    speed = METRICS.check(claim(metric="largest_batch_throughput", unit="images/s", **alone), swap_runs, "p100_x2")
    same = alone | {"baseline": "none(m)"}
    ratio = METRICS.check(claim(metric="largest_batch_ratio", unit="times", **same), swap_runs, "p100_x2")

    assert batch.simulated == f"{found.batch_size} images"
    assert speed.simulated == f"{found.samples_per_s:.0f} images/s"
    assert ratio.simulated == "1.00 times"
    assert batch.scenario == "scenarios/swap2018_1gpu.yaml"


ALEXNET_PARAMETERS = 61_100_840


@pytest.mark.parametrize(
    "label",
    [
        "none(p)",
        "swap(tensorflow, interval=4)",
        "staggered_swap(m, interval=2, synchronization=none, swap_in=just_in_time)",
    ],
)
def test_a_label_is_read_as_results_print_it(swap_runs: ServerRuns, label: str) -> None:
    """The last has an option at its default, which no label shows."""
    assert swap_runs.policy(label).label == label.replace(", synchronization=none", "")


def test_readings_scenarios_and_metrics(swap_runs: ServerRuns) -> None:
    reading = SwapReading("x", options={"swap": {"interval": 2}}, algorithms={"algorithms": "m"})
    other = ReadRuns.under(reading, swap_runs.machines)
    assert other.policy("swap(tensorflow, interval=4)").label == "swap(m, interval=2)"
    assert other.policy("staggered_swap(tensorflow, interval=4)").label == "staggered_swap(m, interval=4)"
    assert swap_runs.policy("swap(tensorflow, interval=4)").label == "swap(tensorflow, interval=4)"
    ring = ReadRuns.under(SwapReading("y", gradients=Aggregation.RING), swap_runs.machines)
    assert ring.scenario(TWO, "alexnet", 16, ("none(m)",)).gradients is Aggregation.RING
    # A scenario has the gpus of its place.
    two = swap_runs.scenario(TWO, "alexnet", 16, ("none(m)",))
    one = swap_runs.scenario(Place("titan_xp", 1), "alexnet", 16, ("none(m)",))
    assert (two.gpus, two.gradients, two.workload.batch_size) == (2, Aggregation.CPU, 16)
    assert (one.gpus, one.gradients, one.server.name) == (1, None, "titan_xp")
    assert Algorithms(two.policies[0].algorithms) is Algorithms.MEMORY_OPTIMAL  # type: ignore[attr-defined]
    # A metric names gpus and baseline.
    assert METRICS.describe(claim()) == f"throughput, alexnet(16), 2 GPUs, {SWAP} over none(tensorflow)"
    assert METRICS.describe(claim(metric="largest_batch", gpus=1, baseline="")) == f"largest batch, alexnet(16), {SWAP}"


def test_the_time_of_a_framework_is_added_to_each_iteration(swap_runs: ServerRuns) -> None:
    """1 ns for each of the 4 B of a weight: 0.244 s for AlexNet's 61.1 million weights, at any batch."""
    slow = ReadRuns.under(SwapReading("x", framework_s_per_byte=1e-9), swap_runs.machines)
    added_s = 4e-9 * ALEXNET_PARAMETERS

    assert build_network("alexnet").parameters == ALEXNET_PARAMETERS
    before_s = swap_runs.iteration_s(TWO, "alexnet", 16, "none(p)")
    assert slow.iteration_s(TWO, "alexnet", 16, "none(p)") == pytest.approx(before_s + added_s)
    one = Place("titan_xp", 1)
    found = swap_runs.largest(one, "alexnet", "none(m)")
    assert found.samples_per_s is not None
    slower_s = found.batch_size / slow.largest_samples_per_s(one, "alexnet", "none(m)")
    assert slower_s == pytest.approx(found.batch_size / found.samples_per_s + added_s)


@pytest.fixture(scope="module")
def four() -> Topology:
    """Two switches with two GPUs each, and a port of the host for each switch."""
    topology = shipped_server("p100_x4").topology
    assert topology is not None
    return topology


def shared(topology: Topology, a: int, b: int) -> int:
    """The number of links that the ways of two GPUs to the host have in common."""
    return len({hop.link for hop in topology.to_host(a)} & {hop.link for hop in topology.to_host(b)})


def test_behind_one_port_all_four_gpus_share_a_link(four: Topology) -> None:
    """GPUs of one switch share two links to the host, that of the switch and host memory; others only host memory.

    With one more switch above both all ways are a link longer, and others share two as well.
    """
    other = behind_one_port(four)
    assert [len(four.to_host(gpu)) for gpu in range(4)] == [3] * 4
    assert [len(other.to_host(gpu)) for gpu in range(4)] == [4] * 4
    assert (shared(four, 0, 1), shared(four, 0, 2)) == (2, 1)
    assert (shared(other, 0, 1), shared(other, 0, 2)) == (3, 2)
    assert [other.group(gpu) for gpu in range(4)] == [four.group(gpu) for gpu in range(4)]


def test_memory_and_first_rows_without_swap(swap_runs: ServerRuns) -> None:
    server = shipped_server("titan_xp")
    kept = SwapReading("x", kept_fraction=0.25, one_root=True).change(server)
    assert kept.gpu.memory_bytes == 9 * 2**30, "3/4 of 12 GiB"
    assert kept.topology is None, "one GPU on a link of its own stays so"
    assert SwapReading().change(server) == server
    # 120 images at 83.56 images/s are 1.436 s; with the kernel times of DeepBench it is less.
    assert swap_runs.iteration_s(TWO, "vgg_d_13conv", 120, "none(tensorflow)") == pytest.approx(120 / 83.56, rel=1e-3)
    measured = ReadRuns.under(SwapReading("x", own_speed=False), swap_runs.machines)
    assert measured.server("p100_x2") == swap_runs.machines["p100_x2"]
    assert measured.iteration_s(TWO, "vgg_d_13conv", 120, "none(tensorflow)") < 120 / 83.56
    # Of Table II and of Table III, as the paper prints them; Table I has no speed without swap to set a pace by.
    assert first_row("p100_x2") == FirstRow(Place("p100_x2", 2), 120, 83.56)
    assert first_row("p100_x4") == FirstRow(Place("p100_x4", 4), 110, 66.53)
    assert first_row("titan_xp") is None
