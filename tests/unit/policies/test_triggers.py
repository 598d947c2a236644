"""The three steps of the adaptive trigger (Kim et al. 2018, III-C) on the chain of `test_asynchronous`.

conv1 conv2 conv3 fc loss: maps of 10 B, kernels of 1 s; without any stall an iteration takes 13 s.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.random_plans import cost_tables, servers, workloads
from tests.toy import TOY_LIMITS, TOY_SERVER, ReplayTrials, overflow_of, toy_chain, toy_costs, toy_workload
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Prefetch
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting, Trial
from vdnnsim.policies.swap import DELAY_TOLERANCE, StaggeredSwap, SwapIn

CHAIN = toy_workload(toy_chain(3))
COSTS = toy_costs(CHAIN, {})
SIX = toy_workload(toy_chain(6))
SIX_COSTS = toy_costs(SIX, {})
ONE_MAP = StaggeredSwap(interval=3)
"""Swaps the output of conv1, which backward of conv2 reads first, after that of loss, fc and conv3."""


def setting(
    *,
    d2h_bytes_per_s: float,
    h2d_bytes_per_s: float,
    capacity_bytes: int = 1000,
    workload: Workload = CHAIN,
    costs: CostModel = COSTS,
) -> Setting:
    link = replace(TOY_SERVER.link, h2d_bytes_per_s=h2d_bytes_per_s, d2h_bytes_per_s=d2h_bytes_per_s)
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes)
    return Setting(workload, costs, limits, ReplayTrials(costs, limits, replace(TOY_SERVER, link=link)))


def fetched(plan: TrainingPlan) -> list[tuple[str, str]]:
    """(map, layer beside whose backward it is prefetched)."""
    return [
        (plan.buffers[op.buffer].name.removeprefix("map "), plan.layers[op.layer])
        for op in plan.operations
        if isinstance(op, Prefetch)
    ]


def passes(plan: TrainingPlan) -> list[tuple[str, bool, float]]:
    return [(each.name, each.fits, each.cost_s) for each in plan.passes]


@pytest.mark.parametrize(
    ("d2h_bytes_per_s", "h2d_bytes_per_s", "seconds", "beside"),
    [
        # A copy of 5 s, as in `test_asynchronous`: 16 s just in time, 14 s two or three steps ahead. There are no more
        # than three steps before backward of conv2. Two are early enough.
        (2.0, 2.0, (16, 14, 14), "fc"),
        # The map is offloaded until 9, 8 s at 1.25 B/s, and prefetched in 1 s. Just in time the prefetch is issued at
        # 8: 1 s late, 14 s. Two steps ahead, at 6, the compute stream would wait 3 s for the offload, three steps
        # ahead, at 5, 4 s. So nothing is left for step 3 to do.
        (1.25, 10.0, (14, 16, 17), "conv3"),
    ],
)
def test_the_latest_trigger_that_delays_nothing_is_taken(
    d2h_bytes_per_s: float, h2d_bytes_per_s: float, seconds: tuple[float, ...], beside: str
) -> None:
    plan = ONE_MAP.plan(setting(d2h_bytes_per_s=d2h_bytes_per_s, h2d_bytes_per_s=h2d_bytes_per_s))
    names = "step 1: just in time", "step 2: 2 steps ahead", "step 2: 3 steps ahead"
    assert passes(plan) == [(name, True, each) for name, each in zip(names, seconds, strict=True)]
    assert fetched(plan) == [("conv1", beside)]


def test_between_two_distances_that_were_tried_the_latest_is_bisected() -> None:
    """Six CONV layers take 22 s, and the map of conv1 is offloaded in 1 s and prefetched in 5 s, at 2 B/s.

    Backward of conv2 begins at 19, a step takes 2 s. Prefetched with conv3, at 17, the map is 3 s late, with conv4 1 s,
    and with conv5, at 13, in time.
    """
    given = setting(d2h_bytes_per_s=10.0, h2d_bytes_per_s=2.0, workload=SIX, costs=SIX_COSTS)

    plan = StaggeredSwap(interval=6).plan(given)

    assert passes(plan) == [
        ("step 1: just in time", True, 25),
        ("step 2: 2 steps ahead", True, 23),
        ("step 2: 4 steps ahead", True, 22),
        ("step 2: 6 steps ahead", True, 22),
        ("step 3: conv1 2 steps ahead", True, 23),
        ("step 3: conv1 3 steps ahead", True, 22),
    ]
    assert fetched(plan) == [("conv1", "conv5")]


def test_after_the_most_trials_maps_keep_the_common_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above with five trials: three steps ahead would be the sixth, so conv1 is prefetched with conv6."""
    monkeypatch.setattr("vdnnsim.policies.swap.MOST_TRIALS", 5)
    given = setting(d2h_bytes_per_s=10.0, h2d_bytes_per_s=2.0, workload=SIX, costs=SIX_COSTS)

    plan = StaggeredSwap(interval=6).plan(given)

    assert len(plan.passes) == 5
    assert passes(plan)[-1] == ("step 3: conv1 2 steps ahead", True, 23)
    assert fetched(plan) == [("conv1", "conv6")]


