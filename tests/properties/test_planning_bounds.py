"""The bounds of an order of kernels in the memory of a plan hold for that plan, whatever its policy."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.machines import shipped_server
from tests.random_plans import ROOMY, Case, cases, swap_policies, vdnn_policies
from tests.toy import placement_of
from tests.unit.planning.chain_of_ten_kernels import impossible
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.hardware.copies import Direction
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.planning.deadline import Deadline
from vdnnsim.planning.effort import Effort
from vdnnsim.planning.fluid_bound import Links, fluid_optimum, stages_of
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.planning.recomputation_bound import recomputation_bound
from vdnnsim.plans.operations import Alias, Compute, Release
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.schedule import Run
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.interface import DecidedBy, make_plan
from vdnnsim.policies.memonger import Memonger
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.registry import known_policies
from vdnnsim.policies.superneurons import SuperNeurons
from vdnnsim.scenario.simulator import Simulator

POLICIES = known_policies()
IN_PLACE = {"layrub_intra", "layrub_hybrid"}
"""Policies that lay what a kernel writes over what it reads; the bounds do not hold for these."""
NETWORKS = {"alexnet": 128, "googlenet": 32, "resnet18": 16, "gpt2_small": 2}
LONG = {("optimal", "gpt2_small")}
"""Searches of many seconds, beside the trials of staggered_swap."""
CASES = [
    pytest.param(name, network, marks=[pytest.mark.thorough] if network == "googlenet" else [])
    for name in POLICIES
    if name != PageMigration.name  # which moves weights
    for network in NETWORKS
    if network == "alexnet" or ((name, network) not in LONG and name != "staggered_swap")
]


def runs_of(plan: TrainingPlan) -> list[Run]:
    layers = plan.workload.graph.layers
    return [
        Run(layers[each.layer], each.phase, each.repeat, each.part, operation=each.operation)
        for each in plan.operations
        if isinstance(each, Compute)
    ]


def works_in_place(plan: TrainingPlan) -> bool:
    """Whether a kernel writes over what it reads, beyond what the workload says."""
    memory = dict(enumerate(range(len(plan.buffers))))
    for operation in plan.operations:
        if isinstance(operation, Alias):
            memory[operation.buffer] = memory[operation.storage]
        elif isinstance(operation, Release):
            memory[operation.buffer] = operation.buffer
        elif isinstance(operation, Compute):
            touched = {*operation.reads, *operation.writes}
            if len({memory[each] for each in touched}) < len(touched):
                return True
    return False


def links_of(server: Server) -> Links:
    return Links(*(HostCopies(server).best_bytes_per_s(each) for each in (Direction.D2H, Direction.H2D)))


def bound_s(case: Case, placement: Placement, granule_bytes: int = 1) -> float:
    """The fluid bound in the memory that a plan takes of the GPU and of the host."""
    plan = case.plan
    problem = problem_of_plan(case, placement, granule_bytes, runs_of(plan))
    links = links_of(case.server)
    stages = stages_of(problem, links, placement.host_bytes)
    assert impossible(problem, stages) is None
    return fluid_optimum(stages, links).seconds


def bound_of_any_s(case: Case, placement: Placement, granule_bytes: int = 1) -> float:
    """The bound of any schedule in that memory, of the order without its recomputations."""
    first_runs = [each for each in runs_of(case.plan) if not each.repeat]
    problem = problem_of_plan(case, placement, granule_bytes, first_runs)
    return recomputation_bound(
        problem, links_of(case.server), placement.host_bytes, Effort.until(Deadline.after(0.5))
    ).seconds


def problem_of_plan(case: Case, placement: Placement, granule_bytes: int, runs: Sequence[Run]) -> Problem:
    """What is decided about some of the kernels of a plan."""
    workload = case.plan.workload
    return problem_of(runs, workload, case.costs.table(workload), placement.pool_bytes, granule_bytes)


@settings(max_examples=30)
@given(case=cases(vdnn_policies() | swap_policies()))
def test_no_random_schedule_is_faster(case: Case) -> None:
    placement = placement_of(case.plan, ROOMY)

    assert bound_s(case, placement) <= case.play().iteration_s * (1 + 1e-9)


@settings(max_examples=12)
@given(case=cases(vdnn_policies() | swap_policies() | st.sampled_from((Memonger(), Checkpoint(), SuperNeurons()))))
def test_no_random_schedule_with_recomputation_is_faster(case: Case) -> None:
    placement = placement_of(case.plan, ROOMY)

    assert bound_of_any_s(case, placement) <= case.play().iteration_s * (1 + 1e-9)


@cache
def simulator_of(network: str) -> Simulator:
    server = shipped_server("titan_x_maxwell")
    workload = Workload(build_network(network), NETWORKS[network], optimizer=Optimizer.MOMENTUM)
    return Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "network"), CASES)
def test_no_schedule_of_a_policy_is_faster(name: str, network: str) -> None:
    """On 12 GiB and, where that decides, on less, down to what the plan does not fit: then in what it takes."""
    simulator, policy = simulator_of(network), POLICIES[name]()
    for share in (1.0,) if policy.decided_by is DecidedBy.COSTS else (1.0, 0.15):
        limits = replace(simulator.limits, device_bytes=int(share * simulator.limits.device_bytes))
        plan = make_plan(policy, replace(simulator, limits=limits).setting())
        placement = place_plan(plan, limits)
        if not isinstance(placement, Placement):
            placement = simulator.place_unlimited(plan)
        if works_in_place(plan):
            assert name in IN_PLACE
            return
        trace = simulate(plan, simulator.cost_model, simulator.server, placement, PinnedMemory.ARENA)
        case = Case(plan, simulator.cost_model, simulator.server)

        granule_bytes = simulator.limits.granule_bytes

        assert bound_s(case, placement, granule_bytes) <= trace.iteration_s * (1 + 1e-9)
        if any(each.repeat for each in runs_of(plan)):
            assert bound_of_any_s(case, placement, granule_bytes) <= trace.iteration_s * (1 + 1e-9)
