"""The keys `gpus` and `gradients`, on a shipped server with two P100s."""

from pathlib import Path

import pytest

from vdnnsim.errors import ScenarioError
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.check import check_file
from vdnnsim.scenario.read import read_scenario

ROOT = Path(__file__).parents[3]
TWO = """\
schema_version: 1
workload: {network: alexnet, batch_size: 32, element_type: float32}
hardware: p100_x2
policies: [none(p)]
gpus: 2
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a test writes its scenario; the profile is the shipped one."""
    monkeypatch.chdir(tmp_path)
    return Path("x.yaml")


def refusal(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ScenarioError) as caught:
        read_scenario(path)
    return str(caught.value).removeprefix("x.yaml: ")


@pytest.mark.parametrize("gradients", [None, *Aggregation])
def test_gradients_are_added_up_by_the_cpu_unless_told_otherwise(path: Path, gradients: Aggregation | None) -> None:
    path.write_text(TWO + (f"gradients: {gradients.value}\n" if gradients else ""), encoding="utf-8")
    scenario = read_scenario(path)

    assert (scenario.gpus, scenario.gradients) == (2, gradients or Aggregation.CPU)
    assert check_file(path, known_policies()) == (
        "x.yaml: a scenario: alexnet (32), float32, training on p100_x2 with 2 GPUs, under none(p)"
    )


def test_one_gpu_of_several_exchanges_nothing(path: Path) -> None:
    path.write_text(TWO.replace("gpus: 2\n", ""), encoding="utf-8")
    scenario = read_scenario(path)

    assert (scenario.gpus, scenario.gradients) == (1, None)


def test_inference_exchanges_nothing(path: Path) -> None:
    text = TWO.replace("float32}", "float32, mode: inference}")
    path.write_text(text, encoding="utf-8")

    assert read_scenario(path).gradients is None
    assert refusal(path, text + "gradients: cpu\n") == (
        "gradients: found 'cpu', but inference has no gradients; expected no such key"
    )


def test_more_gpus_than_there_are_are_refused(path: Path) -> None:
    profiles = ROOT / "hw_profiles"
    three = TWO.replace("gpus: 2", "gpus: 3")

    assert refusal(path, three) == f"gpus: found 3, but {profiles / 'p100_x2.yaml'} has 2 GPUs"
    assert refusal(path, three.replace("p100_x2", "titan_x_maxwell")) == (
        f"gpus: found 3, but {profiles / 'titan_x_maxwell.yaml'} has one GPU"
    )
    assert refusal(path, TWO.replace("gpus: 2", "gpus: 0")) == "gpus: found 0, expected an integer from 1 to 1000"


def test_one_gpu_has_nothing_to_add_its_gradients_to(path: Path) -> None:
    assert refusal(path, TWO.replace("gpus: 2", "gradients: ring")) == (
        "gradients: found 'ring', but a GPU alone has none to add its own to; expected no such key"
    )


def test_another_way_to_add_up_gradients_is_refused(path: Path) -> None:
    assert refusal(path, TWO + "gradients: tree\n") == (
        "gradients: 'tree' is not a way to add up gradients; expected one of cpu, gpu, ring, ddp, ddp_views"
    )


@pytest.mark.parametrize(("gpus", "batch_size"), [(2, 120), (4, 110)])
def test_the_scenarios_of_the_swap_paper(gpus: int, batch_size: int) -> None:
    """Kim et al. 2018, IV-B: the first rows of Tables II and III, gradients added up by the CPU."""
    scenario = read_scenario(ROOT / "scenarios" / f"swap2018_{gpus}gpus.yaml")

    assert (scenario.gpus, scenario.workload.batch_size) == (gpus, batch_size)
    assert scenario.gradients is Aggregation.CPU
    assert scenario.workload.graph.name == "vgg_d_13conv"
    assert [policy.label for policy in scenario.policies] == [
        "none(tensorflow)",
        "swap(tensorflow)",
        "staggered_swap(tensorflow)",
    ]
