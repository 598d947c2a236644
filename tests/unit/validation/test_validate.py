"""A whole validation on a device that answers with the simulator's replay."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from tests.toy import TOY_SERVER
from tests.unit.validation.fake_device import MAXWELL, FakeExecutor, FakeLaboratory
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import DeviceError, ExecutionRefused, PolicyError
from vdnnsim.hardware.server import MeasuredKernels
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.units import GIB
from vdnnsim.validation.method import FREE_GPU, PACED_CPU, Method, Task
from vdnnsim.validation.row import Outcome, Row, requirements
from vdnnsim.validation.validate import differences, validation_rows

TYPES = known_policies()
PAPER = "base(m) base(p) vdnn_all(m) vdnn_all(p) vdnn_conv(m) vdnn_conv(p) vdnn_dyn page_migration".split()


def rows_of(lab: FakeLaboratory, *policies: str) -> tuple[Row, ...]:
    return validation_rows(
        lab, MAXWELL, lab.method, [resolve_policy(name, TYPES) for name in policies], lambda _name: None
    )


def method(base: Method, *tasks: Task) -> Method:
    return replace(base, tasks=tasks or (Task("alexnet", 16),))


@pytest.mark.parametrize(
    ("base", "names"), [(PACED_CPU, PAPER), (FREE_GPU, ("base(m)", "base(p)", "vdnn_all(m)", "page_migration"))]
)
def test_a_device_that_does_as_simulated_holds_everything(base: Method, names: Sequence[str]) -> None:
    """With 60 % of what base(p) asks for, that one does not fit, and page migration would migrate."""
    lab = FakeLaboratory(method(base, Task("alexnet", 16), Task("googlenet", 8, memory_share=0.6)))
    done: list[str] = []
    policies = [resolve_policy(name, TYPES) for name in names]
    rows = validation_rows(lab, MAXWELL, lab.method, policies, done.append)
    assert all(each.holds for each in requirements(rows, lab.method.tolerance))
    assert done[0] == "alexnet (16), base(m)"
    assert len(done) == len(rows) == 2 * len(names)
    outcomes = {(row.task.network, row.policy): row.outcome for row in rows}
    assert outcomes["googlenet", "base(p)"] is Outcome.DOES_NOT_FIT
    assert outcomes["googlenet", "page_migration(p)"] is Outcome.REFUSED
    assert outcomes["googlenet", "vdnn_all(m)"] is Outcome.RAN
    assert all((row.raw is None) == (base is FREE_GPU) for row in rows if row.outcome is Outcome.RAN)


def test_on_a_gpu_the_median_of_the_runs_behind_the_warm_up_counts() -> None:
    """The warm-up is twice as slow and does not count; of 0, 4 and then 2 % the median is 2 %.

    An iteration of 19.6 ms is repeated until its runs took 0.25 s: 12 take 19.6 (1 + 1.04 + 10 x 1.02) = 240 ms.
    """
    lab = FakeLaboratory(method(FREE_GPU), slowness=[1.0, 0.0, 0.04, 0.02])
    (row,) = rows_of(lab, "base(p)")
    assert len(row.runs_s) == 13
    assert row.time_error == pytest.approx(1 / 1.02 - 1)
    assert row.spread == pytest.approx(0.04)


def test_an_interrupted_validation_has_the_rows_that_are_done() -> None:
    lab = FakeLaboratory(method(FREE_GPU), slowness=[0.0])

    def done(label: str) -> None:
        if len(ended := [*labels, label]) == 3:
            raise KeyboardInterrupt
        labels[:] = ended

    labels: list[str] = []
    policies = [resolve_policy(name, TYPES) for name in PAPER]
    rows = validation_rows(lab, MAXWELL, lab.method, policies, done)
    assert len(labels) == 2
    assert [row.policy for row in rows] == [each.label for each in policies[:3]]


def test_given_durations_are_tried_again_until_a_run_is_within_the_tolerance() -> None:
    """Two runs without given durations, two misses, then one within 5 %: at twice the durations."""
    lab = FakeLaboratory(method(PACED_CPU), slowness=[0.5, 0.5, 0.2, 0.1, 0.04, 9.0])
    (row,) = rows_of(lab, "base(p)")
    assert len(row.runs_s) == 3
    assert row.time_error == pytest.approx(1 / 1.04 - 1)
    assert row.runs_s[2] / row.runs_s[1] == pytest.approx(2 * 1.04 / 1.1, rel=1e-3)
    assert row.raw is not None
    assert row.raw.measured_s == pytest.approx(1.5 * row.raw.simulated_s)
    # Closest run counts where all miss.
    lab = FakeLaboratory(method(PACED_CPU), slowness=[0.0, 0.0, 0.3, 0.1, 0.2])
    (row,) = rows_of(lab, "base(p)")
    assert row.time_error == pytest.approx(1 / 1.1 - 1)
    assert not all(each.holds for each in requirements([row], lab.method.tolerance))


def test_out_of_memory_ends_only_its_row() -> None:
    lab = FakeLaboratory(method(FREE_GPU), out_of_memory_under="base(m)")
    lost, ran = rows_of(lab, "base(m)", "base(p)")
    assert (lost.outcome, lost.note) == (Outcome.OUT_OF_MEMORY, "out of memory in the middle")
    assert ran.outcome is Outcome.RAN


def test_a_device_with_less_room_than_the_profile_says_is_a_difference() -> None:
    """base(p) of vgg16 (64) takes 8 GiB of the profile's 12; this device has 4."""
    lab = FakeLaboratory(method(FREE_GPU, Task("vgg16", 64)), capacity_bytes=4 * GIB)
    (row,) = rows_of(lab, "base(p)")
    assert (row.outcome, "asked for" in row.note) == (Outcome.OUT_OF_MEMORY, True)
    assert "what fits" in [each.name for each in requirements([row], lab.method.tolerance) if not each.holds]
    # Half of what base(p) asks for is the limit; this device heeds none.
    lab = FakeLaboratory(method(FREE_GPU, Task("alexnet", 16, memory_share=0.5)), heeds_limits=False)
    (row,) = rows_of(lab, "base(p)")
    assert (row.outcome, row.simulated, row.time_error) == (Outcome.RAN, None, None)
    assert row.note.startswith("fits on the device alone; simulated: ")
    assert "what fits" in [each.name for each in requirements([row], lab.method.tolerance) if not each.holds]


