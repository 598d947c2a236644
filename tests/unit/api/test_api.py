"""What a notebook calls."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import vdnnsim
from tests.refusals import refusal
from tests.unit.api.test_capture import CAPTURE, net
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.api import Captured, LoadedScenario, LoadedStudy
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import CaptureError, DeviceError, InputError, PolicyError, ProfileError, ScenarioError

SIMULATE: Any = vdnnsim.simulate
WHATIF: Any = vdnnsim.whatif
MACHINES: Any = vdnnsim.machines
PARALLEL: Any = vdnnsim.parallel
"""Untyped, for wrong arguments."""


def test_every_object_of_the_api_is_shown_by_a_few_lines() -> None:
    """Also a network of 416 layers, which the representation of a dataclass would print all of."""
    step = vdnnsim.capture(net, torch.ones(8, 3), mode="inference")
    scenario = vdnnsim.load("vgg416")
    study = vdnnsim.load("batch")
    found = vdnnsim.simulate(vdnnsim.capture(net, torch.ones(8, 3)), "rtx_4090")
    plan = vdnnsim.plan(net(), torch.ones(8, 3), hardware="rtx_4090", policy="save_on_cpu")
    assert isinstance(scenario, LoadedScenario)
    for each in (step, scenario, study, found, plan, scenario.under("base(p)")):
        assert repr(each) == str(each)
        assert 0 < len(repr(each)) < 4000
        assert each._repr_html_().startswith("<pre")
    for part in (scenario.scenario, found.result, found.rows[0], plan.predicted, found.pictures[0]):
        assert len(repr(part)) < 4000
    assert "vdnn_dyn" in repr(scenario)
    assert "workload.batch_size" in repr(study)
    assert "12.8 GB/s" in repr(vdnnsim.load("nvlink"))
    assert "6 GiB" in repr(vdnnsim.load("memory"))


def test_an_unknown_policy_names_no_option_of_the_command() -> None:
    with pytest.raises(PolicyError, match="'chekpoint' is not a policy; did you mean 'checkpoint'") as caught:
        vdnnsim.simulate(vdnnsim.capture(net, torch.ones(8, 3)), hardware="rtx_4090", policy="chekpoint")
    assert "--policy-module" not in str(caught.value)


def test_names_of_the_api_and_validation_without_a_gpu() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'captured'"):
        vdnnsim.captured  # noqa: B018
    # A validation without a gpu says so.
    with pytest.raises(DeviceError, match="there is no CUDA device"):
        vdnnsim.validate()
    # Names are completed to the api alone.
    functions = ("capture", "load", "machines", "max_batch", "parallel", "plan", "simulate", "validate", "whatif")
    assert dir(vdnnsim) == sorted(["__version__", "errors", *functions])
    assert dir(vdnnsim.api) == sorted(vdnnsim.api.__all__)


def test_a_captured_model_is_simulated_printed_and_a_table_of_numbers(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    step = vdnnsim.capture(net, torch.ones(8, 3))
    found = vdnnsim.simulate(step, hardware="rtx_4090", policy=["pytorch", "save_on_cpu"])
    table = found.to_pandas()
    assert list(table["policy"]) == ["pytorch(p)", "save_on_cpu(p)"]
    assert list(table["iteration_s"]) == [row.metrics.iteration_s for row in found.rows]
    assert list(table["allocated_bytes"]) == [row.metrics.allocated_bytes for row in found.rows]
    assert (table["allocated_bytes"] <= table["reserved_bytes"]).all()
    assert (table["reserved_bytes"] < table["process_bytes"]).all()
    assert "NVIDIA GeForce RTX 4090" in str(found)
    step.write(tmp_path / "net.step.json")
    again = vdnnsim.simulate(tmp_path / "net.step.json", hardware="rtx_4090")
    assert [row.metrics for row in again.rows] == [found.rows[0].metrics]
    # Results are compared by value.
    alone = vdnnsim.simulate(step, hardware="rtx_4090")
    assert alone == vdnnsim.simulate(step, hardware="rtx_4090") != found
    assert pickle.loads(pickle.dumps(alone)) == alone  # noqa: S301 - made here
    assert found[-1] is found["save_on_cpu"]
    for number in (2, -3):
        with pytest.raises(IndexError, match=f"^{number} .*, which has 2$"):
            found[number]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    step = vdnnsim.capture(net, torch.ones(8, 3))
    with pytest.raises(ProfileError, match="rtx_4091"):
        vdnnsim.simulate(step, hardware="rtx_4091")
    with pytest.raises(PolicyError, match="pytorc"):
        vdnnsim.simulate(step, hardware="rtx_4090", policy="pytorc")
    with pytest.raises(CaptureError, match="memory_model"):
        vdnnsim.simulate(step, hardware="rtx_4090", memory_model="mine")
    (tmp_path / "other.step.json").write_text("{}")
    with pytest.raises(ScenarioError, match="other"):
        vdnnsim.simulate(tmp_path / "other.step.json", hardware="rtx_4090")


def test_a_scenario_is_loaded_by_name_and_asked(tmp_path: Path) -> None:
    """AlexNet fits 12 GiB under both, and keeping all is faster; a V100 is faster yet."""
    scenario = vdnnsim.load("alexnet")
    assert isinstance(scenario, LoadedScenario)
    result = scenario.under("vdnn_all(m)", "base(p)").run()
    assert result.fitting == ("base(p)", "vdnn_all(m)")
    assert result.advice == ()
    assert result.to_pandas()["policy"].tolist() == ["vdnn_all(m)", "base(p)"]
    assert "vdnn_all(m)" in str(result)
    assert "<pre" in result._repr_html_()
    assert "vdnn_all(m)" in result._repr_html_()
    result.write(tmp_path / "out")
    assert (tmp_path / "out" / "results.csv").read_text() == result.to_csv()
    assert 'id="sliders"' in (tmp_path / "out" / "report.html").read_text()
    picture = result.pictures[0]
    picture.write(tmp_path / picture.name)
    assert picture._repr_png_() == (tmp_path / picture.name).read_bytes()
    on_v100 = scenario.on("v100").under("base(p)").run()
    assert on_v100.rows[0].metrics.iteration_s < result.rows[1].metrics.iteration_s
    assert [name for name, _ in on_v100.result.sources] == ["scenarios/alexnet.yaml", "hw_profiles/v100.yaml"]
    with pytest.raises(ProfileError, match="v100"):
        scenario.on("v10")


def test_a_study_is_loaded_and_computed(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(
        "schema_version: 1\n"
        "scenario:\n"
        "  schema_version: 1\n"
        "  workload: {network: lenet, batch_size: 1}\n"
        "  hardware: titan_x_maxwell\n"
        "  policies: [base(p)]\n"
        "axes: {workload.batch_size: [1, 2, 4]}\n"
        "pictures: [{name: speed, title: Speed, kind: lines, x: batch_size, y: samples_per_s, by: policy}]\n"
    )
    study = vdnnsim.load(tmp_path / "s.yaml")
    assert isinstance(study, LoadedStudy)
    results = study.run(tmp_path / "out")
    assert results.to_pandas()["batch_size"].tolist() == [1, 2, 4]
    assert str(results).startswith("s: 3 done, 0 failed, 0 missing\n\nworkload.batch_size  fastest that fits")
    assert [(each.name, each.description) for each in results.pictures] == [("speed.png", "Speed")]


def test_a_captured_step_is_loaded(tmp_path: Path) -> None:
    step = vdnnsim.capture(net, torch.ones(8, 3))
    step.write(tmp_path / "net.step.json")
    read = vdnnsim.load(tmp_path / "net.step.json")
    assert isinstance(read, Captured)
    assert str(read) == str(step)
    assert "saved for backward" in read._repr_html_()
    ranked = vdnnsim.machines(read, "t4", "h200", policy="checkpoint").to_pandas()
    assert set(ranked["machine"]) == {"t4", "h200"}
    assert set(ranked["policy"]) == {"checkpoint(p)"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda _: SIMULATE(net(), "rtx_4090"), "step: found an object of Sequential"),
        (lambda step: SIMULATE(step, None), "hardware: found nothing, expected the name of a profile"),
        (lambda step: SIMULATE(step, "rtx_4090", policy=[]), "policy: found none"),
        (lambda step: SIMULATE(step, "rtx_4090", time_limit="soon"), "time_limit: found 'soon'"),
        (lambda _: vdnnsim.plan(net(), torch.ones(8, 3), hardware="rtx_4090", memory="20"), "memory: found '20'"),
        (vdnnsim.plan, "model: found a Captured, expected the torch.nn.Module that the loop trains, and its inputs"),
        (lambda _: vdnnsim.plan(net(), hardware="rtx_4090"), "inputs are missing, expected a tensor"),
        (lambda step: SIMULATE(step, "rtx_4090")["optimal"], "'optimal' is not one policy of this result"),
        (lambda step: SIMULATE(step, "rtx_4090").write("x.html"), "expected a folder"),
        (lambda _: CAPTURE(net, torch.ones(8, 3), optimizer=3), "optimizer: found an object of int"),
        (lambda _: CAPTURE(net, torch.ones(0, 3)), "inputs: found a batch of 0"),
        (lambda _: CAPTURE(net, torch.ones(8, 3), loss="mse"), "loss: found 'mse', expected a function"),
        (lambda _: MACHINES(net(), "t4"), "step: found an object of Sequential"),
        (lambda _: PARALLEL(net(), "h100_x8"), "step: found an object of Sequential"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(call: Callable[[Captured], object], said: str) -> None:
    step = vdnnsim.capture(net, torch.ones(8, 3), optimizer=torch.optim.SGD)
    assert step.update == "sgd"
    assert said in refusal(InputError, call, step)


def test_questions_about_a_step_and_a_scenario() -> None:
    """Four layers fit an RTX 4090 at any batch that is tried; 100 KiB beside CUDA's context hold nothing."""
    step, scenario = vdnnsim.capture(net, torch.ones(8, 3)), vdnnsim.load("alexnet")
    assert isinstance(scenario, LoadedScenario)
    largest = vdnnsim.max_batch(scenario.under("base(p)"), "rtx_4090").to_pandas()
    assert largest["batch_size"][0] > scenario.scenario.workload.batch_size
    changed = vdnnsim.whatif(step, "gpu.memory=400MiB", hardware="rtx_4090", policy=["pytorch", "save_on_cpu"])
    assert changed.to_pandas()["when"].tolist() == ["before", "after"] * 2
    assert changed.to_pandas()["fits"].tolist() == [True, False] * 2
    for asked in (step, scenario):
        ranked = vdnnsim.machines(asked, "t4", "h200", policy="pytorch")
        assert set(ranked.to_pandas()["policy"]) == {"pytorch(p)"}
        assert "2 of 2 machines hold" in repr(ranked)
    assert "settings: found none" in refusal(InputError, vdnnsim.whatif, step, hardware="rtx_4090")
    assert "settings: gpu.memory: found '8 apples'" in refusal(
        InputError, vdnnsim.whatif, scenario, "gpu.memory=8 apples"
    )
    assert "settings: found a mapping" in refusal(InputError, WHATIF, scenario, {"gpu.memory": "8 GiB"})
    assert "hardware: found nothing" in refusal(InputError, vdnnsim.max_batch, step)


