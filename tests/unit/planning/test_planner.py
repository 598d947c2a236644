"""Plans in little memory: of the chain of ten kernels with copies of 1 B/s, and of chains that need something else."""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.planning.chain_of_ten_kernels import COSTS, WORKLOAD
from vdnnsim.cost.table import CostModel, KernelCost
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Link, Origin
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning import fitting
from vdnnsim.plans.certificate import BoundClass, Certificate, SlowerKernel
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.operations import AllocateExtent, Offload
from vdnnsim.plans.placement import DoesNotFit, MemoryLimits, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Trial
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
    """A plan, what it proves, and its replay."""
    setting = toy_setting(WORKLOAD, costs, memory)
    plan = Optimal(recompute=False, chunk=chunk).plan(setting)
    assert plan.certificate is not None
    return plan, plan.certificate, setting.trials.run_trial(plan)


def with_algorithms(layer: int, phase: Phase, *algorithms: tuple[str, float, int]) -> ToyCosts:
    """Kernels of 1 s, but for one with algorithms by name, seconds and workspace."""
    options = tuple(KernelCost(*each, Origin.ASSUMED) for each in algorithms)
    return ToyCosts({**COSTS.kernels, (layer, phase): options})


def test_where_all_fits_nothing_leaves_and_nothing_is_to_be_said() -> None:
    plan, certificate, trial = planned(limits(306))

    assert trial.cost_s == 10
    assert not any(isinstance(each, Offload) for each in plan.operations)
    assert certificate == Certificate(10, BoundClass.OFFLOAD)


def test_a_certificate_says_what_leaves_and_who_waits_for_it() -> None:
    """At 299 B 7 B of the input leave (test_offload.py): kernel 5 waits until 7 s, kernel 9 from 11 to 16 s."""
    _, certificate, trial = planned(limits(299))

    assert trial.cost_s == 17
    assert certificate.gap(trial.cost_s) == pytest.approx(0, abs=1e-4)
    assert certificate.offloaded == (("map input", 7),)
    assert certificate.levers == (
        "backward weights of conv1 waits 5.00 s until map input has come back: the link is the limit",
        "backward data of fc waits 2.00 s until 7 B have left: the link is the limit",
    )


def test_a_certificate_says_which_workspace_competes_with_what() -> None:
    """At 306 B without a workspace all fits. The fast kernel 5 takes 100 B of it, and can take none that leaves.

    At most 10 + 10 + 10 B can leave for it, so it takes 3 s and not 1.
    """
    costs = with_algorithms(2, Phase.BACKWARD_DATA, ("fast", 1.0, 100), ("small", 3.0, 0))

    plan, certificate, trial = planned(limits(306), costs)

    assert trial.cost_s == certificate.bound_s == 12
    assert certificate.slower == (SlowerKernel("fc", "backward data", "small", "fast", 2.0, 100),)
    assert certificate.levers == (
        "backward data of fc runs small and not fast, 2.00 s slower: 100 B of workspace compete with 30 B that wait",
    )
    assert plan.certificate == certificate


def test_a_refusal_names_the_kernel_that_no_schedule_can_run() -> None:
    """Forward of conv1 needs 264 + 20 B."""
    _, certificate, trial = planned(limits(283))

    assert isinstance(trial.outcome, DoesNotFit)
    assert trial.outcome.explain() == (
        "forward of conv1 asked for 10 B (map conv1) of GPU memory; 9 B of 283 B were free; held: weights 132 B, "
        "weight gradients 132 B, feature maps 10 B"
    )
    assert certificate.stays == (FLOOR,)
    assert not certificate.bound_s


def test_what_is_not_tried_is_told() -> None:
    """At 293 B a schedule may fit in which a gradient leaves while the weights' are computed: no plan has that."""
    assert planned(limits(293))[1].stays == (
        FLOOR,
        "backward weights of conv2 needs 294 B in every plan that is sought: what waits within backward stays",
    )


