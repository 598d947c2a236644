"""Points that share models, plans and replays have the results of points alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from tests.machines import shipped_server
from tests.nested import changed
from tests.toy import ROOT
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import DecidedBy, Policy, Setting
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.points.compute import Outcome, PointRunner, computed, failed
from vdnnsim.study.points.resolve import Resolver, Value
from vdnnsim.units import Precision

SCENARIO = """
schema_version: 1
workload: {network: tiny_residual, batch_size: 8, element_type: float32}
hardware: HARDWARE
policies: [base(p)]
"""
POLICIES = ("base(p)", "none", "vdnn_all(m)", "vdnn_conv(p)", "vdnn_dyn", "superneurons", "memonger", "tensorflow")
MIB = 2**20


class Listed(Base, frozen=True, kw_only=True):
    """A user's, of which there is no hash."""

    name: ClassVar[str] = "listed"
    what: list[int] = []  # noqa: RUF012  # each gets its own


def scenario(folder: Path, hardware: str = "titan_x_maxwell", precision: str = "float32") -> Scenario:
    path = folder / "tiny.yaml"
    text = SCENARIO.replace("element_type: float32", f"precision: {precision}")
    path.write_text(text.replace("HARDWARE", str(ROOT / "hw_profiles" / f"{hardware}.yaml")))
    return read_scenario(path)


def alone(point: Scenario) -> Outcome:
    """Run a scenario as `vdnnsim run` does; of several GPUs the row of the one that is done last."""
    simulator = simulator_of(point)
    oracle = simulator.oracle()
    rows = simulator.run(point.policies[0], oracle)
    slowest: PolicyResult = max(rows, key=lambda row: row.metrics.iteration_s)
    refusal = next((row.refusal.explain() for row in rows if row.refusal is not None), "")
    return computed(slowest.metrics, oracle, slowest.algorithms, refusal, point.gpus)


def grid(policy: Policy) -> Iterator[dict[str, Value]]:
    """Memory that fits and memory that does not, and links, under every memory model that places online or not."""
    for bandwidth in (1e9, 16e9):
        for memory in (1 * MIB, 3 * MIB, 2**30):
            for model in ("ideal", "best_fit"):
                yield {"policy": policy, "link.bandwidth": bandwidth, "gpu.memory": memory, "memory_model": model}


@pytest.mark.parametrize("label", POLICIES)
def test_points_that_share_have_the_results_of_points_alone(label: str, tmp_path: Path) -> None:
    base = scenario(tmp_path)
    resolver, runner = Resolver(base, tmp_path), PointRunner()

    outcomes = {}
    for point in grid(resolve_policy(label, known_policies())):
        resolved = resolver.resolve(point)
        assert resolved.scenario is not None
        try:
            expected = alone(resolved.scenario)
        except Exception as refused:  # noqa: BLE001  # a policy that has no plan
            expected = failed(str(refused))
        outcomes[resolved.key] = runner.run(resolved)
        assert outcomes[resolved.key] == expected

    assert len(outcomes) == 12
    assert len({outcome[2] for outcome in outcomes.values()}) > 1 or label != "base(p)"


@pytest.mark.parametrize("gpus", [1, 2])
def test_several_gpus(gpus: int, tmp_path: Path) -> None:
    resolver, runner = Resolver(scenario(tmp_path, "p100_x2"), tmp_path), PointRunner()
    policy = resolve_policy("vdnn_all(p)", known_policies())
    seen = set()
    for bandwidth in (1e9, 8e9):
        point = resolver.resolve({"policy": policy, "gpus": gpus, "link.bandwidth": bandwidth})
        assert point.scenario is not None

        outcome = runner.run(point)

        assert outcome == alone(point.scenario)
        seen.add(outcome[3])
    assert len(seen) == 2


def test_a_compute_speed_divides_the_time_of_every_kernel(tmp_path: Path) -> None:
    """base(p) copies nothing, so its iteration is its kernels and the first issue; twice as fast halves the kernels."""
    base = changed(scenario(tmp_path), "server.host", issue_s=0.0)
    resolver, runner = Resolver(base, tmp_path), PointRunner()
    once, twice = (
        runner.run(resolver.resolve({"policy": base.policies[0], "gpu.compute_speed": speed})) for speed in (1.0, 2.0)
    )
    assert twice[3] == pytest.approx(float(str(once[3])) / 2, rel=1e-12)


def test_an_error_of_a_point_is_its_outcome(tmp_path: Path) -> None:
    class Broken(Base, frozen=True, kw_only=True):
        name: ClassVar[str] = "broken"

        def plan(self, setting: Setting) -> TrainingPlan:
            raise ZeroDivisionError(f"of {setting.workload.batch_size}")

    resolver, runner = Resolver(scenario(tmp_path), tmp_path), PointRunner()

    assert runner.run(resolver.resolve({"policy": Broken()})) == failed("broken(p): plan: ZeroDivisionError: of 8")
    two = resolver.resolve({"policy": Base(), "gpus": 2})
    assert runner.run(two) == failed("titan_x_maxwell: found 2 GPUs, but it has 1")