@pytest.mark.parametrize("capacity_bytes", [434, 435])
def test_an_earlier_trigger_that_overflows_is_not_taken(capacity_bytes: int) -> None:
    """434 B are enough just in time, for two steps ahead 436 B are needed (`test_asynchronous`)."""
    given = setting(d2h_bytes_per_s=2.0, h2d_bytes_per_s=2.0, capacity_bytes=capacity_bytes)

    plan = ONE_MAP.plan(given)

    assert [(name, fits) for name, fits, _ in passes(plan)] == [
        ("step 1: just in time", True),
        ("step 2: 2 steps ahead", False),
    ]
    assert fetched(plan) == [("conv1", "conv3")]


def test_a_network_that_never_fits_is_tried_once() -> None:
    """Step 1 runs out of memory, and its plan is returned."""
    given = setting(d2h_bytes_per_s=2.0, h2d_bytes_per_s=2.0, capacity_bytes=433)

    plan = ONE_MAP.plan(given)

    assert passes(plan) == [("step 1: just in time", False, 0)]
    assert isinstance(place_plan(plan, given.limits), DoesNotFit)


def test_only_maps_that_would_delay_are_prefetched_earlier() -> None:
    """All three outputs are swapped, at 10 B/s; backward of conv3 lasts 0.5 s, so that a kernel's work is 11.5 s.

    Just in time the map of conv3 is prefetched with the loss, from 5 to 6, that of conv2 with fc, from 6 to 7, and that
    of conv1 with conv3, from 8 to 9, 0.5 s late. One step earlier, after that of conv2 from 7 to 8, it is not.
    """
    costs = toy_costs(CHAIN, {("conv3", Phase.BACKWARD_DATA): 0.25, ("conv3", Phase.BACKWARD_WEIGHTS): 0.25})
    plan = StaggeredSwap(interval=1).plan(setting(d2h_bytes_per_s=10.0, h2d_bytes_per_s=10.0, costs=costs))

    assert passes(plan) == [
        ("step 1: just in time", True, 12),
        ("step 2: 2 steps ahead", True, 11.5),
        ("step 2: 3 steps ahead", True, 11.5),
        ("step 3: conv1 just in time", True, 12),
        ("step 3: 2 maps just in time", True, 11.5),
    ]
    assert fetched(plan) == [("conv3", "loss"), ("conv2", "fc"), ("conv1", "fc")]


