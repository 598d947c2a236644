import pytest

from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.policies.registry import known_policies
from vdnnsim.validation.case import CPU_CASES, GPU_CASES, Case, every_policy


def test_every_policy_comes_once_for_each_choice_of_algorithms() -> None:
    """page_migration is in it too: an executor that cannot do it says so by name."""
    labels = [policy.label for policy in every_policy(known_policies())]
    assert len(set(labels)) == len(labels)
    paper = {"base(m)", "base(p)", "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"}
    assert paper < set(labels)
    assert "page_migration(p)" in labels


@pytest.mark.parametrize("case", [*CPU_CASES, *GPU_CASES], ids=lambda case: case.label)
def test_every_case_names_a_network_there_is(case: Case) -> None:
    assert case.network in NETWORKS
    assert case.workload.batch_size == case.batch_size


def test_a_label_tells_cases_of_one_network_apart() -> None:
    assert len({case.label for case in GPU_CASES}) == len(GPU_CASES)
    assert Case("vgg16", 64, memory_share=0.7).label == "vgg16 (64), memory 70 %"
