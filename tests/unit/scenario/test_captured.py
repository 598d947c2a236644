"""Scenarios of captured steps."""

import hashlib
from pathlib import Path

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.captured_steps import chain, residual, sequences
from tests.refusals import refusal as refused_with
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.errors import InputError, ProfileError, ScenarioError
from vdnnsim.hardware.profile import find_profile, load_profile, read_profile
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.check import check_file
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import largest_batches
from vdnnsim.units import Precision

SCENARIO = """\
schema_version: 1
workload: {workload}
hardware: rtx_4090
policies: [pytorch, checkpoint]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Steps below the folder of a scenario: the chain at 2, 4 and 9, and another model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps").mkdir()
    for n in (2, 4, 9):
        write_captured_step(chain(n), tmp_path / "steps" / f"chain{n}.step.json")
    write_captured_step(residual(), tmp_path / "steps" / "residual.step.json")
    return tmp_path


def scenario(folder: Path, workload: str, more: str = "") -> Scenario:
    (folder / "x.yaml").write_text(SCENARIO.format(workload=workload) + more)
    return read_scenario(Path("x.yaml"))


def refusal(folder: Path, workload: str) -> str:
    """Return what a workload is refused with, less the name of the file."""
    return refused_with(ScenarioError, scenario, folder, workload).removeprefix("x.yaml: ")


def test_one_of_several_lengths_is_chosen(folder: Path) -> None:
    for tokens in (8, 16):
        write_captured_step(sequences(tokens), folder / f"t{tokens}.step.json")
    steps = "step: [t8.step.json, t16.step.json]"
    found = [scenario(folder, each).captured for each in (f"{{{steps}}}", f"{{{steps}, tokens: 16}}")]
    assert [each and each.tokens for each in found] == [8, 16]
    assert refusal(folder, f"{{{steps}, tokens: 9}}").startswith("workload.tokens: chain: was captured on sequences of")


def test_captured_steps_state_batch_precision_and_sources(folder: Path) -> None:
    found = scenario(folder, "{step: steps/chain2.step.json}")
    assert isinstance(found.workload, CapturedWorkload)
    assert found.workload.captured == chain(2)
    assert (found.workload.batch_size, found.workload.precision) == (2, Precision.FLOAT32)
    assert found.memory_model is MemoryModel.PYTORCH
    named = scenario(folder, "{step: steps/chain2.step.json}", "memory_model: ideal\n")
    assert named.memory_model is MemoryModel.IDEAL
    # The steps are among the sources.
    found = scenario(folder, "{step: [steps/chain2.step.json, steps/chain4.step.json]}")
    names = ["steps/chain2.step.json", "steps/chain4.step.json"]
    assert list(found.sources[1:3]) == [(each, hashlib.sha256(Path(each).read_bytes()).hexdigest()) for each in names]
    assert found.sources[0][0] == "x.yaml"
    assert "rtx_4090" in found.sources[3][0]
    # Two steps make the batch a variable.
    steps = "step: [steps/chain2.step.json, steps/chain4.step.json]"
    assert scenario(folder, f"{{{steps}}}").workload.batch_size == 2
    found = scenario(folder, f"{{{steps}, batch_size: 48}}")
    assert isinstance(found.workload, CapturedWorkload)
    assert found.workload.captured == chain(48)
    assert found.workload_of(7).batch_size == 7


STEP = "step: steps/chain2.step.json"
PAIR = "step: [steps/chain2.step.json, steps/"


@pytest.mark.parametrize(
    ("workload", "place", "fragment"),
    [
        *(
            (f"{{{STEP}, {key}}}", f"workload.{key.partition(':')[0]}: ", "beside 'step'")
            for key in ("network: vgg16", "precision: float32", "optimizer: sgd", "mode: training")
        ),
        (f"{{{STEP}, batch_size: 4}}", "workload.batch_size: ", "beside one step"),
        ("{step: 7}", "workload.step: found 7", "`vdnnsim capture`"),
        ("{step: []}", "workload.step: found an empty list", ""),
        ("{step: x.step.json}", "workload.step: x.step.json: ", "no such file"),
        ("{step: x.yaml}", "workload.step: x.yaml: is not JSON", "`vdnnsim capture`"),
        (f"{{{STEP}, n: 3}}", "workload: 'n' is not a key", "step, batch_size"),
        (f"{{{PAIR}residual.step.json]}}", "workload.step[1]: ", "'residual', that of the first 'chain'"),
        (f"{{{PAIR}chain2.step.json]}}", "workload.step[1]: ", "batch of 2"),
        (f"{{{PAIR}chain4.step.json], batch_size: 0}}", "workload.batch_size: found 0", "1 to 1000000"),
    ],
)
def test_a_wrong_workload_is_refused_in_one_line(workload: str, place: str, fragment: str, folder: Path) -> None:
    message = refusal(folder, workload)
    assert message.startswith(place)
    assert fragment in message


def test_sizes_that_do_not_grow_linearly_are_refused_with_the_place(folder: Path) -> None:
    """The map of the convolution is 256 B at a batch of 4 where a line through 2 and 0 would have 128 B at most."""
    step = chain(4)
    storages = list(step.storages)
    storages[5] = msgspec.structs.replace(storages[5], nbytes=256)
    write_captured_step(msgspec.structs.replace(step, storages=tuple(storages)), folder / "steps" / "chain4.step.json")
    message = refusal(folder, "{step: [steps/chain2.step.json, steps/chain4.step.json], batch_size: 6}")
    assert message.startswith("workload.batch_size: chain: was captured at a batch of 2 and 4, ")
    assert "storages[5].nbytes: 32 at a batch of 2, 256 at 4" in message


def test_check_describes_captured_steps_and_their_scenarios(folder: Path) -> None:
    """Saved: moments 8 B and the chain's 16 + 16 + 8 + 4 + 4 B an image, conv, bn, indices, pool and logarithms."""
    (folder / "x.yaml").write_text(SCENARIO.format(workload="{step: steps/chain2.step.json}"))

    found = check_file(Path("x.yaml"), known_policies())
    assert "chain (2), float32, training on rtx_4090, under pytorch(p), checkpoint(p)" in found
    found = check_file(Path("steps/chain2.step.json"), known_policies())
    assert "chain, 2 images, float32, training, sgd, as cuda 8.9 by torch 2.13.0" in found
    assert f"{8 + 2 * (16 + 16 + 8 + 4 + 4)} B saved for backward" in found
    (folder / "wrong.step.json").write_text("{}")
    with pytest.raises(InputError, match=r"^wrong\.step\.json: found JSON without 'version', expected a captured step"):
        check_file(Path("wrong.step.json"), known_policies())