def test_the_earliest_distance_is_bisected() -> None:
    """Six steps precede backward of conv2 of six. Distances are doubled until one overflows, then bisected.

    Weights take 2 x (6 x 60 + 12) = 744 B. Backward of conv(n) holds input, conv2 to conv(n - 1), both its gradients,
    and conv1 if it is back: n + 2 maps of 10 B. That of fc holds input, conv2 to conv6, the gradient of conv6, conv1 if
    it is back, and 2 B. So four steps ahead, with conv6, 80 B are needed, and 82 B with fc, further ahead.
    """

    def tried(capacity_bytes: int) -> list[tuple[int, bool]]:
        given = setting(
            d2h_bytes_per_s=2.0, h2d_bytes_per_s=0.5, capacity_bytes=capacity_bytes, workload=SIX, costs=SIX_COSTS
        )
        plan = StaggeredSwap(interval=6).plan(given)
        return [(int(each.name.split()[2]), each.fits) for each in plan.passes if each.name.startswith("step 2")]

    assert tried(744 + 82) == [(2, True), (4, True), (6, True)]
    assert tried(744 + 81) == [(2, True), (4, True), (6, False), (5, False)]
    assert tried(744 + 79) == [(2, True), (4, False), (3, True)]


@dataclass
class Together:
    """A server on which GPU 1 takes a second more than GPU 0, and has no room two steps ahead."""

    setting: Setting
    tried: list[tuple[TrainingPlan, ...]] = field(default_factory=list)

    def run_server_trial(self, plans: Sequence[TrainingPlan]) -> tuple[Trial, ...]:
        """Run each alone; the trials of GPU 1 cost a second more."""
        self.tried.append(tuple(plans))
        first, second = (self.setting.trials.run_trial(plan) for plan in plans)
        if len(self.tried) > 1:
            full = overflow_of(plans[1], replace(TOY_LIMITS, device_bytes=0))
            return first, Trial(full, 0.0)
        return first, replace(second, cost_s=second.cost_s + 1)


def test_all_gpus_are_tried_together() -> None:
    """A trial lasts until the last GPU is done, and fits if all fit; each GPU's plan has the record of all trials.

    GPU 0 swaps conv1 and takes 16 s just in time, 14 s two steps ahead. GPU 1 swaps conv2, offloaded from 2 to 7:
    fc, with which it is prefetched, waits from 6 to 7, and conv3 from 9 to 12, so that it takes 17 s, and 18 s here.
    """
    alone = setting(d2h_bytes_per_s=2.0, h2d_bytes_per_s=2.0)
    server = Together(alone)

    plans = ONE_MAP.plans(replace(alone, gpus=2, groups=((0, 1),), server_trials=server))

    expected = [("step 1: just in time", True, 18), ("step 2: 2 steps ahead", False, 14)]
    assert [passes(plan) for plan in plans] == [expected, expected]
    assert [fetched(plan) for plan in plans] == [[("conv1", "conv3")], [("conv2", "fc")]]
    assert len(server.tried) == 2


@given(st.data(), st.integers(1, 3), st.sampled_from((200, 300, 400, 1000)))
def test_adaptive_triggers_are_as_fast_as_just_in_time(data: st.DataObject, interval: int, capacity_bytes: int) -> None:
    """By more than the tolerance; they fit where those do, and what is taken is the last trial that was accepted."""
    workload = data.draw(workloads())
    costs = data.draw(cost_tables(workload))
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes, host_bytes=10**9)
    trials = ReplayTrials(costs, limits, data.draw(servers()))
    on = Setting(workload, costs, limits, trials)

    adaptive = trials.run_trial(plan := StaggeredSwap(interval=interval).plan(on))
    just_in_time = trials.run_trial(StaggeredSwap(interval=interval, swap_in=SwapIn.JUST_IN_TIME).plan(on))

    assert adaptive.fits == just_in_time.fits == plan.passes[0].fits
    assert adaptive.cost_s <= just_in_time.cost_s * (1 + DELAY_TOLERANCE)
    assert plan.passes[0].cost_s == just_in_time.cost_s
    assert adaptive.cost_s in {each.cost_s for each in plan.passes if each.fits == adaptive.fits}