def test_where_no_schedule_can_run_there_is_no_bound() -> None:
    """At 283 B, whatever is computed again."""
    plan = Optimal().plan(toy_setting(WORKLOAD, COSTS, limits(283)))

    assert plan.certificate is not None
    assert plan.certificate.stays == (FLOOR,)
    assert plan.certificate.bound_s == 0


def test_a_plan_that_nothing_can_be_chosen_for_is_that_which_needs_least() -> None:
    """Kernel 8 lacks 11 B at 293 B, and of what is away before the turn only the input can still be away then."""
    plan, certificate, trial = planned(limits(293))

    assert isinstance(trial.outcome, DoesNotFit)
    assert (trial.outcome.layer, trial.outcome.phase) == (1, Phase.BACKWARD_WEIGHTS)
    assert certificate.bound_s > 28, "what test_timetable.py needs at 294 B"
    assert [name for name, _ in certificate.offloaded] == ["map input", "map conv1", "map conv2"]
    assert {each.extent for each in plan.operations if isinstance(each, Offload)} == {None}


def test_pinned_memory_is_a_second_capacity() -> None:
    """At 304 B 7 B must be away for kernel 5, unless it runs without its workspace of 5 B: then 2 B."""
    costs = with_algorithms(2, Phase.BACKWARD_DATA, ("fast", 1.0, 5), ("small", 9.0, 0))

    assert planned(limits(304), costs)[1].slower == ()
    _, certificate, trial = planned(limits(304, pinned_bytes=6), costs)

    assert trial.fits
    assert certificate.offloaded == (("map input", 2),)
    assert [each.chosen for each in certificate.slower] == ["small"]


def test_too_little_pinned_memory_is_named() -> None:
    """At 299 B 7 B must leave."""
    trial = planned(limits(299, pinned_bytes=6))[2]

    assert isinstance(trial.outcome, DoesNotFit)
    assert trial.outcome.pool is Pool.PINNED
    assert planned(limits(299, pinned_bytes=7))[2].fits


@pytest.mark.parametrize(
    ("model", "chunk", "parts"),
    [(MemoryModel.IDEAL, "auto", True), (MemoryModel.BEST_FIT, "auto", False), (MemoryModel.IDEAL, "whole", False)],
)
def test_parts_of_buffers_leave_where_the_memory_model_gives_them_back(
    model: MemoryModel, chunk: str, *, parts: bool
) -> None:
    """At 299 B 7 B of the input are enough; as a whole it takes 25 s (test_offload.py)."""
    plan, _, trial = planned(limits(299, model=model), chunk=chunk)

    assert any(isinstance(each, AllocateExtent) for each in plan.operations) is parts
    assert trial.cost_s == (17 if parts else 25)


def uneven_workload() -> Workload:
    """A chain whose maps are of several sizes."""
    net = GraphBuilder("uneven", MapShape(9, 1, 1))
    y = 0
    for number, channels in enumerate((5, 9, 5)):
        y = net.conv(f"conv{number}", y, channels, 1, bias=False, relu=False)
    net.begin_classifier()
    return toy_workload(net.build(net.fc("fc", y, 1, relu=False)))


def test_plans_whose_addresses_do_not_fit_are_made_for_less_memory() -> None:
    """In 649 B all fits by its bytes in 13 s, but 18 B for the gradient of conv1 find 29 B in pieces of at most 17 B.

    With the map of conv0 away they find their place, in 27 s, and of what else was tried nothing was faster.
    """
    workload = uneven_workload()
    memory = limits(649, model=MemoryModel.BEST_FIT)
    setting = toy_setting(workload, toy_costs(workload, {}), memory)
    roomy = toy_setting(workload, toy_costs(workload, {}), replace(memory, model=MemoryModel.IDEAL))

    plan, by_bytes = (Optimal(recompute=False, chunk="whole").plan(each) for each in (setting, roomy))

    refused = place_plan(by_bytes, memory)
    assert isinstance(refused, DoesNotFit)
    assert (refused.requested_bytes, refused.free_bytes, refused.largest_free_bytes) == (18, 29, 17)
    assert setting.trials.run_trial(plan).cost_s == 27
    assert plan.certificate is not None
    assert plan.certificate.offloaded == (("map conv0", 10),)


