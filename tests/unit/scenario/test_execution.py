"""The keys `execution`, `precision` and `element_type` of a scenario."""

from pathlib import Path

import pytest

from tests.captured_steps import chain
from tests.refusals import refusal
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.engine.host import Execution
from vdnnsim.errors import InputError, ScenarioError
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.report.findings import caption
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import ElementType, Precision

STEP = "{step: chain.step.json}"
NETWORK = "{network: alexnet, batch_size: 1}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_captured_step(chain(4), tmp_path / "chain.step.json")
    return tmp_path


def scenario(folder: Path, execution: str, workload: str = STEP, policy: str = "pytorch") -> Scenario:
    (folder / "x.yaml").write_text(
        f"schema_version: 1\nworkload: {workload}\nhardware: a100_40gb\npolicies: [{policy}]\nexecution: {execution}\n"
    )
    return read_scenario(Path("x.yaml"))


def test_a_host_bound_step_is_faster_without_a_framework(folder: Path) -> None:
    """17 kernels of a few bytes take what their host takes: a framework most, compiled code less, a graph least.

    A view is no kernel, so eagerly that is 17 calls of 5 us, 8 operators of forward and update of 24.4 us, and 8 of
    backward of 77 us: of the gradients of the loss and of 7 operators of forward. A convolution and its backward, which
    computes one gradient, are calls of cuDNN, 28.2 us more of each. Compiled 2 of the 17 are no call.
    """
    found = {each: run_scenario(scenario(folder, each.value)).results[0].trace.host_issue_s for each in Execution}
    assert found[Execution.EAGER] == pytest.approx(17 * 5e-6 + 8 * 24.4e-6 + 8 * 77e-6 + 2 * 28.2e-6)
    assert found[Execution.COMPILED] == pytest.approx((17 - 2) * 5e-6)
    assert found[Execution.CUDA_GRAPHS] == pytest.approx(5e-6)


def test_the_way_of_execution_is_in_the_report(folder: Path) -> None:
    compiled = scenario(folder, "compiled")
    assert "training, compiled, on " in caption(compiled)
    assert "training on " in caption(scenario(folder, "eager"))
    assert compiled.captured is not None
    assert compiled.captured.base.notes[-1].startswith("compiled: 4 of 18 operators run as 2 kernels")


@pytest.mark.parametrize(
    ("execution", "workload", "policy", "message"),
    [
        (*("jit", STEP, "pytorch"), "'jit' is not a way of execution; expected one of eager, cuda_graphs, compiled"),
        (*("compiled", NETWORK, "pytorch"), "expected a captured model, `workload: {step: ...}`"),
        (*("cuda_graphs", NETWORK, "vdnn_all(p)"), "which no CUDA graph records; expected 'eager'"),
    ],
)
def test_impossible_executions_are_refused(
    folder: Path, execution: str, workload: str, policy: str, message: str
) -> None:
    said = refusal(InputError, lambda: run_scenario(scenario(folder, execution, workload, policy)))
    assert said.endswith(message)
    assert "execution: " in said


def test_cudnn_benchmark_is_for_captured_models(folder: Path) -> None:
    text = "hardware: a100_40gb\npolicies: [pytorch]\nmemory_model: {pytorch: {cudnn_benchmark: true}}\n"
    for name, workload in (("step", STEP), ("network", NETWORK)):
        (folder / f"{name}.yaml").write_text(f"schema_version: 1\nworkload: {workload}\n{text}")
    assert read_scenario(Path("step.yaml")).memory_model == AllocatorSettings(cudnn_benchmark=True)
    with pytest.raises(
        InputError, match=r"memory_model: cudnn_benchmark: found a built network, .* expected a captured model"
    ):
        read_scenario(Path("network.yaml"))


def test_a_network_that_we_build_may_be_a_cuda_graph(folder: Path) -> None:
    """And nothing but its host changes: kernels one after the other, after one call."""
    asked = scenario(folder, "cuda_graphs", NETWORK)
    machine = Simulator.of(asked.workload, asked.server, asked.memory_model, asked.pinned_memory)
    eager = machine.run(asked.policies[0], machine.oracle())[0]
    graph = run_scenario(asked).results[0]
    assert graph.trace.host_issue_s == asked.server.host.issue_s
    assert graph.metrics.iteration_s < eager.metrics.iteration_s
    assert graph.metrics.allocated_bytes == eager.metrics.allocated_bytes


