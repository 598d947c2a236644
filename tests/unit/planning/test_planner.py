"""Plans in little memory: of the chain of ten kernels with copies of 1 B/s, and of uneven chains."""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    TOY_SERVER,
    ToyCosts,
    overflow_of,
    toy_chain,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from tests.unit.planning.chain_of_ten_kernels import COSTS, WORKLOAD
from vdnnsim.cost.table import CostModel, KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Link, Origin
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning import fitting
from vdnnsim.plans.certificate import BoundClass, Certificate, SlowerKernel
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import AllocateExtent, Offload
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting, Trial
from vdnnsim.policies.optimal import Optimal

FLOOR = (
    "forward of conv1 needs 284 B whatever is away, 264 B of them weights and their gradients: "
    "no schedule of this order fits less memory"
)


def limits(device_bytes: int, pinned_bytes: int = 1000, model: MemoryModel = MemoryModel.IDEAL) -> MemoryLimits:
    return replace(TOY_LIMITS, device_bytes=device_bytes, pinned_bytes=pinned_bytes, model=model)


def planned(
    memory: MemoryLimits, costs: CostModel = COSTS, chunk: str = "auto"
) -> tuple[TrainingPlan, Certificate, Trial]:
    setting = toy_setting(WORKLOAD, costs, memory)
    plan = Optimal(recompute=False, chunk=chunk).plan(setting)
    assert plan.certificate is not None
    return plan, plan.certificate, setting.trials.run_trial(plan)


def with_algorithms(layer: int, phase: Phase, *algorithms: tuple[str, float, int]) -> ToyCosts:
    """Kernels of 1 s, but for one with algorithms by name, seconds and workspace."""
    options = tuple(KernelCost(*each, Origin.ASSUMED) for each in algorithms)
    return ToyCosts({**COSTS.kernels, (layer, phase): options})


def test_where_all_fits_the_certificate_is_empty() -> None:
    plan, certificate, trial = planned(limits(306))
    assert trial.cost_s == 10
    assert not any(isinstance(each, Offload) for each in plan.operations)
    assert certificate == Certificate(10, BoundClass.OFFLOAD)
    # At 299 B 7 B of the input are offloaded (test_offload.py): kernel 5 waits until 7 s, kernel 9 from 11 to 16 s.
    _, certificate, trial = planned(limits(299))
    assert trial.cost_s == 17
    assert certificate.gap(trial.cost_s) == pytest.approx(0, abs=1e-4)
    assert certificate.offloaded == (("map input", 7),)
    back, out = certificate.levers
    assert back.startswith("backward weights of conv1 waits 5.00 s until map input")
    assert out.startswith("backward data of fc waits 2.00 s until 7 B")


def test_a_certificate_lists_slower_kernels() -> None:
    """At 306 B without a workspace all fits. The fast kernel 5 needs 100 B.

    At most 10 + 10 + 10 B can be offloaded for it, so it takes 3 s instead of 1.
    """
    costs = with_algorithms(2, Phase.BACKWARD_DATA, ("fast", 1.0, 100), ("small", 3.0, 0))

    plan, certificate, trial = planned(limits(306), costs)

    assert trial.cost_s == certificate.bound_s == 12
    assert certificate.slower == (SlowerKernel("fc", "backward data", "small", "fast", 2.0, 100),)
    assert "backward data of fc runs small and not fast, 2.00 s slower" in certificate.levers[0]
    assert plan.certificate == certificate


def test_a_certificate_names_the_kernel_that_no_schedule_can_run() -> None:
    """Forward of conv1 needs 264 + 20 B."""
    _, certificate, trial = planned(limits(283))

    assert isinstance(trial.outcome, DoesNotFit)
    assert trial.outcome.explain().startswith("forward of conv1 asked for 10 B (map conv1)")
    assert certificate.stays == (FLOOR,)
    assert certificate.bound_s == 0


def test_where_no_plan_fits_the_smallest_is_returned_and_the_limit_of_the_search_named() -> None:
    """Kernel 8 lacks 11 B at 293 B, and of what is offloaded before the turn only the input is still idle then.

    A schedule may fit that offloads a gradient while that of the weights is computed, which none tries.
    """
    plan, certificate, trial = planned(limits(293))
    assert isinstance(trial.outcome, DoesNotFit)
    assert (trial.outcome.layer, trial.outcome.phase) == (1, Phase.BACKWARD_WEIGHTS)
    floor, sought = certificate.stays
    assert floor == FLOOR
    assert sought.startswith("backward weights of conv2 needs 294 B in every plan that is sought")
    assert certificate.bound_s > 28, "what test_timetable.py needs at 294 B"
    assert [name for name, _ in certificate.offloaded] == ["map input", "map conv1", "map conv2"]
    assert {each.extent for each in plan.operations if isinstance(each, Offload)} == {None}


def test_pinned_memory_is_a_second_capacity() -> None:
    """At 304 B 7 B must be on the host for kernel 5, unless it runs without its workspace of 5 B: then 2 B."""
    costs = with_algorithms(2, Phase.BACKWARD_DATA, ("fast", 1.0, 5), ("small", 9.0, 0))

    assert planned(limits(304), costs)[1].slower == ()
    _, certificate, trial = planned(limits(304, pinned_bytes=6), costs)

    assert trial.fits
    assert certificate.offloaded == (("map input", 2),)
    assert [each.chosen for each in certificate.slower] == ["small"]


