"""Replays of AlexNet, the smallest network that there is, on the paper's servers."""

import pytest

from vdnnsim.claims.swap2018.runs import ServerRuns, SwapReading
from vdnnsim.claims.swap2018.stated import Place
from vdnnsim.dnn.networks import build_network
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.registry import known_policies, resolve_policy

TWO = Place("p100_x2", 2)
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


def test_a_label_is_the_mapping_of_a_scenario(swap_runs: ServerRuns) -> None:
    types = known_policies()

    assert swap_runs.policy("swap(p, interval=4)") == resolve_policy(
        {"policy": "swap", "algorithms": "p", "interval": 4}, types
    )
    assert swap_runs.policy("none(m)") == resolve_policy({"policy": "none", "algorithms": "m"}, types)


def test_a_reading_changes_the_options_of_the_policies_that_it_names(swap_runs: ServerRuns) -> None:
    other = swap_runs.under(SwapReading("x", options={"swap": {"interval": 2}}, algorithms={"algorithms": "m"}))

    assert other.policy("swap(tensorflow, interval=4)").label == "swap(m, interval=2)"
    assert other.policy("staggered_swap(tensorflow, interval=4)").label == "staggered_swap(m, interval=4)"
    assert swap_runs.policy("swap(tensorflow, interval=4)").label == "swap(tensorflow, interval=4)"


def test_a_scenario_has_the_gpus_of_its_place(swap_runs: ServerRuns) -> None:
    two = swap_runs.scenario(TWO, "alexnet", 16, ("none(m)",))
    one = swap_runs.scenario(Place("titan_xp", 1), "alexnet", 16, ("none(m)",))

    assert (two.gpus, two.gradients, two.workload.batch_size) == (2, Aggregation.CPU, 16)
    assert (one.gpus, one.gradients, one.server.name) == (1, None, "titan_xp")
    assert Algorithms(two.policies[0].algorithms) is Algorithms.MEMORY_OPTIMAL  # type: ignore[attr-defined]


def test_each_replay_is_run_once_for_all_readings_that_do_not_change_it(swap_runs: ServerRuns) -> None:
    """Gradients around a ring take another time on two GPUs; what swaps is nothing to a policy without swap."""
    ring = swap_runs.under(SwapReading("x", gradients=Aggregation.RING))
    other = swap_runs.under(SwapReading("y", options={"swap": {"interval": 1}}))

    once = swap_runs.iteration(TWO, "alexnet", 16, "none(tensorflow)")

    assert other.iteration(TWO, "alexnet", 16, "none(tensorflow)") is once
    assert ring.iteration(TWO, "alexnet", 16, "none(tensorflow)") != once


def test_the_time_of_a_framework_is_added_to_each_iteration(swap_runs: ServerRuns) -> None:
    """1 ns for each of the 4 B of a weight: 0.244 s for AlexNet's 61.1 million, in any batch."""
    slow = swap_runs.under(SwapReading("x", framework_s_per_byte=1e-9))
    added_s = 4e-9 * ALEXNET_PARAMETERS

    assert build_network("alexnet").parameters == ALEXNET_PARAMETERS
    before_s = swap_runs.iteration_s(TWO, "alexnet", 16, "none(p)")
    assert slow.iteration_s(TWO, "alexnet", 16, "none(p)") == pytest.approx(before_s + added_s)
    one = Place("titan_xp", 1)
    found = swap_runs.largest(one, "alexnet", "none(m)")
    assert found.images_per_s is not None
    slower_s = found.batch_size / slow.largest_images_per_s(one, "alexnet", "none(m)")
    assert slower_s == pytest.approx(found.batch_size / found.images_per_s + added_s)
