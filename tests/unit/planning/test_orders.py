"""Orders of kernels, whose problems searches for several memories share."""

from dataclasses import replace

from tests.toy import TOY_LIMITS, toy_chain, toy_costs, toy_workload
from vdnnsim.dnn.layers import Stage
from vdnnsim.dnn.step import BufferKind
from vdnnsim.planning.orders import Orders
from vdnnsim.planning.problem import problem_of
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import Buffer

WORKLOAD = toy_workload(toy_chain(2))
COSTS = toy_costs(WORKLOAD, {}).table(WORKLOAD)


def test_an_order_is_looked_at_once_for_all_memories() -> None:
    """In 500 and in 1000 B the same kernels hold the same bytes, and what is left of the memory differs."""
    orders = Orders(WORKLOAD, COSTS, frozenset())
    runs = orders.recomputation.runs
    in_memory = {each: replace(TOY_LIMITS, device_bytes=each, granule_bytes=2) for each in (500, 1000)}
    small, large = (orders.problem(runs, frozenset(), each) for each in in_memory.values())
    assert small.kernels is large.kernels
    assert large == problem_of(iteration(WORKLOAD), WORKLOAD, COSTS, 1000, 2)
    assert small == replace(large, capacity_bytes=500)


def test_what_a_plan_adds_to_its_buffers_is_in_no_other() -> None:
    """The buffers of a plan are numbered from those of the step on."""
    orders, workspace = (
        Orders(WORKLOAD, COSTS, frozenset()),
        Buffer("workspace", BufferKind.WORKSPACE, 3, Stage.FEATURES),
    )
    count = len(WORKLOAD.step.storages)
    assert [orders.buffers(frozenset()).add(workspace) for _ in range(2)] == [count, count]
