"""What bounds tell of states and weight gradients on the host before any search, of the chain with three updates.

The ten kernels and three updates take 13 s, and in 570 B all fits (test_optimizer_states.py).
"""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, toy_setting
from tests.unit.planning.test_optimizer_states import COSTS, FAST, WORKLOAD
from vdnnsim.hardware.server import Server
from vdnnsim.planning.effort import UNLIMITED, Effort
from vdnnsim.planning.optimizer_states import least_states
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.question import Question
from vdnnsim.planning.reserved_search import ReservedSearch
from vdnnsim.plans.buffers import gradients_of_update, states_of_update
from vdnnsim.plans.training_plan import TrainingPlan

STATES, GRADIENTS = states_of_update(WORKLOAD.step), gradients_of_update(WORKLOAD.step)


def planner(device_bytes: int, server: Server = TOY_SERVER) -> Planner:
    limits = replace(TOY_LIMITS, device_bytes=device_bytes, host_bytes=10_000)
    setting = toy_setting(WORKLOAD, COSTS, limits, server)
    orders = Orders(WORKLOAD, setting.costs, STATES | GRADIENTS)
    question = Question(orders, limits, setting.copies, recompute=False)
    return Planner(question, setting.place, lambda plan: setting.trials.run_trial(plan).cost_s, 0, UNLIMITED, "", None)


def test_any_amount_of_states_has_the_first_one() -> None:
    """A quarter of 264 B is 66: one of the two of conv1, of 60 B each."""
    least = least_states(planner(570).question.problem)
    assert [WORKLOAD.step.storages[each].nbytes for each in least] == [60]


@pytest.mark.parametrize(("server", "seconds"), [(TOY_SERVER, 120), (FAST, 13)])
def test_states_on_the_host_take_the_link_twice(server: Server, seconds: float) -> None:
    """60 B in and out at 1 B/s; at 100 B/s they leave in 0.6 s once conv1 is updated, beside 2 s of updates."""
    assert planner(570, server).question.with_states_s(13) == seconds


def test_weight_gradients_may_be_on_the_host_alone() -> None:
    assert planner(570).question.with_gradients_alone.movable == GRADIENTS


@pytest.mark.parametrize(
    ("server", "kept_bound_s", "known_s", "searches"),
    [(TOY_SERVER, 13, 13.5, 0), (TOY_SERVER, 13, 15, 1), (TOY_SERVER, 14, 14.1, 1), (FAST, 13, 13.5, 1)],
)
def test_a_search_that_bounds_tell_to_be_vain_is_not_begun(
    server: Server, kept_bound_s: float, known_s: float, searches: int
) -> None:
    """States take 120 s, and the bound with gradients on the host is 13 s, as that of the known plan, which is near it.

    Not where that plan is far from its bound, or has a larger one, or where the link is fast.
    """
    searched = list[int]()

    def by_bytes(nbytes: int, _part: Effort, *_: object, **__: object) -> Planner:
        searched.append(nbytes)
        return planner(nbytes, server)

    known = cast("TrainingPlan", SimpleNamespace(certificate=SimpleNamespace(bound_s=kept_bound_s)))
    found = ReservedSearch(by_bytes, planner(570).place, UNLIMITED, found=known, found_s=known_s)
    found.search(570)

    assert found.bound_s == 13
    # The first is asked for the bound.
    assert len(searched) - 1 == searches
    assert (found.found is known) == (searches == 0)