def test_where_repairs_come_to_no_end_other_ways_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same, but the kernel that finds no room may not ask for it: all in less memory is what also takes 27 s."""
    monkeypatch.setattr(fitting, "MOST_REPAIRS", 1)
    workload = uneven_workload()
    setting = toy_setting(workload, toy_costs(workload, {}), limits(649, model=MemoryModel.BEST_FIT))

    trial = setting.trials.run_trial(Optimal(recompute=False, chunk="whole").plan(setting))

    assert (trial.fits, trial.cost_s) == (True, 27)


@pytest.mark.parametrize("model", [MemoryModel.IDEAL, MemoryModel.BEST_FIT])
def test_beside_a_slow_link_a_map_is_computed_again(model: MemoryModel) -> None:
    """Four layers take 566 B and 16 s (test_dropping.py). At 560 B 6 B lack: 1000 s each, or 1 s for a map of 10 B."""
    workload = toy_workload(toy_chain(4))
    server = replace(TOY_SERVER, link=Link("slow", 1e-3, 1e-3, 0.0))
    told: list[str] = []
    setting = replace(
        toy_setting(workload, toy_costs(workload, {}), limits(560, model=model), server), progress=told.append
    )

    plan = Optimal(time_limit="5 s").plan(setting)

    assert setting.trials.run_trial(plan).cost_s == 17
    assert plan.certificate is not None
    assert plan.certificate.holds_for is BoundClass.ANY
    assert len(plan.certificate.recomputed) == 1
    assert 16 <= plan.certificate.bound_s <= 17
    assert told[-1].startswith("optimal(time_limit=5 s): 17.0 s, ")


@pytest.mark.parametrize(("device_bytes", "fits"), [(609, False), (610, True)])
def test_what_moves_as_in_less_memory_finds_its_place(device_bytes: int, *, fits: bool) -> None:
    """The same network needs 610 B by its bytes, and there its addresses fit as well, once more leaves than must.

    In 609 B 18 B are asked for and 17 B are free.
    """
    workload = uneven_workload()
    setting = toy_setting(workload, toy_costs(workload, {}), limits(device_bytes, model=MemoryModel.BEST_FIT))

    assert setting.trials.run_trial(Optimal(recompute=False).plan(setting)).fits is fits


def test_where_buffers_have_addresses_the_fastest_plan_may_be_another_policys() -> None:
    """In 620 B the search finds one of 59 s. boundary_search moves the input of 18 B, out and in, in 46 s.

    Of 36 s of copies three kernels hide 3 s, and 13 kernels take 1 s each.
    """
    workload = uneven_workload()
    setting = toy_setting(workload, toy_costs(workload, {}), limits(620, model=MemoryModel.PLANNED))

    plan = Optimal(recompute=False).plan(setting)

    assert setting.trials.run_trial(plan).cost_s == 46
    assert (plan.policy, plan.passes) == ("optimal(recompute=False)", ())
    assert plan.certificate is not None
    assert plan.certificate.bound_s <= 46
    assert plan.certificate.offloaded == (("map input", 18),)
    assert plan.certificate.levers == ("falls back to boundary_search: no faster plan was found that fits",)


def test_where_the_search_finds_nothing_in_its_time_a_policy_that_fits_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time is up before any of them is looked at."""
    monkeypatch.setattr(fitting.Fitting, "search", lambda *_: None)
    monkeypatch.setattr(fitting.Fitting, "first", lambda *_: None)
    workload = uneven_workload()
    setting = toy_setting(workload, toy_costs(workload, {}), limits(620, model=MemoryModel.PLANNED))

    plan = Optimal(recompute=False, time_limit="1 us").plan(setting)

    assert setting.trials.run_trial(plan).fits
