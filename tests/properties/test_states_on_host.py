"""Plans of `optimal` for random networks that may have states and weight gradients on the host."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.random_plans import ROOMY, Case, cost_tables, servers, workloads
from tests.toy import toy_setting
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.planning.buffer_uses import RESIDENT
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.policies.optimal import Optimal


@given(data=st.data())
@settings(max_examples=12)
def test_states_are_prefetched_for_the_update_and_no_bound_is_above_a_replay(data: st.DataObject) -> None:
    """In all memory and in less; the least is what the largest update takes, which may be too little for the rest."""
    optimizer = data.draw(st.sampled_from([each for each in Optimizer if each.states]))
    workload = replace(data.draw(workloads()), mode=Mode.TRAINING, optimizer=optimizer)
    costs, server = data.draw(cost_tables(workload)), data.draw(servers())
    needed = sum(each.nbytes for each in workload.step.storages)
    share = data.draw(st.sampled_from((1.0, 0.8, 0.6, 0.4)))
    limits = replace(ROOMY, device_bytes=int(share * needed))
    setting = toy_setting(workload, costs, limits, server)
    kept, plan = (Optimal(recompute=False, offload_optimizer=each).plan(setting) for each in (False, True))
    assume(isinstance(place_plan(plan, limits), Placement))

    trace = Case(plan, costs, server, PinnedMemory.ARENA).play(limits)

    assert plan.certificate is not None
    assert plan.certificate.bound_s <= trace.iteration_s * (1 + 1e-9)
    if isinstance(place_plan(kept, limits), Placement):
        kept_s = Case(kept, costs, server, PinnedMemory.ARENA).play(limits).iteration_s
        assert plan.certificate.bound_s <= kept_s * (1 + 1e-9)
        assert trace.iteration_s <= kept_s * (1 + 1e-9)
    copies = Counter(
        (type(each), plan.buffers[each.buffer].kind, each.buffer)
        for each in plan.operations
        if isinstance(each, Offload | Prefetch) and plan.buffers[each.buffer].kind in RESIDENT
    )
    assert set(copies.values()) <= {1}
    moved = {kind: {buffer for _, found, buffer in copies if found is kind} for kind in RESIDENT}
    assert not moved[BufferKind.WEIGHTS]
    assert all((direction, *where) in copies for _, *where in copies for direction in (Offload, Prefetch))
    on_host = {number for number, each in enumerate(plan.buffers) if each.given_on_host}
    assert moved[BufferKind.OPTIMIZER_STATE] == on_host
    assert trace.host_bytes >= sum(plan.buffers[each].nbytes for each in on_host)