def test_too_little_pinned_memory_is_named() -> None:
    """At 299 B 7 B must be offloaded."""
    trial = planned(limits(299, pinned_bytes=6))[2]

    assert isinstance(trial.outcome, DoesNotFit)
    assert trial.outcome.pool is Pool.PINNED
    assert planned(limits(299, pinned_bytes=7))[2].fits


@pytest.mark.parametrize(
    ("model", "chunk", "parts"),
    [(MemoryModel.IDEAL, "auto", True), (MemoryModel.BEST_FIT, "auto", False), (MemoryModel.IDEAL, "whole", False)],
)
def test_parts_are_offloaded_where_the_memory_model_frees_them(model: MemoryModel, chunk: str, *, parts: bool) -> None:
    """At 299 B 7 B of the input are enough; as a whole it takes 25 s (test_offload.py)."""
    plan, _, trial = planned(limits(299, model=model), chunk=chunk)

    assert any(isinstance(each, AllocateExtent) for each in plan.operations) is parts
    assert trial.cost_s == (17 if parts else 25)


def uneven_setting(device_bytes: int, model: MemoryModel = MemoryModel.BEST_FIT) -> Setting:
    """A chain whose maps are of several sizes."""
    text = "conv0 conv 5 unbiased; conv1 conv 9 unbiased; conv2 conv 5 unbiased"
    workload = toy_workload(toy_graph(text, channels=9))
    return toy_setting(workload, toy_costs(workload, {}), limits(device_bytes, model=model))


def test_plans_that_fragment_are_made_for_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 649 B all fits by its bytes in 13 s, but 18 B for the gradient of conv1 find 29 B in pieces of at most 17 B.

    With the map of conv0 offloaded all fits, in 27 s, the fastest plan found.
    """
    setting = uneven_setting(649)
    policy = Optimal(recompute=False, chunk="whole")
    plan, by_bytes = (policy.plan(each) for each in (setting, uneven_setting(649, MemoryModel.IDEAL)))
    refused = overflow_of(by_bytes, setting.limits)
    assert (refused.requested_bytes, refused.free_bytes, refused.largest_free_bytes) == (18, 29, 17)
    assert setting.trials.run_trial(plan).cost_s == 27
    assert plan.certificate is not None
    assert plan.certificate.offloaded == (("map conv0", 10),)
    # The same without repairs: a plan for less memory also takes 27 s.
    monkeypatch.setattr(fitting, "MOST_REPAIRS", 1)
    setting = uneven_setting(649)
    trial = setting.trials.run_trial(Optimal(recompute=False, chunk="whole").plan(setting))
    assert (trial.fits, trial.cost_s) == (True, 27)


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT])
def test_with_a_slow_link_a_map_is_recomputed(model: MemoryModel) -> None:
    """Four layers take 566 B and 16 s (test_recompute_search.py). At 560 B 6 B lack: 1000 s a byte, or 1 s again."""
    workload = toy_workload(toy_chain(4))
    server = replace(TOY_SERVER, link=Link("slow", 1e-3, 1e-3, 0.0))
    lines: list[str] = []
    setting = replace(
        toy_setting(workload, toy_costs(workload, {}), limits(560, model=model), server), progress=lines.append
    )

    plan = Optimal(time_limit="5 s").plan(setting)

    assert setting.trials.run_trial(plan).cost_s == 17
    assert plan.certificate is not None
    assert plan.certificate.holds_for is BoundClass.ANY
    assert len(plan.certificate.recomputed) == 1
    assert 16 <= plan.certificate.bound_s <= 17
    assert lines[-1].startswith("optimal(time_limit=5 s): 17.0 s, ")


@pytest.mark.parametrize(("device_bytes", "fits"), [(609, False), (610, True)])
def test_offloading_more_than_necessary_avoids_fragmentation(device_bytes: int, *, fits: bool) -> None:
    """The same network needs 610 B by its bytes, and fits there at addresses once more is offloaded than necessary.

    In 609 B 18 B are asked for and 17 B are free.
    """
    setting = uneven_setting(device_bytes)

    assert setting.trials.run_trial(Optimal(recompute=False).plan(setting)).fits is fits


def test_with_addresses_the_fastest_plan_may_be_another_policys(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 620 B boundary_search moves the input of 18 B, out and in, in 46 s, as if the search found none.

    Of 36 s of copies three kernels hide 3 s, and 13 kernels take 1 s each.
    """
    monkeypatch.setattr(fitting.Fitting, "search", lambda *_: None)
    monkeypatch.setattr(fitting.Fitting, "first", lambda *_: None)
    setting = uneven_setting(620, MemoryModel.PLANNED)
    plan = Optimal(recompute=False).plan(setting)
    assert setting.trials.run_trial(plan).cost_s == 46
    assert (plan.policy, plan.passes) == ("optimal(recompute=False)", ())
    assert plan.certificate is not None
    assert plan.certificate.bound_s <= 46
    assert plan.certificate.offloaded == (("map input", 18),)
    assert plan.certificate.levers == ("falls back to boundary_search: no faster plan was found that fits",)
    # The time is up before any of them is tried.
    plan = Optimal(recompute=False, time_limit="1 us").plan(setting)
    assert setting.trials.run_trial(plan).fits
