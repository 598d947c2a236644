import pytest

from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.policies.registry import known_policies
from vdnnsim.validation.subjects import CPU_SUBJECTS, GPU_SUBJECTS, Subject, every_policy


def test_every_policy_comes_once_for_each_choice_of_algorithms() -> None:
    """page_migration is in it too: an executor that cannot do it says so by name. TensorFlow's rule is left out."""
    labels = [policy.label for policy in every_policy(known_policies())]
    assert len(set(labels)) == len(labels)
    paper = {"base(m)", "base(p)", "vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"}
    assert paper < set(labels)
    assert "page_migration(p)" in labels
    assert "base(tensorflow)" not in labels


@pytest.mark.parametrize("subject", [*CPU_SUBJECTS, *GPU_SUBJECTS], ids=lambda subject: subject.label)
def test_every_subject_names_a_network_there_is(subject: Subject) -> None:
    assert subject.network in NETWORKS
    assert subject.workload.batch_size == subject.batch_size


def test_a_label_tells_subjects_of_one_network_apart() -> None:
    assert len({subject.label for subject in GPU_SUBJECTS}) == len(GPU_SUBJECTS)
    assert Subject("vgg16", 64, memory_share=0.7).label == "vgg16 (64), memory 70 %"


@pytest.mark.parametrize("subjects", [CPU_SUBJECTS, GPU_SUBJECTS])
def test_every_policy_runs_somewhere_and_the_papers_everywhere(subjects: tuple[Subject, ...]) -> None:
    """Every policy in enough memory and in too little; nine that the paper has, with both rules for algorithms."""
    policies = every_policy(known_policies())
    assert {subject.memory_share is None for subject in subjects if subject.chosen(policies) == policies} == {
        True,
        False,
    }
    alone = [policy.label for policy in Subject("vgg16", 64, paper_alone=True).chosen(policies)]
    assert alone[:4] == ["base(m)", "base(p)", "none(m)", "none(p)"]
    assert alone[4:] == ["vdnn_all(m)", "vdnn_all(p)", "vdnn_conv(m)", "vdnn_conv(p)", "vdnn_dyn"]
