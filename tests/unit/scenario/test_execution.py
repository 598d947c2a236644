"""The key `execution` of a scenario: eager, as a CUDA graph, compiled."""

from pathlib import Path

import pytest

from tests.captured_steps import chain
from tests.refusals import refusal
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.engine.host import Execution
from vdnnsim.errors import InputError
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.report.findings import caption
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator

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