def test_layouts_of_a_captured_model() -> None:
    """All fit; 8 samples for each of two GPUs; a step from a file has no model to be captured as a rank."""
    step = vdnnsim.capture(net, torch.ones(8, 3))
    found = vdnnsim.parallel(step, "rtx_4090", layout=["ddp=4", "fsdp=4"])
    assert set(found.to_pandas()["layout"]) == {"ddp=4", "fsdp=4"}
    assert "2 of 2 layouts fit on 4 GPUs of rtx_4090_x4" in str(found)
    assert "cannot be captured" in refusal(
        InputError, vdnnsim.parallel, vdnnsim.capture(net, torch.ones(8, 3), real=True), "h100_x8"
    )
    parts = vdnnsim.parallel(step, "rtx_4090", layout=["ddp=4,sync=last", "fsdp=4"], accumulate=2).to_pandas()
    assert list(parts["micro_batches"]) == [2, 2]
    assert "accumulate: found 0, expected an integer from 1" in refusal(
        InputError, vdnnsim.parallel, step, "rtx_4090", accumulate=0
    )


def test_results_of_policies_are_found_by_name() -> None:
    found = vdnnsim.simulate(vdnnsim.capture(net, torch.ones(8, 3)), "rtx_4090", policy=["pytorch", "save_on_cpu"])
    assert [each.policy for each in found] == ["pytorch(p)", "save_on_cpu(p)"]
    assert len(found) == 2
    assert repr(found.rows[0]).startswith("<pytorch(p): ")
    assert found["pytorch"] is found["pytorch(p)"] is found.rows[0] is found[0]
    assert found[-1] is found["save_on_cpu"]
    assert "pytorch" in found
    assert found.rows[1] in found
    assert "checkpoint" not in found
    again = pickle.loads(pickle.dumps(found))  # noqa: S301  # what was dumped here
    assert again.rows[0].metrics == found[0].metrics
    assert str(again) == str(found)