@pytest.mark.parametrize(("declared", "plans"), [("costs", 1), ("memory", 2), ("trials", 4)])
def test_points_share_plans_by_what_the_policy_declares(declared: str, plans: int, tmp_path: Path) -> None:
    """Over two sizes of memory and two links: one plan, one for each memory, or one for each point."""
    settings: list[Setting] = []

    class Counted(Base, frozen=True, kw_only=True):
        name: ClassVar[str] = "counted"
        decided_by: ClassVar[DecidedBy] = DecidedBy(declared)

        def plan(self, setting: Setting) -> TrainingPlan:
            settings.append(setting)
            return Base().plan(setting)

    resolver, runner = Resolver(scenario(tmp_path), tmp_path), PointRunner()
    for memory in (2**29, 2**30):
        for bandwidth in (1e9, 16e9):
            point = resolver.resolve({"policy": Counted(), "gpu.memory": memory, "link.bandwidth": bandwidth})
            assert runner.run(point)[0] == ""

    assert len(settings) == plans


def test_the_key_depends_on_all_that_decides_the_result(tmp_path: Path) -> None:
    """12 GiB and 12.8 GB/s are what the machine has; any other figure, workload or policy is another point."""
    resolver = Resolver(scenario(tmp_path), tmp_path)
    policies = [resolve_policy(label, known_policies()) for label in ("base(p)", "base(m)")]

    def key(**values: Value) -> str:
        point = {"policy": policies[0], **values}
        assert resolver.key(point) == resolver.resolve(point).key
        return resolver.key(point)

    same = {key(), key(**{"gpu.memory": 12 * 2**30}), key(**{"link.bandwidth": 12.8e9}), key(gpus=1)}
    others = {
        key(**{"gpu.memory": 2**30}),
        key(**{"link.h2d": 1e9}),
        key(**{"link.latency": 0.0}),
        key(**{"host.memory": 2**30}),
        key(**{"host.pin_latency": 0.0}),
        key(**{"gpu.peak.float32": 1e12}),
        key(**{"cost_model.kernel_overhead_s": 0.0}),
        key(**{"gpu.compute_speed": 2.0}),
        key(**{"workload.batch_size": 9}),
        key(**{"workload.network": "tiny_linear"}),
        key(**{"workload.precision": "float16"}),
        key(**{"workload.precision": "amp_bfloat16"}),
        key(**{"workload.precision": "amp_float16"}),
        key(**{"workload.optimizer": "adam"}),
        key(memory_model="planned"),
        key(memory_model="pytorch(max_split_size_mb:64)"),
        key(pinned_memory="per_offload"),
        key(execution="cuda_graphs"),
        key(hardware="h200"),
        key(gpus=2),
        key(policy=policies[1]),
        key(policy=Listed()),
    }
    assert len(same) == 1
    assert len(others | same) == 23


@pytest.mark.parametrize("stated", ["float32", "amp_float16"])
def test_the_precision_of_a_point_replaces_that_of_the_scenario(tmp_path: Path, stated: str) -> None:
    """As a scenario that states it does: casts come and go with it, under whatever network."""
    base = scenario(tmp_path, precision=stated)
    resolver = Resolver(base, tmp_path)

    def workload(**values: Value) -> Workload:
        found = resolver.resolve({"policy": Base(), **values}).scenario
        assert found is not None
        return found.workload

    assert workload() == base.workload
    for precision in (each.value for each in Precision if each is not Precision.TF32):
        expected = scenario(tmp_path, precision=precision).workload
        assert workload(**{"workload.precision": precision}) == expected
    for element_type in ("float32", "bfloat16"):
        found = workload(**{"workload.element_type": element_type})
        assert found == scenario(tmp_path, precision=element_type).workload
    other = workload(**{"workload.network": "tiny_linear"})
    assert other == Workload.in_precision(tiny_linear(), 8, Precision(stated))


def test_tf32_is_for_a_machine_that_states_or_measured_it(tmp_path: Path) -> None:
    resolver = Resolver(scenario(tmp_path), tmp_path)

    def error(hardware: str) -> str:
        return resolver.resolve({"policy": Base(), "hardware": hardware, "workload.precision": "tf32"}).error

    assert error("a100_40gb") == ""
    assert error("titan_x_maxwell").startswith("titan_x_maxwell states no gpu.peak for 'tf32', expected one of ")


def test_a_peak_can_be_set_beside_a_kernel_table(tmp_path: Path) -> None:
    resolver = Resolver(scenario(tmp_path), tmp_path)
    found = resolver.resolve({"policy": Base(), "hardware": "h200", "gpu.peak.float32": 1e12})
    assert shipped_server("h200").kernels is not None
    assert found.error == ""