def test_vdnn_dyn_decides_alike_where_the_device_does_as_simulated() -> None:
    (row,) = rows_of(FakeLaboratory(method(FREE_GPU)), "vdnn_dyn")
    assert row.decision == "same: none(p)"


def test_another_decision_on_the_device_is_a_row_of_its_own() -> None:
    """The profile has room for base(p) of vgg16 (64), which is the second pass; 8 GiB have not."""
    lab = FakeLaboratory(method(FREE_GPU, Task("vgg16", 64)), capacity_bytes=8 * GIB)
    simulated, on_device = rows_of(lab, "vdnn_dyn")
    assert simulated.decision == on_device.decision == "conv(p) on the device, none(p) in the simulator"
    assert (simulated.profiled_on_device, on_device.profiled_on_device) == (False, True)
    assert on_device.label == "vdnn_dyn by device trials"


def test_failed_trials_on_the_device_are_reported() -> None:
    lab = FakeLaboratory(method(FREE_GPU), out_of_memory_under="vdnn_dyn")
    (row,) = rows_of(lab, "vdnn_dyn")
    assert row.decision == "no trials on the device: out of memory in the middle"
    assert row.outcome is Outcome.OUT_OF_MEMORY


class Undecided(Policy, frozen=True, kw_only=True):
    """A policy that does not know this network."""

    name: ClassVar[str] = "undecided"
    summary: ClassVar[str] = "refuses"

    def plan(self, setting: Setting) -> TrainingPlan:
        raise PolicyError(f"undecided: cannot plan {setting.workload.graph.name}")


def test_a_policy_that_refuses_a_network_marks_its_row() -> None:
    lab = FakeLaboratory(method(FREE_GPU))
    (row,) = validation_rows(lab, MAXWELL, lab.method, [Undecided()], lambda _name: None)
    assert (row.outcome, row.policy, row.note) == (Outcome.REFUSED, "undecided", "undecided: cannot plan alexnet")


class Broken(FakeLaboratory):
    """A device on which one network cannot be set up."""

    failure: Exception = DeviceError("no room for the weights")

    def executor(self, workload: Workload) -> FakeExecutor:
        if workload.graph.name == "vgg16":
            raise self.failure
        return super().executor(workload)


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [(DeviceError("no room"), Outcome.OUT_OF_MEMORY), (ExecutionRefused("no such layer"), Outcome.REFUSED)],
)
def test_a_network_that_cannot_be_set_up_marks_all_its_rows(failure: Exception, outcome: Outcome) -> None:
    lab = Broken(method(FREE_GPU, Task("vgg16", 8), Task("alexnet", 16)))
    lab.failure = failure
    rows = rows_of(lab, "base(m)", "base(p)")
    assert [row.outcome for row in rows] == [outcome, outcome, Outcome.RAN, Outcome.RAN]
    assert rows[0].note == str(failure)
    assert rows[0].policy == "base(m)"


MEASURED = replace(
    TOY_SERVER,
    kernels=MeasuredKernels(Path("toy.kernels.csv"), "ab12", tf32=False, channels_last=False),
    provenance=(("driver", "1.1"), ("cudnn", "9.19"), ("date", "2026-01-01"), ("sm_clock", "100 MHz seen")),
)


def test_differences_of_provenance() -> None:
    now = (("driver", "1.1"), ("cudnn", "9.19"), ("date", "2026-02-02"), ("sm_clock", "200 MHz seen"))
    assert differences(MEASURED, now) == ()
    # Another driver and what only one side has.
    assert differences(MEASURED, (("driver", "1.2"), ("torch", "2.11"))) == (
        "driver: 1.1 in the profile toy, 1.2 here",
        "cudnn: 9.19 in the profile toy, nothing here",
        "torch: nothing in the profile toy, 2.11 here",
    )
    # A profile without measured kernels says so.
    assert differences(TOY_SERVER, (("driver", "1.2"),)) == (
        "toy: no kernel of this machine was measured, all of its times are predicted",
    )


@pytest.mark.parametrize(
    ("profile", "now", "which"),
    [(True, True, "the profile toy and this GPU"), (True, False, "the profile toy"), (False, True, "this GPU")],
)
def test_a_pretended_gpu_is_named_first(profile: bool, now: bool, which: str) -> None:  # noqa: FBT001
    pretended = ("pretended", "by vdnnsim")
    server = replace(MEASURED, provenance=(*MEASURED.provenance, pretended)) if profile else MEASURED
    found = differences(server, (("driver", "1.1"), ("cudnn", "9.19"), *([pretended] if now else [])))
    assert found == (f"{which}: pretended, and takes the times that it was given",)
