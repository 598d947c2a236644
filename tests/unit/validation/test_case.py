import pytest

from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.policies.registry import known_policies
from vdnnsim.validation.case import CPU_CASES, GPU_CASES, Case, every_policy


def test_every_policy_comes_once_for_each_choice_of_algorithms() -> None:
    """page_migration is in it too: an executor that cannot do it says so by name. TensorFlow's rule is left out."""
    labels = [policy.label for policy in every_policy(known_policies())]
    assert len(set(labels)) == len(labels)
    paper = {"base(m)", "base(p)", "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"}
    assert paper < set(labels)
    assert "page_migration(p)" in labels
    assert "base(tensorflow)" not in labels


@pytest.mark.parametrize("case", [*CPU_CASES, *GPU_CASES], ids=lambda case: case.label)
def test_every_case_names_a_network_there_is(case: Case) -> None:
    assert case.network in NETWORKS
    assert case.workload.batch_size == case.batch_size


def test_a_label_tells_cases_of_one_network_apart() -> None:
    assert len({case.label for case in GPU_CASES}) == len(GPU_CASES)
    assert Case("vgg16", 64, memory_share=0.7).label == "vgg16 (64), memory 70 %"


@pytest.mark.parametrize("cases", [CPU_CASES, GPU_CASES])
def test_every_policy_runs_somewhere_and_the_papers_everywhere(cases: tuple[Case, ...]) -> None:
    """Every policy in enough memory and in too little; nine that the paper has, with both rules for algorithms."""
    policies = every_policy(known_policies())
    assert {case.memory_share is None for case in cases if case.chosen(policies) == policies} == {True, False}
    alone = [policy.label for policy in Case("vgg16", 64, paper_alone=True).chosen(policies)]
    assert alone[:4] == ["base(m)", "base(p)", "none(m)", "none(p)"]
    assert alone[4:] == ["vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"]
