"""Two GPUs come to two exchanges at the moments that a test says."""

from tests.toy import toy_chain, toy_workload
from vdnnsim.analysis.several_gpus import exchanges, waits_s
from vdnnsim.dnn.layers import Stage
from vdnnsim.plans.operations import Aggregation, AllReduce, Stream
from vdnnsim.plans.trace import IterationTrace, ServerTrace, Span
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan

PLAN = TrainingPlan(
    workload=toy_workload(toy_chain(1)),
    policy="hand",
    algorithms="m",
    buffers=tuple(Buffer(f"dW {i}", BufferKind.WEIGHT_GRADIENT, 10, Stage.FEATURES) for i in range(2)),
    operations=(AllReduce(0, (1,), 1, Aggregation.CPU), AllReduce(1, (0,), 0, Aggregation.CPU)),
)


def trace(*moments: tuple[float, float]) -> IterationTrace:
    """The iteration of a GPU whose exchanges go from when it comes to when they end."""
    spans = tuple(Span(i, Stream.COMMUNICATION, 0.0, start_s, end_s) for i, (start_s, end_s) in enumerate(moments))
    return IterationTrace(PLAN, 9.0, spans, (), memory=(), pool_bytes=0, host_bytes=0, host_issue_s=0.0)


def test_an_exchange_begins_when_the_last_has_come() -> None:
    first, second = exchanges(ServerTrace((trace((1, 4), (5, 9)), trace((3, 4), (5, 9)))))

    assert (first.layer, first.arrivals_s, first.begin_s, first.end_s, first.last) == (1, (1, 3), 3, 4, 1)
    assert (second.layer, second.begin_s, second.last) == (0, 5, 0)


def test_who_waits_for_whom() -> None:
    """GPU 0 stands 2 s before the first exchange for GPU 1, which stands 1 s before the second for GPU 0."""
    assert waits_s(ServerTrace((trace((1, 4), (6, 9)), trace((3, 4), (5, 9))))) == ((0, 2), (1, 0))


def test_gpus_that_exchange_nothing_wait_for_nobody() -> None:
    assert exchanges(ServerTrace((trace(), trace()))) == ()
    assert waits_s(ServerTrace((trace(), trace()))) == ((0, 0), (0, 0))
