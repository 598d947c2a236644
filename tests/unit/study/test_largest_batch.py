"""The largest batch on a chain whose memory is worked out by hand: conv1 conv2 conv3 fc loss in float32.

Of one image the input and the maps of the CONV layers take 20 B each, those of fc and the loss 4 B. W and dW take
2 x 4 x (3 x 30 + 6) = 768 B, whatever the batch. Memory-optimal algorithms have no workspace.

none(m)   most in backward of fc: input, conv1 to conv3, the gradients of conv3 and of fc: 104 B per image
base(m)   all maps and two gradients of 20 B: 128 B per image
swap of conv1, just in time: most in backward of conv3: input, conv1, conv2 and the gradients of conv2 and conv3: 100 B
swap of conv2, just in time: most in backward of fc, where it is prefetched: as much as none, 104 B per image

There are 768 + 1039 B: 9 images fit under none (936 B, 1040 B would be needed for 10), 8 under base, 10 under swap.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.nested import changed
from tests.toy import toy_chain
from tests.unit.planning.test_deadline import Clock
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.topology import Node, NodeKind, Sharing, Topology, TopologyLink
from vdnnsim.planning.deadline import Deadline
from vdnnsim.plans.operations import Aggregation
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.swap import StaggeredSwap, Swap
from vdnnsim.policies.vdnn import VdnnDyn
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import LARGEST_BATCH, read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.largest_batch import LargestBatch, largest_batches

ROOT = Path(__file__).parents[3]
LEAST = Algorithms.MEMORY_OPTIMAL
NONE = Resident(algorithms=LEAST)
BASE = Base(algorithms=LEAST)
STAGGERED = StaggeredSwap(algorithms=LEAST)
LINK = TopologyLink("link", 1e9, 1e9, 0.0, Sharing.SPLIT_DUPLEX)
SWITCH = Topology(
    (
        Node("memory", NodeKind.HOST_MEMORY, None, None),
        Node("switch", NodeKind.SWITCH, "memory", replace(LINK, name="uplink")),
        Node("gpu0", NodeKind.GPU, "switch", replace(LINK, name="x0")),
        Node("gpu1", NodeKind.GPU, "switch", replace(LINK, name="x1")),
    )
)


def scenario(*policies: Policy, memory_bytes: int = 768 + 1039, batch_size: int = 3) -> Scenario:
    """The chain on a GPU with so much memory and no granule."""
    shipped = read_scenario(ROOT / "scenarios" / "alexnet.yaml")
    asked = replace(shipped, workload=Workload(toy_chain(3), batch_size), policies=policies)
    return changed(asked, "server.gpu", memory_bytes=memory_bytes, granule_bytes=1)


def test_each_policy_has_its_largest_batch() -> None:
    asked = scenario(NONE, BASE, STAGGERED)

    found = largest_batches(asked)

    assert [(each.policy, each.batch_size) for each in found] == [
        ("none(m)", 9),
        ("base(m)", 8),
        ("staggered_swap(m)", 10),
    ]
    for each, policy in zip(found, asked.policies, strict=True):
        at = changed(asked, "workload", batch_size=each.batch_size)
        (row,) = run_scenario(replace(at, policies=(policy,))).results
        assert row.fits
        assert each.samples_per_s == row.metrics.samples_per_s


def test_refusals_and_policies_with_trials() -> None:
    """Ten images under none: backward of fc finds 200 B wanted of 1039 - 840."""
    (found,) = largest_batches(scenario(NONE))
    assert found.stopped_by == ("fc", "backward data")
    assert found.refusal is not None
    assert "asked for 200 B (gradient of conv3) of GPU memory; 199 B of 1.76 KiB" in found.refusal.explain()
    # Nothing stops the largest batch that a scenario may have.
    (found,) = largest_batches(scenario(NONE, memory_bytes=2**60))
    assert (found.batch_size, found.refusal, found.stopped_by) == (LARGEST_BATCH, None, ("", ""))
    # vDNN_dyn ends with all three X of CONV layers offloaded and no workspace: 12 images (960 B), 13 take 1040 B.
    # Most is then in use in backward of conv3 and of conv2: X, dX, dY and what is prefetched, 80 B per image.
    (found,) = largest_batches(scenario(VdnnDyn()))
    assert found.batch_size == 12


@pytest.mark.parametrize("batch_size", [1, 8, 9, 10, 1000, LARGEST_BATCH])
def test_where_the_search_begins_does_not_matter(batch_size: int) -> None:
    found = largest_batches(scenario(NONE, STAGGERED, batch_size=batch_size))
    assert [each.batch_size for each in found] == [9, 10]


@pytest.mark.parametrize(("free_bytes", "batch_size"), [(768 + 104, 1), (768 + 103, 0), (1, 0), (0, 0), (-1, 0)])
def test_a_network_that_fits_at_no_batch_is_a_result(free_bytes: int, batch_size: int) -> None:
    """Also where a study makes the memory of a card as small as its context, or smaller."""
    asked = scenario(NONE)
    context_bytes = asked.server.gpu.memory_bytes - free_bytes
    (found,) = largest_batches(changed(asked, "server.gpu", context_bytes=context_bytes))
    assert found.batch_size == batch_size
    assert (found.samples_per_s is None) == (batch_size == 0)
    assert found.refusal is not None


def test_a_batch_in_parts_has_no_limit_but_its_parts_have() -> None:
    """A part runs as under none, of which nine images fit; as fast as nine images under it."""
    (none,) = largest_batches(scenario(NONE))
    (found,) = largest_batches(scenario(Accumulate(algorithms=LEAST)))
    assert (found.policy, found.batch_size, found.part_size) == ("accumulate(m)", LARGEST_BATCH, 9)
    assert (found.refusal, found.samples_per_s) == (None, none.samples_per_s)
    (found,) = largest_batches(scenario(Accumulate(algorithms=LEAST), memory_bytes=768 + 103))
    assert (found.policy, found.batch_size, found.part_size) == ("accumulate(m)", 0, None)
    assert found.refusal is not None


@pytest.mark.parametrize("batch_size", [1, 6, 100])
def test_a_batch_in_so_many_parts_grows_by_an_image_in_each(batch_size: int) -> None:
    """Of each of four parts nine images fit, and ten do not: 36, while 37 to 39 have no equal parts."""
    (found,) = largest_batches(scenario(Accumulate(algorithms=LEAST, steps=4), batch_size=batch_size))
    assert (found.batch_size, found.part_size) == (36, None)
    assert found.stopped_by == ("fc", "backward data")


def test_host_memory_limits_the_batch() -> None:
    """Swapping conv1 takes 20 B of the host for each image, and there are 99 B."""
    (found,) = largest_batches(changed(scenario(Swap(algorithms=LEAST)), "server.host", memory_bytes=99))
    assert found.batch_size == 4
    assert found.stopped_by == ("conv2", "forward")
    # GPU 0 swaps conv1 and could do with 100 B per image; GPU 1 swaps conv2 and needs 104 B.
    asked = changed(scenario(STAGGERED), "server", topology=SWITCH)
    together = replace(asked, gpus=2, gradients=Aggregation.CPU)
    (found,) = largest_batches(together)
    assert found.batch_size == 9
    assert found.stopped_by == ("fc", "backward data")
    results = run_scenario(changed(together, "workload", batch_size=9)).results
    assert found.samples_per_s == min(row.metrics.samples_per_s for row in results)


def test_buckets_of_gradients_take_memory_from_the_batch() -> None:
    """384 B of the 1039 B are a second copy of the gradients: 655 B hold 6 images under none, 5 under base.

    Under vDNN_dyn 8 fit, at 80 B each; a batch in parts has parts of 6.
    """
    asked = changed(scenario(NONE, BASE, VdnnDyn(), Accumulate(algorithms=LEAST)), "server", topology=SWITCH)

    found = largest_batches(replace(asked, gpus=2, gradients=Aggregation.DDP))

    assert [each.batch_size for each in found] == [6, 5, 8, LARGEST_BATCH]
    assert found[3].part_size == 6
    assert found[0].refusal is not None
    assert "asked for 140 B (gradient of conv3) of GPU memory; 67 B of 1.76 KiB" in found[0].refusal.explain()


class ByDuration(Policy, frozen=True, kw_only=True):
    """Decides by whether a trial took time."""

    name: ClassVar[str] = "by_duration"
    summary: ClassVar[str] = "keeps everything if a trial took time, or if it took none"

    keeps_if_long: bool

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan network-wide, or layer by layer."""
        resident = NONE.plan(setting)
        is_long = setting.trials.run_trial(resident).cost_s > 0
        return BASE.plan(setting) if is_long == self.keeps_if_long else resident