def test_the_largest_batch_is_confirmed_by_a_capture(folder: Path) -> None:
    """Two captures are extended; at the batch that is found a capture fits into 1 MiB, with one image more not."""
    profile = (Path(__file__).parents[3] / "hw_profiles" / "titan_x_maxwell.yaml").read_text()
    (folder / "small.yaml").write_text(profile.replace("12 GiB", "1 MiB").replace("titan_x_maxwell", "small"))
    text = SCENARIO.replace("rtx_4090", "small.yaml") + "memory_model: ideal\n"

    def read(workload: str) -> Scenario:
        (folder / "x.yaml").write_text(text.format(workload=workload))
        return read_scenario(Path("x.yaml"))

    found = largest_batches(read("{step: [steps/chain2.step.json, steps/chain4.step.json]}"))

    assert [each.policy for each in found] == ["pytorch(p)", "checkpoint(p)"]
    for number, largest in enumerate(found):
        assert largest.batch_size > 4
        for batch_size in (largest.batch_size, largest.batch_size + 1):
            write_captured_step(chain(batch_size), folder / "there.step.json")
            result = run_scenario(read("{step: there.step.json}"))
            assert result.results[number].fits is (batch_size == largest.batch_size)


def test_a_policy_that_cuts_the_batch_is_refused_by_name(folder: Path) -> None:
    text = SCENARIO.format(workload="{step: [steps/chain2.step.json, steps/chain4.step.json]}")
    (folder / "x.yaml").write_text(text.replace("pytorch, checkpoint", "accumulate"))
    with pytest.raises(InputError, match=r"^accumulate\(p\): cuts a batch into parts, and chain was captured"):
        largest_batches(read_scenario(Path("x.yaml")))


def test_a_step_of_a_rank_needs_a_machine_for_all(folder: Path) -> None:
    """NCCL's 24 channels of 9,633,792 B are in the context of a GPU; a second count of GPUs is refused."""
    step = msgspec.structs.replace(sharded(), ranks=2)
    write_captured_step(step, folder / "rank.step.json")
    text = SCENARIO.replace("rtx_4090", "h100_x8").format(workload="{step: rank.step.json}")
    (folder / "x.yaml").write_text(text)
    found = read_scenario(Path("x.yaml"))
    one = read_profile(Path(find_profile("h100_x8", folder)))
    assert found.server.gpu.context_bytes == one.gpu.context_bytes + 24 * 9_633_792
    assert (
        scenario_of(CapturedModel(step), "x", load_profile(find_profile("h100_x8", folder)), ()).server == found.server
    )
    (folder / "x.yaml").write_text(text + "gpus: 3\n")
    with pytest.raises(ScenarioError, match="gpus: found 3, expected 2 to simulate each rank, or none"):
        read_scenario(Path("x.yaml"))
    (folder / "x.yaml").write_text(text + "gpus: 2\n")
    both = read_scenario(Path("x.yaml"))
    assert (both.gpus, both.gradients) == (2, None)
    alone, each = run_scenario(found).results, run_scenario(both).results
    assert [row.trace.iteration_s for row in each[:2]] == [alone[0].trace.iteration_s] * 2
    with pytest.raises(ProfileError, match="has one GPU, expected 2 for so many ranks"):
        scenario(folder, "{step: rank.step.json}")