def test_a_plan_on_a_cpu_differs_from_a_simulation_by_workspaces_and_the_update() -> None:
    """Six parameters: AdamW has a loop over them on a CPU, and lists of them on a GPU, with cuBLAS's 8 MiB and more."""
    inputs = torch.ones(8, 3)
    made = vdnnsim.plan(net(), inputs, hardware="rtx_4090", policy="pytorch")
    there = vdnnsim.simulate(vdnnsim.capture(net, inputs, optimizer="adamw"), "rtx_4090")[0]

    def update(row: PolicyResult) -> list[str]:
        return [each.name for each in row.trace.plan.workload.step.operations if each.phase is Phase.UPDATE]

    assert not any("foreach" in each for each in update(made.predicted))
    assert all("foreach" in each for each in update(there))
    assert len(update(made.predicted)) > 6 * 6
    workspaces = [dict(each.metrics.peak_by_kind).get(BufferKind.WORKSPACE, 0) for each in (made.predicted, there)]
    assert workspaces[0] == 0
    assert workspaces[1] > 8 * 2**20


@pytest.mark.parametrize(("model", "samples"), [(net(), 8), (nn.Linear(3, 400), 1_000_000)], ids=["MiB", "GiB"])
def test_a_plan_that_does_not_fit_says_what_memory_would_do(model: nn.Module, samples: int) -> None:
    """A plan in as much is made, in a MiB less it is not, be that a few MiB or more than a GiB."""

    def planned(memory: str) -> object:
        inputs = torch.ones(1, 3).expand(samples, 3)
        return vdnnsim.plan(model, inputs, hardware="rtx_4090", memory=memory, policy="pytorch")

    refused, _, enough = refusal(PolicyError, planned, "1 MiB").partition("needs memory='")
    assert "at least the 2.00 MiB that PyTorch reserves" in refused
    assert ", for the operators of this CPU: " in str(planned(enough[:-1])).splitlines()[0]
    less = f"{float(enough.partition(' ')[0]) - 1} MiB"
    assert f"needs memory='{enough}" in refusal(PolicyError, planned, less)
