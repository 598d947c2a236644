"""Replays of AlexNet, the smallest network that there is, on the paper's servers."""

import pytest

from tests.toy import ROOT
from vdnnsim.claims.swap2018.reading import Reading
from vdnnsim.claims.swap2018.runs import Place, ServerRuns, read_label
from vdnnsim.dnn.networks import build_network
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.plan.operations import Aggregation
from vdnnsim.policies.algorithms import Algorithms

TWO = Place("p100_x2", 2)
ALEXNET_PARAMETERS = 61_100_840


@pytest.fixture(scope="module")
def runs() -> ServerRuns:
    return ServerRuns({name: read_profile(find_profile(name, ROOT)) for name in ("p100_x2", "titan_xp")})


@pytest.mark.parametrize(
    "label",
    [
        "none(p)",
        "swap(tensorflow, interval=4)",
        "staggered_swap(m, interval=2, synchronization=none, swap_in=just_in_time)",
    ],
)
def test_a_label_is_read_as_results_print_it(runs: ServerRuns, label: str) -> None:
    """The last has an option at its default, which no label shows."""
    assert runs.policy(label).label == label.replace(", synchronization=none", "")


def test_a_label_is_the_mapping_of_a_scenario() -> None:
    assert read_label("swap(p, interval=4)") == {"policy": "swap", "algorithms": "p", "interval": 4}
    assert read_label("none(m)") == {"policy": "none", "algorithms": "m"}


def test_a_reading_changes_the_options_of_the_policies_that_it_names(runs: ServerRuns) -> None:
    other = runs.under(Reading("x", options={"swap": {"interval": 2}}, algorithms={"algorithms": "m"}))

    assert other.policy("swap(tensorflow, interval=4)").label == "swap(m, interval=2)"
    assert other.policy("staggered_swap(tensorflow, interval=4)").label == "staggered_swap(m, interval=4)"
    assert runs.policy("swap(tensorflow, interval=4)").label == "swap(tensorflow, interval=4)"


def test_a_scenario_has_the_gpus_of_its_place(runs: ServerRuns) -> None:
    two = runs.scenario(TWO, "alexnet", 16, ("none(m)",))
    one = runs.scenario(Place("titan_xp", 1), "alexnet", 16, ("none(m)",))

    assert (two.gpus, two.gradients, two.workload.batch_size) == (2, Aggregation.CPU, 16)
    assert (one.gpus, one.gradients, one.server.name) == (1, None, "titan_xp")
    assert Algorithms(two.policies[0].algorithms) is Algorithms.MEMORY_OPTIMAL  # type: ignore[attr-defined]


def test_each_replay_is_run_once(runs: ServerRuns) -> None:
    assert runs.slowest(TWO, "alexnet", 16, "none(p)") is runs.slowest(TWO, "alexnet", 16, "none(p)")
    assert runs.under(Reading()).slowest(TWO, "alexnet", 16, "none(p)") is not runs.slowest(
        TWO, "alexnet", 16, "none(p)"
    )


def test_the_time_of_a_framework_is_added_to_each_iteration(runs: ServerRuns) -> None:
    """1 ns for each of the 4 B of a weight: 0.244 s for AlexNet's 61.1 million, in any batch."""
    slow = runs.under(Reading("x", framework_s_per_byte=1e-9))
    added_s = 4e-9 * ALEXNET_PARAMETERS

    assert build_network("alexnet").parameters == ALEXNET_PARAMETERS
    before_s = runs.iteration_s(TWO, "alexnet", 16, "none(p)")
    assert slow.iteration_s(TWO, "alexnet", 16, "none(p)") == pytest.approx(before_s + added_s)
    one = Place("titan_xp", 1)
    found = runs.largest(one, "alexnet", "none(m)")
    assert found.images_per_s is not None
    slower_s = found.batch_size / slow.largest_images_per_s(one, "alexnet", "none(m)")
    assert slower_s == pytest.approx(found.batch_size / found.images_per_s + added_s)
