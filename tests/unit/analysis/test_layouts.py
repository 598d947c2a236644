"""FLOPs of layouts over several GPUs, and what waits for collectives."""

from dataclasses import replace

import msgspec

from tests.captured_ranks import counted, sharded
from tests.toy import toy_trace
from vdnnsim.analysis.layouts import communication_seconds, flop_by_module, last_collectives_seconds
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Communicate, Stream
from vdnnsim.policies.base import Base


def test_flop_of_a_step() -> None:
    """Two products of 10 and 20 FLOPs in forward, backward twice as much, of two samples: 15 and 30 for each.

    Blocks are counted together, and those of two stages, which call their parts `model`, are of twice the samples.
    """
    step = counted(sharded(), {"fc1": 10, "fc2": 20})
    assert flop_by_module((step,), 2) == {"fc1": 15, "fc2": 30}
    parts = {"fc1": "model.layers.0", "fc2": "model.layers.1.up"}
    modules = tuple(msgspec.structs.replace(each, path=parts.get(each.path, each.path)) for each in step.modules)
    stage = msgspec.structs.replace(step, modules=modules, pipeline=2)
    assert flop_by_module((stage, stage), 2) == {"layers.*": 15, "layers.*.up": 30}


def test_collectives_behind_the_last_kernel_are_waited_for() -> None:
    """A broadcast from 1.5 s to 4 s, a kernel that ends at 2 s: for 2 s nothing else runs. Without it none.

    An update on the host in its place is no collective.
    """
    broadcast = Communicate(0, Phase.UPDATE, "only", (), 0, None)
    trace = toy_trace(Base(), 1)
    plan = replace(trace.plan, operations=(*trace.plan.operations, broadcast))
    (first, _), *_ = trace.kernels
    kernel = replace(first, start_s=0.0, end_s=2.0)
    sent = replace(first, operation=len(plan.operations) - 1, stream=Stream.COMMUNICATION, start_s=1.5, end_s=4.0)
    assert last_collectives_seconds(replace(trace, plan=plan, spans=(kernel, sent))) == 2.0
    assert communication_seconds(replace(trace, plan=plan, spans=(kernel, sent))) == 2.5
    on_host = replace(broadcast, collective=Collective(CollectiveKind.ON_HOST, 8, "float32", ranks=1))
    plan = replace(plan, operations=(*trace.plan.operations, on_host))
    assert last_collectives_seconds(replace(trace, plan=plan, spans=(kernel, sent))) == 0.0
    assert communication_seconds(replace(trace, plan=plan, spans=(kernel, sent))) == 0.0
    assert last_collectives_seconds(replace(trace, spans=(kernel,))) == 0.0