def lenet(folder: Path, workload: str, hardware: str = "titan_x_maxwell") -> Scenario:
    path = folder / "x.yaml"
    path.write_text(
        f"schema_version: 1\nworkload: {{network: lenet, batch_size: 4, {workload}}}\n"
        f"hardware: {hardware}\npolicies: [pytorch(p)]\n",
        encoding="utf-8",
    )
    return read_scenario(path)


@pytest.mark.parametrize(
    ("precision", "weights", "autocast"),
    [
        ("float32", ElementType.FLOAT32, None),
        ("bfloat16", ElementType.BFLOAT16, None),
        ("float16", ElementType.FLOAT16, None),
        ("amp_bfloat16", ElementType.FLOAT32, ElementType.BFLOAT16),
        ("amp_float16", ElementType.FLOAT32, ElementType.FLOAT16),
    ],
)
def test_a_precision_decides_storage_and_casts(
    tmp_path: Path, precision: str, weights: ElementType, autocast: ElementType | None
) -> None:
    """Casts are layers of mixed precision alone."""
    workload = lenet(tmp_path, f"precision: {precision}").workload
    assert workload.precision is Precision(precision)
    assert (workload.element_type, workload.graph.autocast) == (weights, autocast)
    assert any(layer.kind is LayerKind.CAST for layer in workload.graph.layers) == (autocast is not None)


def test_tf32_stores_float32(tmp_path: Path) -> None:
    """The table of this profile was measured in TF32; it states no peak of it."""
    workload = lenet(tmp_path, "precision: tf32", "a100_40gb").workload
    assert (workload.precision, workload.element_type) == (Precision.TF32, ElementType.TF32)
    assert workload.map_bytes(0) == lenet(tmp_path, "precision: float32").workload.map_bytes(0)


@pytest.mark.parametrize("each", ["float32", "float16", "bfloat16"])
def test_an_element_type_is_still_read(tmp_path: Path, each: str) -> None:
    assert lenet(tmp_path, f"element_type: {each}").workload == lenet(tmp_path, f"precision: {each}").workload
    assert lenet(tmp_path, "mode: training").workload.precision is Precision.FLOAT32, "where neither is stated"


@pytest.mark.parametrize(
    ("workload", "hardware", "place", "fragment"),
    [
        ("precision: float32, element_type: float32", "titan_x_maxwell", "element_type", "beside 'precision'"),
        ("precision: amp_float", "titan_x_maxwell", "precision", "did you mean 'amp_float16'? (float32, tf32, "),
        ("element_type: amp_float16", "titan_x_maxwell", "element_type", "'float16'? (float32, tf32, float16,"),
        ("precision: tf32", "titan_x_maxwell", "precision", "titan_x_maxwell.yaml states no gpu.peak for 'tf32'"),
        # Its kernels were measured, but not in TF32.
        ("precision: tf32", "h200_without_tf32", "precision", "states no gpu.peak for 'tf32'"),
        ("element_type: tf32", "titan_x_maxwell", "element_type", "states no gpu.peak for 'tf32'"),
        ("precision: bfloat16", "k40m", "precision", "states no gpu.peak for 'bfloat16', expected one of float32"),
    ],
)
def test_a_wrong_precision_is_refused(tmp_path: Path, workload: str, hardware: str, place: str, fragment: str) -> None:
    said = refusal(ScenarioError, lenet, tmp_path, workload, hardware)
    assert said.startswith(f"{tmp_path}/x.yaml: workload.{place}: ")
    assert fragment in said


def test_a_card_without_a_narrow_type_stands_in_with_float32_and_says_so(tmp_path: Path) -> None:
    """The Tesla K40m computes in float32 alone; the Titan X states a rate of bfloat16."""
    without, with_it = (
        run_scenario(lenet(tmp_path, "precision: amp_bfloat16", hardware)) for hardware in ("k40m", "titan_x_maxwell")
    )
    assert without.kernels.gap == "k40m states no gpu.peak for bfloat16; the rate of float32 stands in"
    assert with_it.kernels.gap == ""
