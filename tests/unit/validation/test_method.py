from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.hardware.server import Link
from vdnnsim.policies.registry import known_policies
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.validation.method import CPU_TASKS, GPU_TASKS, Pacing, Task, every_policy, given_durations


def test_tasks_have_every_policy_and_known_networks() -> None:
    labels = [policy.label for policy in every_policy(known_policies())]
    assert len(set(labels)) == len(labels)
    paper = {"base(m)", "base(p)", "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"}
    assert paper < set(labels)
    assert "page_migration(p)" in labels
    assert "base(tensorflow)" not in labels
    # Every task names a known network.
    assert {task.network for task in (*CPU_TASKS, *GPU_TASKS)} <= NETWORKS.keys()
    # Labels of tasks differ.
    assert len({task.label for task in GPU_TASKS}) == len(GPU_TASKS)
    assert Task("vgg16", 64, memory_share=0.7).label == "vgg16 (64), memory 70 %"


@pytest.mark.parametrize("tasks", [CPU_TASKS, GPU_TASKS])
def test_every_policy_runs_somewhere_and_the_papers_everywhere(tasks: tuple[Task, ...]) -> None:
    policies = every_policy(known_policies())
    assert {task.memory_share is None for task in tasks if task.chosen(policies) == policies} == {True, False}
    alone = [policy.label for policy in Task("vgg16", 64, paper_alone=True).chosen(policies)]
    pairs = [f"{name}({letter})" for name in ("base", "none", "vdnn_all", "vdnn_conv") for letter in "mp"]
    assert alone == [*pairs, "vdnn_dyn"]


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
