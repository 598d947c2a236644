"""Optimizer states and weight gradients on the host: the chain of `chain_of_ten_kernels.py`, then three updates of 1 s.

Kernels 10, 11 and 12 are the updates of conv1 and conv2, each with two states of 60 B, and of fc with two of 12 B:
264 B. Beside 264 B of weights and their gradients, which are held throughout, kernels 0 to 9 need 20 to 42 B more at
once, where all maps stay.
"""

from dataclasses import replace
from typing import Final

import pytest

from tests.toy import (
    TOY_LIMITS,
    TOY_SERVER,
    overflow_of,
    placement_of,
    replay,
    toy_chain,
    toy_costs,
    toy_setting,
    toy_workload,
)
from vdnnsim.cost.table import CostModel
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.hardware.server import Link, Server
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.planning.buffer_uses import Residency
from vdnnsim.planning.fluid_bound import Links
from vdnnsim.planning.optimizer_states import states_bound
from vdnnsim.planning.problem import problem_of
from vdnnsim.plans.buffers import IterationBuffers, states_of_update
from vdnnsim.plans.certificate import BoundClass, Certificate
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.optimal import Optimal

WORKLOAD: Final = replace(toy_workload(toy_chain(2)), optimizer=Optimizer.ADAM)
COSTS: Final = toy_costs(WORKLOAD, {})
FAST: Final = replace(TOY_SERVER, link=Link("fast", 100.0, 100.0, latency_s=0.0))


def plan_within(limits: MemoryLimits, costs: CostModel = COSTS, server: Server = TOY_SERVER) -> TrainingPlan:
    """A plan without recomputation."""
    return Optimal(recompute=False, offload_optimizer=True).plan(toy_setting(WORKLOAD, costs, limits, server))


def planned(device_bytes: int, server: Server = TOY_SERVER) -> tuple[TrainingPlan, Certificate, IterationTrace]:
    limits = replace(TOY_LIMITS, device_bytes=device_bytes, host_bytes=10_000)
    plan = plan_within(limits, server=server)
    assert plan.certificate is not None
    return plan, plan.certificate, replay(plan, COSTS, limits=limits, server=server)


@pytest.mark.parametrize(
    ("device_bytes", "seconds", "bound_s"), [(570, 13, 13), (444, 507, 208), (384, 529, 328), (312, 676, 472)]
)
def test_on_a_slow_link_copies_are_all_that_takes_time(device_bytes: int, seconds: float, bound_s: float) -> None:
    """In 570 B all fits. Least must be on the host beside kernel 9, which takes 212 B.

    Then there are 264 B of states and 72 B of gradients of conv2 and fc, of which all but 232, 172 and 100 B must be
    copied out and in at 1 B/s, one after the other. In 444 B three states of 60 B and both gradients do, and nothing
    beside the updates; in 384 B all states, and nothing beside the update of conv1; in 312 B the gradients as well, and
    nothing beside kernels 9 to 12.
    """
    plan, certificate, trace = planned(device_bytes)

    assert trace.iteration_s == seconds
    assert certificate.bound_s == bound_s
    assert certificate.holds_for is BoundClass.OFFLOAD_AND_STATES
    moved_bytes = sum(plan.copied_bytes(each) for each in plan.operations if isinstance(each, Offload))
    assert trace.host_bytes == moved_bytes == {570: 0, 444: 252, 384: 264, 312: 336}[device_bytes]


def test_certificates_name_exposed_copies_states_and_updates_without_room() -> None:
    """Of 472 s 13 are those of the kernels."""
    certificate = planned(312)[1]
    assert certificate.levers[0].startswith("264 B of optimizer states and 72 B of weight gradients")
    assert "at least 459 s" in certificate.levers[0]
    # That of conv1 takes 312 B; so does that of conv2, but behind it.
    limits = replace(TOY_LIMITS, device_bytes=311, host_bytes=10_000)
    plan = plan_within(limits)
    assert isinstance(place_plan(plan, limits), DoesNotFit)
    assert plan.certificate is not None
    assert plan.certificate.stays[0].startswith("update of conv1 needs 312 B whatever is away")
    # At 550 B map conv1 has no room; 264 of 548 B that any schedule needs are states.
    limits = replace(TOY_LIMITS, device_bytes=550)
    kept = Optimal(recompute=False).plan(toy_setting(WORKLOAD, COSTS, limits)).certificate
    moved = plan_within(replace(limits, device_bytes=320))
    assert kept is not None
    assert kept.stays[0].startswith("forward of conv1 needs 548 B whatever is away, 528 B of them weights, their gra")
    assert kept.stays[1].startswith("backward weights of conv2 needs 558 B in every plan that is sought")
    assert kept.stays[2] == "optimizer states take 264 B throughout; offload_optimizer moves them"
    assert moved.certificate is not None
    (floor,) = moved.certificate.stays
    assert floor.startswith("update of conv1 needs 312 B whatever is away, 132 B of them weights: ")


