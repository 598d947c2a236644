from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Link
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.validation.method import Pacing, given_durations

PACING = Pacing(kernel_factor=3.0, least_kernel_s=2.0, copy_factor=4.0, copy_latency_s=0.5, stretches=(1.0, 2.0))


def test_a_kernel_takes_the_factor_or_the_least() -> None:
    """Three times 1 s are 3 s; three times 0.1 s are less than the least, 2 s."""
    workload = toy_workload(toy_chain(1))
    costs = PACING.costs(toy_costs(workload, {("conv1", Phase.FORWARD): 0.1})).table(workload)
    assert costs.fastest(0, Phase.FORWARD).seconds == 2.0
    assert costs.fastest(1, Phase.FORWARD).seconds == pytest.approx(3.0)
    # A map of 10 B at 1 B/s, four times slower: 0.5 + 40 s. Contention is left out.
    link = Link("link", 1.0, 1.0, 0.0, both_directions_fraction=0.5)
    paced = PACING.server(replace(TOY_SERVER, link=link))
    assert paced.link == Link("link, paced", 0.25, 0.25, 0.5)


def test_algorithms_keep_their_rank_where_the_least_makes_them_equal() -> None:
    workload = toy_workload(toy_chain(1))
    fast = replace(
        toy_costs(workload, {}).table(workload).fastest(0, Phase.FORWARD),
        algorithm="fast",
        seconds=0.1,
        workspace_bytes=8,
    )
    lean = replace(fast, algorithm="lean", seconds=0.2, workspace_bytes=0)
    costs = PACING.costs(ToyCosts({(0, Phase.FORWARD): (fast, lean)})).table(workload)
    assert [option.algorithm for option in costs.options(0, Phase.FORWARD)] == ["fast", "lean"]
    assert costs.memory_optimal(0, Phase.FORWARD).algorithm == "lean"


def test_given_durations_are_those_of_the_replay() -> None:
    workload = toy_workload(toy_chain(3))
    server = PACING.server(TOY_SERVER)
    costs = PACING.costs(toy_costs(workload, {}))
    plan = VdnnAll().plan(toy_setting(workload, costs))
    durations = given_durations(plan, costs, server.link)
    trace = replay(plan, costs, server=server, limits=TOY_LIMITS)
    assert {span.operation for span in trace.spans} == set(durations)
    for span in trace.spans:
        assert span.end_s - span.start_s == pytest.approx(durations[span.operation])
