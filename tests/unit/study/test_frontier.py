"""The frontier of the chain of `test_largest_batch`, three images, under a planner of two plans.

Of three images W and dW take 768 B, none(m) 3 x 104 B more, 1080 B in all, and base(m) 3 x 128 B more, 1152 B. The
planner keeps everything where it may, and offloads all maps where it may not.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.captured_steps import chain
from tests.command_line import SMALL, csv_rows, vdnnsim
from tests.machines import shipped_profile
from tests.nested import changed
from tests.unit.scenario.test_compare import Picky
from tests.unit.study.test_largest_batch import BASE, LEAST, NONE, scenario
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.errors import PolicyError
from vdnnsim.plans.certificate import BoundClass, Certificate
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Policy, Setting
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.swap import StaggeredSwap
from vdnnsim.policies.vdnn import VdnnAll, VdnnDyn
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.frontier import find_frontier

MOVE = VdnnAll(algorithms=LEAST)
BOUND_S = 1e-9


class Planner(Policy, frozen=True, kw_only=True):
    """Keeps everything from 1080 B on; but between 1100 and 1200 B it is mistaken and offloads."""

    name: ClassVar[str] = "planner"
    summary: ClassVar[str] = "one of two plans"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        nbytes = setting.limits.device_bytes
        plan = (NONE if nbytes >= 1080 and not 1100 <= nbytes < 1200 else MOVE).plan(setting)
        return replace(plan, policy=self.label, certificate=Certificate(BOUND_S, BoundClass.OFFLOAD))


class Steps:
    def __init__(self) -> None:
        self.expected = 0
        self.names: list[str] = []

    def expect(self, count: int) -> None:
        self.expected = count + len(self.names)

    def done(self, name: str) -> None:
        self.names.append(name)


def run_at(asked: Scenario, policy: Policy, memory_bytes: int) -> tuple[bool, float]:
    """Whether a policy fits into so much memory, and how long it takes."""
    asked = changed(asked, "server.gpu", memory_bytes=memory_bytes)
    (row,) = run_scenario(replace(asked, policies=(policy,))).results
    return row.fits, row.metrics.iteration_s


def test_the_frontier_of_two_plans() -> None:
    """From what offloading needs to the 1080 B of none(m), beyond which nothing is faster; both times those of runs."""
    asked, steps = scenario(BASE, VdnnDyn(), Picky(), Planner(), memory_bytes=1070), Steps()

    found = find_frontier(asked, Planner(), 6, steps)

    first, last = found.points[0], found.points[-1]
    assert last.capacity_bytes == 1080
    assert 1070 in [each.capacity_bytes for each in found.points]
    assert len(found.points) == 6
    assert run_at(asked, MOVE, first.capacity_bytes) == (True, first.plan.iteration_s)
    assert not run_at(asked, MOVE, first.capacity_bytes - 1)[0]
    assert run_at(asked, NONE, 1080) == (True, last.plan.iteration_s)
    assert first.plan.iteration_s > last.plan.iteration_s
    assert first.plan.offloaded_bytes > last.plan.offloaded_bytes == 0
    assert all(each.bound is not None and each.bound.seconds == BOUND_S for each in found.points)
    base, dynamic = found.policies
    assert base.times == ((1152, run_at(asked, BASE, 1152)[1]),)
    assert {nbytes for nbytes, _ in dynamic.times} <= {each.capacity_bytes for each in found.points}
    assert [(each.policy, each.reason) for each in found.declined] == [("picky", "expects a network other than toy")]
    assert steps.names[0] == "planner"
    assert len(steps.names) <= steps.expected


def test_a_machine_with_more_memory_than_needed_changes_no_capacity() -> None:
    """Nor does one with less than the least."""
    for memory_bytes in (10, 5000):
        found = find_frontier(scenario(memory_bytes=memory_bytes), Planner(), 4, Steps())
        capacities = [each.capacity_bytes for each in found.points]
        assert len(capacities) == 4
        assert memory_bytes not in capacities


def test_a_policy_that_fits_nowhere_is_declined_with_its_reason() -> None:
    """All maps of base(m) stay, so only host memory can be short; vdnn_all(m) has none to offload to."""
    asked = changed(scenario(MOVE, memory_bytes=1070), "server.host", memory_bytes=1)
    found = find_frontier(asked, NONE, 3, Steps())
    (declined,) = found.declined
    assert declined.policy == "vdnn_all(m)"
    assert "host memory" in declined.reason

    with pytest.raises(PolicyError, match=r"vdnn_all\(m\): fits into no memory: .* of pinned host memory"):
        find_frontier(asked, MOVE, 3, Steps())


def test_no_policy_is_below_the_bound_and_more_memory_is_never_slower() -> None:
    """Of those that recompute nothing, at every capacity into which they fit, with the shipped planner."""
    others = (BASE, NONE, MOVE, VdnnDyn(), StaggeredSwap(algorithms=LEAST))
    found = find_frontier(scenario(*others, memory_bytes=1070), Optimal(), 8, Steps())
    times = [each.plan.iteration_s for each in found.points]
    bounds = [each.bound.seconds for each in found.points if each.bound is not None]
    assert times == sorted(times, reverse=True)
    assert bounds == sorted(bounds, reverse=True)
    for point, bound_s in zip(found.points, bounds, strict=True):
        assert point.plan.iteration_s >= bound_s
        best = found.best_policy(point.capacity_bytes)
        assert best is None or best[1] >= bound_s


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def test_the_command_prints_a_table_and_writes_four_files(folder: Path) -> None:
    arguments = ("small.yaml", "--capacities", "3", "--csv", "table.csv")
    done = vdnnsim("frontier", *arguments, folder=folder)

    assert "wrote 4 files to reports/small/" in done.stderr
    assert "holds for schedules of this order" in done.stdout
    written = folder / "reports" / "small"
    rows = csv_rows(folder / "table.csv")
    assert (written / "frontier.csv").read_bytes() == (folder / "table.csv").read_bytes()
    assert list(dict.fromkeys(row["policy"] for row in rows)) == ["optimal", "base(p)", "vdnn_all(m)"]
    manifest = json.loads((written / "frontier.json").read_text())
    assert [row["capacity_bytes"] for row in manifest["frontier"]] == [int(row["capacity_bytes"]) for row in rows]
    assert manifest["frontier"][-1]["bound_s"] is None
    assert manifest["files"] == ["frontier.csv", "frontier.json", "frontier.md", "frontier.png"]
    assert (written / "frontier.png").read_bytes().startswith(b"\x89PNG")
    page = (written / "frontier.md").read_text()
    assert "](frontier.png)" in page
    assert "gap: " in page
    vdnnsim("frontier", *arguments, folder=folder)


def test_foreign_files_are_not_overwritten(folder: Path) -> None:
    (folder / "frontier.md").write_text("mine")
    done = vdnnsim("frontier", "small.yaml", "--out", ".", folder=folder, status=1)
    assert "frontier.md: was not written by an earlier frontier" in done.stderr
    assert (folder / "frontier.md").read_text() == "mine"


def test_the_planner_is_that_of_the_scenario(folder: Path) -> None:
    (folder / "small.yaml").write_text(SMALL.replace("base(p), vdnn_all(m)", "{policy: optimal, chunk: whole}"))
    arguments = ("small.yaml", "--capacities", "3", "--time-limit", "5 s", "--csv", "table.csv")
    vdnnsim("frontier", *arguments, folder=folder)
    assert {row["policy"] for row in csv_rows(folder / "table.csv")} == {"optimal(chunk=whole, time_limit=5 s)"}


class Beginning(Planner, frozen=True, kw_only=True):
    """Of any bound; `begun` has what its searches begin with."""

    decided_by: ClassVar[DecidedBy] = DecidedBy.TRIALS
    begun: ClassVar[list[TrainingPlan | None]] = []
    bound_s: float

    def plan(self, setting: Setting) -> TrainingPlan:
        self.begun.append(setting.known)
        return replace(super().plan(setting), certificate=Certificate(self.bound_s, BoundClass.OFFLOAD))


@pytest.mark.parametrize(("bound_s", "starts"), [(BOUND_S, 0), (1e9, 1)])
def test_a_search_begins_with_a_plan_for_less_memory_that_is_near_its_bound(bound_s: float, starts: int) -> None:
    """The last of four capacities is searched before, then the first, which has none before it, and the third.

    Both offload all, so that nothing else is searched for in the second.
    """
    Beginning.begun.clear()
    found = find_frontier(scenario(), Beginning(bound_s=bound_s), 4, Steps())
    assert [each is not None for each in Beginning.begun] == [False, False, False, starts > 0]
    first, second, third, _ = found.points
    assert first.plan == second.plan
    assert second.bound == third.bound


def test_a_planner_that_reserves_ahead_goes_from_its_least_plan_to_what_it_uses() -> None:
    """Not to the unlimited memory that it would reserve: 5 % more than lives at most, beside the context."""
    profile = shipped_profile("rtx_4090")
    asked = scenario_of(CapturedModel(chain(2_000_000)), "x", profile, (Optimal(),))
    found = find_frontier(asked, Optimal(), 3, Steps())
    most = run_scenario(asked).results[0].metrics.allocated_bytes
    assert found.points[-1].capacity_bytes == int(1.05 * most) + profile.server.gpu.context_bytes
    assert found.points[0].capacity_bytes < found.points[-1].capacity_bytes
    assert found.points[-1].plan.offloaded_bytes == 0


def test_a_rank_has_room_for_all_at_the_last_capacity() -> None:
    """What the communication stream gathers lies in segments of its own; the plan takes no longer than the loop."""
    step = msgspec.structs.replace(sharded(), ranks=2, parallel="fsdp=2")
    scenario = scenario_of(CapturedModel(step), "sharded", shipped_profile("h100_x8"), (PyTorch(),))

    frontier = find_frontier(scenario, Optimal(), 3, Steps())

    (loop,) = frontier.policies
    capacity_bytes, loop_s = loop.times[-1]
    assert frontier.points[-1].capacity_bytes >= capacity_bytes
    assert frontier.points[-1].plan.iteration_s <= loop_s