@pytest.mark.parametrize(("keeps_if_long", "batch_size"), [(True, 8), (False, 9)])
def test_a_policy_may_decide_by_durations_of_trials(keeps_if_long: bool, batch_size: int) -> None:  # noqa: FBT001
    """Trials that are placed take no time; real ones do, and with them the policy does what the other one would."""
    (found,) = largest_batches(scenario(ByDuration(keeps_if_long=keeps_if_long)))
    assert found.batch_size == batch_size


class SlowAt(Policy, frozen=True, kw_only=True):
    """Plans as `none` does, one plan of which takes 600 s."""

    name: ClassVar[str] = "slow"
    summary: ClassVar[str] = "keeps everything, and does not look at its deadline"

    number: int
    tried: list[int]
    clock: Clock

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan; the clock moves on at the plan of the number."""
        self.tried.append(setting.workload.batch_size)
        if len(self.tried) == self.number:
            self.clock.now_s += 600.0
        return NONE.plan(setting)


def limited(*policies: SlowAt | Resident, limit_s: float) -> tuple[LargestBatch, ...]:
    """The largest batches, with a limit on the clock of the first policy."""
    assert isinstance(policies[0], SlowAt)
    return largest_batches(scenario(*policies), Deadline.after(limit_s, policies[0].clock))


def test_a_search_at_its_deadline_returns_its_bounds() -> None:
    """Whichever plan passes it: the largest batch that fitted, that of this plan too, and the least that did not.

    Of 1,000 s the first of two policies has half, and passes it by at most 100 s; the other has 400 s left. The search
    begins at 3 images, and the bounds that it returns lie on either side of the answer, which is 9.
    """
    undisturbed = SlowAt(number=0, tried=[], clock=Clock())
    (answer,) = limited(undisturbed, limit_s=1_000)
    assert (answer.batch_size, answer.untried, answer.late_s) == (9, None, 0.0)
    for number in range(1, len(undisturbed.tried) + 1):
        slow = SlowAt(number=number, tried=[], clock=Clock())
        found, other = limited(slow, NONE, limit_s=1_000)
        assert found.untried is not None
        assert found.batch_size == max((batch for batch in slow.tried if batch <= 9), default=0)
        assert found.batch_size <= 9 < found.untried
        assert found.refusal is None
        assert found.late_s == pytest.approx(100.0)
        assert len(slow.tried) == number or number == len(undisturbed.tried) - 1
        assert other.batch_size == 9


@pytest.mark.parametrize("limit_s", [0, -1])
def test_a_search_without_time_plans_nothing(limit_s: float) -> None:
    slow = SlowAt(number=0, tried=[], clock=Clock())
    (found,) = limited(slow, limit_s=limit_s)
    assert (found.batch_size, found.samples_per_s, found.untried) == (0, None, LARGEST_BATCH + 1)
    assert not slow.tried


def test_searches_with_a_limit_run_in_any_thread() -> None:
    """In four at once, and each finds the answer, which takes some ten plans of a small chain."""
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(largest_batches, scenario(NONE), Deadline.after(1_000)) for _ in range(4)]
    assert [each.result()[0].batch_size for each in asked] == [9] * 4


def test_a_policy_that_plans_differently_each_time_has_bounds_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose own search ends by the clock: only what fitted and what did not is known."""
    (answer,) = largest_batches(scenario(NONE))
    monkeypatch.setattr("vdnnsim.study.largest_batch._hold_against_trials", lambda *_: None)
    (found,) = largest_batches(scenario(NONE), Deadline.after(1_000))
    assert (found.batch_size, found.untried, found.samples_per_s) == (answer.batch_size, answer.batch_size + 1, None)
