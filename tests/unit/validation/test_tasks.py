import pytest

from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.policies.registry import known_policies
from vdnnsim.validation.method import CPU_TASKS, GPU_TASKS, Task, every_policy


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
