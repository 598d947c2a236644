"""What `aggregate_gradients` adds to plans: a weight gradient is exchanged once its last kernel has written it."""

from dataclasses import replace

import pytest

from tests.toy import touching, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.plans.hand_written import WORKLOAD, script
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, AllReduce, Compute, Offload, RecordEvent, Stream, WaitEvent
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll

COMMUNICATION = Stream.COMMUNICATION


# dW of conv1 is written in two parts, read by the update, offloaded and released.
WRITTEN_TWICE = "take dW; write dW @0W; write dW @0W; compute>memory; offload dW; update dW; sync; free dW"


def test_the_last_kernel_that_writes_is_followed_by_the_exchange() -> None:
    """Event 0 is the plan's own; the exchange is between its own 1 and 2. Offload, update and release wait once each.

    The release finds that the compute stream has waited already, for the update.
    """
    written_twice = script(WRITTEN_TWICE)
    plan = aggregate_gradients(written_twice, Aggregation.RING)

    check_plan(plan)
    assert plan.operations[3:] == (
        RecordEvent(1, Stream.COMPUTE),
        WaitEvent(1, COMMUNICATION),
        AllReduce(0, (0,), 0, Aggregation.RING),
        RecordEvent(2, COMMUNICATION),
        RecordEvent(0, Stream.COMPUTE),
        WaitEvent(0, Stream.MEMORY),
        WaitEvent(2, Stream.MEMORY),
        Offload(0, 0),
        WaitEvent(2, Stream.COMPUTE),
        Compute(0, Phase.UPDATE, "only", touching(reads=[0])),
        *written_twice.operations[-2:],
    )


@pytest.mark.parametrize("aggregation", [Aggregation.CPU, Aggregation.DDP])
def test_inference_exchanges_nothing(aggregation: Aggregation) -> None:
    workload = replace(WORKLOAD, mode=Mode.INFERENCE)
    plan = Base().plan(toy_setting(workload, toy_costs(workload, {})))

    assert aggregate_gradients(plan, aggregation) == plan


@pytest.mark.parametrize("policy", [Base(), VdnnAll(), PageMigration()], ids=lambda policy: policy.name)
@pytest.mark.parametrize("optimizer", [Optimizer.NONE, Optimizer.ADAM])
def test_every_plan_keeps_the_contract(policy: Policy, optimizer: Optimizer) -> None:
    """Page migration cannot hold all of dW at once, and so pages sums out."""
    workload = replace(toy_workload(toy_chain(3)), optimizer=optimizer)
    setting = toy_setting(workload, toy_costs(workload, {}))
    plan = policy.plan(replace(setting, known_limits=replace(setting.limits, device_bytes=300)))

    aggregated = aggregate_gradients(plan, Aggregation.GPU)
    check_plan(aggregated)
    paged = {op.buffer for op in plan.operations if isinstance(op, Offload)}
    exchanged = {buffer for op in aggregated.operations if isinstance(op, AllReduce) for buffer in op.buffers}
    assert len(exchanged) == 4
    assert bool(paged & exchanged) is isinstance(policy, PageMigration)
