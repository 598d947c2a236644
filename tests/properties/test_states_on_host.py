"""Plans of `optimal` for random networks that keep the states of the optimizer on the host between iterations."""

from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.random_plans import ROOMY, Case, cost_tables, servers, workloads
from tests.toy import toy_setting
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.planning.planner import Planner
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.placement import MemoryLimits, Placement, place_plan
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.port import Setting


def bytes_of(workload: Workload, kind: BufferKind) -> int:
    return sum(each.nbytes for each in workload.step.storages if each.kind is kind)


def planned(setting: Setting, *, states_on_host: bool) -> TrainingPlan:
    """The plan of a planner that computes nothing again."""
    return Planner(
        workload=setting.workload,
        costs=setting.costs,
        limits=setting.limits,
        copies=setting.copies,
        place=setting.place,
        replay=lambda plan: setting.trials.run_trial(plan).cost_s,
        chunk_bytes=None,
        recompute=False,
        states_on_host=states_on_host,
        time_limit_s=1.0,
        label="planner",
        tell=str,
    ).plan()


@given(data=st.data())
@settings(max_examples=30)
def test_states_come_and_leave_once_and_no_bound_is_above_a_replay(data: st.DataObject) -> None:
    """In all memory and in less; the least is what the largest update takes, which may be too little for the rest."""
    workload = data.draw(workloads())
    assume(workload.optimizer.states and workload.is_training)
    costs, server = data.draw(cost_tables(workload)), data.draw(servers())
    needed = sum(each.nbytes for each in workload.step.storages)
    share = data.draw(st.sampled_from((1.0, 0.8, 0.6, 0.4)))
    limits = replace(ROOMY, device_bytes=int(share * needed))
    policy = Optimal(recompute=False, offload_optimizer=True)
    plan = policy.plan(toy_setting(workload, costs, limits, server))
    assume(isinstance(place_plan(plan, limits), Placement))

    trace = Case(plan, costs, server, PinnedMemory.ARENA).play(limits)

    assert plan.certificate is not None
    assert plan.certificate.bound_s <= trace.iteration_s * (1 + 1e-9)
    moved = [each for each in plan.operations if isinstance(each, Offload | Prefetch)]
    states = [each.buffer for each in moved if plan.buffers[each.buffer].given_on_host]
    assert sorted(states) == sorted([*{*states}] * 2)
    in_states = bytes_of(workload, BufferKind.OPTIMIZER_STATE)
    assert sum(plan.buffers[each].nbytes for each in {*states}) == in_states
    assert trace.host_bytes >= in_states


@given(data=st.data(), optimizer=st.sampled_from((Optimizer.NONE, Optimizer.SGD)))
@settings(max_examples=30)
def test_where_there_are_no_states_nothing_changes(data: st.DataObject, optimizer: Optimizer) -> None:
    workload = data.draw(workloads())
    assume(workload.is_training)
    workload = replace(workload, optimizer=optimizer)
    limits: MemoryLimits = replace(ROOMY, device_bytes=data.draw(st.sampled_from((200, 400, 10**9))))
    setting = toy_setting(workload, data.draw(cost_tables(workload)), limits, data.draw(servers()))

    plans = [planned(setting, states_on_host=each) for each in (False, True)]

    assert plans[0].operations == plans[1].operations
    assert plans[0].buffers == plans[1].buffers
    bounds = [each.certificate.bound_s for each in plans if each.certificate]
    assert bounds[0] == bounds[1]
