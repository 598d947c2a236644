"""Copies, exchanges and links of the two GPUs of `tests.two_gpus` behind one uplink."""

from dataclasses import replace

import pytest

from tests.toy import TOY_SERVER, replay, toy_chain, toy_costs, toy_setting, toy_workload
from tests.two_gpus import COSTS, SERVER, WORKLOAD, replay_two
from vdnnsim.analysis.several_gpus import LoadCurve, exchanges, load_curves, timed_copies, total_stretch, waits_s
from vdnnsim.dnn.layers import Stage
from vdnnsim.hardware.server import Link
from vdnnsim.hardware.topology import Hop, Way
from vdnnsim.plans.operations import Aggregation, AllReduce, Stream
from vdnnsim.plans.trace import IterationTrace, LinkLoad, ServerTrace, Span
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll


def test_copies_that_run_at_once_take_twice_as_long() -> None:
    """Links of 10 B/s: 1 s alone, either way; both GPUs offload and prefetch at the same times: 2 s."""
    trace = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS))).gpus[1]
    offload, prefetch = timed_copies(trace, SERVER, 1)
    assert (offload.alone_s, offload.taken_s, offload.stretch) == pytest.approx((1.0, 2.0, 2.0))
    assert prefetch.stretch == pytest.approx(2.0)
    assert total_stretch((offload, prefetch)) == pytest.approx(2.0)
    # 0.5 s and 10 B at 1 B/s down, 2 B/s up.
    server = replace(TOY_SERVER, link=Link("link", h2d_bytes_per_s=1.0, d2h_bytes_per_s=2.0, latency_s=0.5))
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})
    trace = replay(VdnnAll().plan(toy_setting(workload, costs)), costs, server=server)
    assert [copy.alone_s for copy in timed_copies(trace, server, 0)] == [5.5, 10.5]
    assert total_stretch(timed_copies(trace, server, 0)) == 1.0


@pytest.mark.parametrize("policy", [Base(), PageMigration()])
def test_copies_without_an_engine_are_not_stretched(policy: Base | PageMigration) -> None:
    """Base copies nothing. Of page migration not all fits into 150 B, and each buffer is one page of 35 us."""
    setting = toy_setting(WORKLOAD, COSTS)
    limits = replace(setting.limits, device_bytes=150)
    plan = policy.plan(replace(setting, known_limits=limits))
    trace = replay(plan, COSTS)
    copies = timed_copies(trace, TOY_SERVER, 0)
    assert bool(copies) is isinstance(policy, PageMigration)
    assert {copy.alone_s for copy in copies} <= {35e-6}
    assert total_stretch(copies) == pytest.approx(1.0)


EXCHANGES = TrainingPlan(
    workload=toy_workload(toy_chain(1)),
    policy="hand",
    algorithms="m",
    buffers=tuple(Buffer(f"dW {i}", BufferKind.WEIGHT_GRADIENT, 10, Stage.FEATURES) for i in range(2)),
    operations=(AllReduce(0, (1,), 1, Aggregation.CPU), AllReduce(1, (0,), 0, Aggregation.CPU)),
)


def gpu_trace(*exchanged: tuple[float, float]) -> IterationTrace:
    """The iteration of a GPU, with arrival and end of each exchange."""
    spans = tuple(Span(i, Stream.COMMUNICATION, 0.0, start_s, end_s) for i, (start_s, end_s) in enumerate(exchanged))
    return IterationTrace(EXCHANGES, 9.0, spans, (), memory=(), pool_bytes=0, host_bytes=0, host_issue_s=0.0)


def test_an_exchange_begins_when_the_last_has_come() -> None:
    first, second = exchanges(ServerTrace((gpu_trace((1, 4), (5, 9)), gpu_trace((3, 4), (5, 9)))))
    assert (first.layer, first.arrivals_s, first.begin_s, first.end_s, first.last) == (1, (1, 3), 3, 4, 1)
    assert (second.layer, second.begin_s, second.last) == (0, 5, 0)
    # GPU 0 stands 2 s before the first exchange for GPU 1, which stands 1 s before the second for GPU 0.
    assert waits_s(ServerTrace((gpu_trace((1, 4), (6, 9)), gpu_trace((3, 4), (5, 9))))) == ((0, 2), (1, 0))
    assert waits_s(ServerTrace((gpu_trace(), gpu_trace()))) == ((0, 0), (0, 0)), "without exchanges"


def test_curves_of_links_that_carry_something() -> None:
    """10 B of each up the uplink at 10 B/s, from 0 to 2 s; of the two changes at 0 the last counts. The same down."""
    server_trace = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS)))
    curves = load_curves(server_trace)
    up, down = curves[Hop("uplink", Way.UP)], curves[Hop("uplink", Way.DOWN)]
    assert (up.times_s[:2], up.rates_bytes_per_s[:2]) == ((0.0, 2.0), (10.0, 0.0))
    assert up.end_s == server_trace.iteration_s
    assert (up.carried_bytes, down.carried_bytes) == (20.0, 20.0)
    assert curves[Hop("x0", Way.UP)].rates_bytes_per_s[0] == 5.0
    # 2 B/s for 1 s, 3 B/s for the 4 s that are left.
    assert LoadCurve((0.0, 1.0), (2.0, 3.0), 5.0).carried_bytes == 14.0
    # A link that carries nothing has no curve.
    hop = Hop("x", Way.UP)
    gpus = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS))).gpus
    assert set(load_curves(ServerTrace(gpus, (LinkLoad(0.0, hop, 1.0, 1),)))) == {hop}
