from dataclasses import replace
from pathlib import Path

import pytest

from tests.nested import changed
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.policies.registry import known_policies
from vdnnsim.scenario.experiment import run_scenario, simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study import nearby_machines as module
from vdnnsim.study.nearby_machines import nearby

SCENARIO = """\
schema_version: 1
workload: {network: alexnet, batch_size: 128, precision: float32}
hardware: titan_x_maxwell
policies: [base(p), vdnn_all(p), vdnn_dyn]
"""


def test_neighbours_equal_runs_on_those_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """base(p) copies nothing, at any bandwidth; `vdnn_dyn` plans for the memory that there is, won, and keeps its plan.

    With time for no replay what copies nothing is left; several GPUs have no neighbours. Where another policy won,
    `vdnn_dyn` is left out.
    """
    (tmp_path / "s.yaml").write_text(SCENARIO)
    scenario = read_scenario(tmp_path / "s.yaml", known_policies())
    result = run_scenario(scenario)
    found = {(each.policy, each.bandwidth): dict(each.iteration_s) for each in nearby(scenario, result)}
    there = scenario.server.gpu.memory_bytes
    base, everything = (result.results[at].metrics for at in (0, 1))
    assert list(dict.fromkeys(policy for policy, _ in found)) == ["vdnn_dyn", "base(p)", "vdnn_all(p)"]
    assert found["vdnn_dyn", 1.0][there] == result.results[2].metrics.iteration_s
    assert {found["base(p)", factor][there] for factor in (0.5, 1.0, 2.0, 4.0)} == {base.iteration_s}
    assert found["vdnn_all(p)", 1.0][there] == everything.iteration_s
    link = scenario.server.link
    twice = {"h2d_bytes_per_s": 2 * link.h2d_bytes_per_s, "d2h_bytes_per_s": 2 * link.d2h_bytes_per_s}
    again = run_scenario(changed(scenario, "server.link", **twice))
    assert found["vdnn_all(p)", 2.0][there] == again.results[1].metrics.iteration_s
    for policy, metrics in (("base(p)", base), ("vdnn_all(p)", everything)):
        for size, seconds in found[policy, 1.0].items():
            assert (seconds is not None) == (metrics.allocated_bytes <= size)
    monkeypatch.setattr(module, "MOST_OPERATIONS", 0)
    assert {each.policy for each in nearby(scenario, result)} == {"base(p)", "vdnn_dyn"}
    lost = changed(result.results[2], "metrics", iteration_s=9.0)
    beaten = replace(result, results=(*result.results[:2], lost))
    assert {each.policy for each in nearby(scenario, beaten)} == {"base(p)"}
    assert nearby(replace(scenario, gpus=2), result) == ()


@pytest.mark.parametrize("model", [MemoryModel.PYTORCH, AllocatorSettings(garbage_collection_threshold=0.3)])
def test_each_capacity_is_placed_for_itself(tmp_path: Path, model: MemoryChoice) -> None:
    """As a run on that memory places it: what fits into less need not fit into more where an allocator collects."""
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.replace("alexnet, batch_size: 128", "tiny_residual, batch_size: 640"))
    read = read_scenario(path, known_policies())
    (policy,) = (each for each in read.policies if each.label == "vdnn_all(p)")

    def on(memory_bytes: int) -> Scenario:
        return changed(replace(read, memory_model=model, policies=(policy,)), "server.gpu", memory_bytes=memory_bytes)

    scenario = on(2**30)
    scenario = on(read.server.gpu.context_bytes + run_scenario(scenario).results[0].metrics.allocated_bytes)
    found = nearby(scenario, run_scenario(scenario))[0].iteration_s

    assert {seconds is None for _, seconds in found} == {True, False}
    for size, seconds in found:
        assert (seconds is None) == bool(simulator_of(on(size)).planned(policy).refusals)