def test_with_a_fast_link_a_gradient_on_the_host_costs_nothing() -> None:
    """At 540 B 30 B lack beside kernels 5 and 6, where the 60 B of a gradient of conv1 have no memory yet.

    Beside kernel 9, which writes it, 8 B do: the gradient of fc is offloaded before, and prefetched in time.
    """
    plan, certificate, trace = planned(540, FAST)
    assert trace.iteration_s == certificate.bound_s == 13
    coming = {plan.buffers[each.buffer].name for each in plan.operations if isinstance(each, Prefetch)}
    assert coming == {"weight gradient of fc"}
    # At 444 B 60 of the 144 B of states of conv2 and fc are there when the update of conv1 ends at 11 s. Those of
    # conv1 are offloaded in 1.2 s, the others prefetched in 0.84 s; from 13.04 s on conv2 is updated for 1 s, in
    # which nothing is copied, and then 1.2 + 0.24 s are offloaded; fc is updated beside.
    assert planned(444, FAST)[2].iteration_s == pytest.approx(15.24, abs=0.25)


def test_offloaded_maps_take_the_link_as_well() -> None:
    """With 200 B of workspace kernel 5 takes 344 B; of 264 B of states and 30 B of maps 6 B fit beside it in 350 B."""
    costs = toy_costs(WORKLOAD, {}, workspace_bytes={("fc", Phase.BACKWARD_DATA): 200})
    limits = replace(TOY_LIMITS, device_bytes=350, host_bytes=10_000)
    plan = plan_within(limits, costs)

    assert plan.certificate is not None
    assert plan.certificate.bound_s == 2 * (264 + 24)
    assert replay(plan, costs, limits=limits).iteration_s >= plan.certificate.bound_s


def test_pinned_memory_counts_states_throughout() -> None:
    """264 B of states fit exactly, and no map beside them; in 263 B the last of them does not.

    PyTorch pins four of 60 B in blocks of 64 B, two of 12 B in blocks of 16 B: 288 B.
    """
    limits = replace(TOY_LIMITS, device_bytes=384, host_bytes=264)
    plan = plan_within(limits)
    assert isinstance(place_plan(plan, limits), Placement)
    refused = overflow_of(plan, replace(limits, host_bytes=263))
    assert refused.pool is Pool.PINNED
    assert "asked for 12 B (state 2 of fc) of pinned host memory; 11 B of 263 B were free" in refused.explain()
    of_pytorch = replace(limits, host_bytes=10_000, model=MemoryModel.PYTORCH, device_bytes=2**30, granule_bytes=512)
    placed = placement_of(plan, of_pytorch)
    assert placed.host_bytes == 288


def test_a_class_that_moves_states_includes_those_that_keep_them() -> None:
    classes = BoundClass.ANY, BoundClass.OFFLOAD_AND_STATES, BoundClass.ANY_AND_STATES

    assert [each.includes(BoundClass.OFFLOAD_AND_STATES) for each in classes] == [False, True, True]
    assert all(each.includes(BoundClass.OFFLOAD) for each in classes)
    assert [each.includes(BoundClass.ANY) for each in classes] == [True, False, True]


def test_without_prefetches_states_add_nothing_to_the_bound() -> None:
    """A gradient held from backward into the update is never copied: 5 s before it and 7 s stay 12 s."""
    workload = toy_workload(toy_chain(1))
    nothing = problem_of(iteration(workload), workload, toy_costs(workload, {}).table(workload), 10**6)
    held = replace(nothing, residencies=(Residency(0, 10, 0, 1, prefetched=False, offloaded=False),))

    assert states_bound(held, 7.0, 5.0, Links(1, 1), recompute=False, may_stay=False) == 12


@pytest.mark.parametrize(("device_bytes", "bound_s"), [(384, 22.08), (383, 20)])
def test_the_bound_extends_over_updates_that_need_nothing_on_the_host(device_bytes: int, bound_s: float) -> None:
    """Updates of conv1 and conv2 take 384 B; in that memory, where the bound is 20 s, the first ends at 18 s.

    Then 144 B are prefetched and 264 B offloaded at 100 B/s. In less, that update ends at 11 s by kernels alone.
    """
    buffers = IterationBuffers(WORKLOAD, states_of_update(WORKLOAD.step))
    problem = problem_of(iteration(WORKLOAD), WORKLOAD, COSTS.table(WORKLOAD), device_bytes, buffers=buffers)

    found_s = states_bound(problem, 20.0, 0.0, Links(100, 100), recompute=True, may_stay=False)

    assert found_s == pytest.approx(bound_s)
