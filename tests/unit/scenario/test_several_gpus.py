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


INFERENCE = TWO.replace("float32}", "float32, mode: inference}")


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
    path.write_text(INFERENCE, encoding="utf-8")

    assert read_scenario(path).gradients is None


@pytest.mark.parametrize(
    ("text", "place", "fragment"),
    [
        (TWO.replace("gpus: 2", "gpus: 3"), "gpus: found 3", "p100_x2.yaml has 2 GPUs"),
        (TWO.replace("gpus: 2", "gpus: 3").replace("p100_x2", "titan_x_maxwell"), "gpus: found 3", "one GPU"),
        (TWO.replace("gpus: 2", "gpus: 0"), "gpus: found 0", "1 to 1000"),
        (TWO.replace("gpus: 2", "gradients: ring"), "gradients: found 'ring'", "a GPU alone"),
        (TWO + "gradients: tree\n", "gradients: 'tree'", "cpu, gpu, ring, ddp, ddp_views"),
        (INFERENCE + "gradients: cpu\n", "gradients: found 'cpu'", "inference"),
    ],
)
def test_gpus_and_gradients_that_cannot_be_are_refused(path: Path, text: str, place: str, fragment: str) -> None:
    message = refusal(path, text)
    assert message.startswith(place)
    assert fragment in message


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
