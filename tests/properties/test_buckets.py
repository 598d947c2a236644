"""Invariants of DDP's buckets, in whatever order gradients are written and read."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.plans.hand_written import script
from vdnnsim.plans.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Allocate, AllReduce, Compute, Operation, Release
from vdnnsim.plans.training_plan import TrainingPlan

MIB = 2**20


@dataclass(frozen=True)
class Backward:
    """A plan, and its gradients in the order in which they are ready."""

    plan: TrainingPlan
    ready: tuple[int, ...]
    interrupted: bool


@st.composite
def backwards(draw: st.DrawFn) -> Backward:
    """Up to a dozen gradients, some written several times; now and then a kernel reads one that is ready."""
    sizes = draw(st.lists(st.sampled_from((1, MIB // 2, MIB, 13 * MIB, 25 * MIB, 60 * MIB)), min_size=1, max_size=12))
    gradients = range(len(sizes))
    writes = draw(st.permutations([*gradients, *draw(st.lists(st.sampled_from(gradients), max_size=6))]))
    text = [f"take dW{gradient}={size}" for gradient, size in enumerate(sizes)]
    ready: list[int] = []
    interrupted = False
    for position, gradient in enumerate(writes):
        text.append(f"write dW{gradient} @0W")
        if gradient not in writes[position + 1 :]:
            ready.append(gradient)
        if ready and draw(st.integers(0, 9)) == 0:
            interrupted = True
            text.append(f"update dW{draw(st.sampled_from(ready))}")
    text += [f"free dW{gradient}" for gradient in gradients]
    return Backward(script("; ".join(text)), tuple(ready), interrupted)


def exchanged(plan: TrainingPlan) -> list[AllReduce]:
    return [each for each in plan.operations if isinstance(each, AllReduce)]


def without_exchanges(plan: TrainingPlan, buffers: int) -> list[Operation]:
    return [
        each
        for each in plan.operations
        if isinstance(each, Compute) or (isinstance(each, Allocate | Release) and each.buffer < buffers)
    ]


@given(backwards())
def test_every_gradient_is_in_one_bucket_in_the_order_in_which_they_are_ready(backward: Backward) -> None:
    plan = aggregate_gradients(backward.plan, Aggregation.DDP)

    check_plan(plan)
    assert [gradient for each in exchanged(plan) for gradient in each.buffers] == list(backward.ready)
    assert [each.collective for each in exchanged(plan)] == list(range(len(exchanged(plan))))
    assert without_exchanges(plan, len(backward.plan.buffers)) == without_exchanges(backward.plan, 2**60)


@given(backwards())
def test_no_byte_is_lost(backward: Backward) -> None:
    plan = aggregate_gradients(backward.plan, Aggregation.DDP)
    buckets = plan.buffers[len(backward.plan.buffers) :]

    assert [bucket.nbytes for bucket in buckets] == [
        sum(plan.buffers[gradient].nbytes for gradient in each.buffers) for each in exchanged(plan)
    ]
    assert sum(bucket.nbytes for bucket in buckets) == sum(each.nbytes for each in backward.plan.buffers)


@given(backwards())
def test_a_bucket_is_full_with_its_last_gradient_and_not_before(backward: Backward) -> None:
    """But for the last, and for those that somebody needed early."""
    plan = aggregate_gradients(backward.plan, Aggregation.DDP)
    sizes = [[plan.buffers[gradient].nbytes for gradient in each.buffers] for each in exchanged(plan)]

    for number, bucket in enumerate(sizes):
        limit = BUCKET_BYTES if number else FIRST_BUCKET_BYTES
        assert sum(bucket[:-1]) < limit
        assert sum(bucket) >= limit or number == len(sizes) - 1 or backward.interrupted


@given(backwards())
def test_a_bucket_is_exchanged_right_behind_its_last_gradient(backward: Backward) -> None:
    plan = aggregate_gradients(backward.plan, Aggregation.DDP)
    operations = plan.operations

    for each in exchanged(plan):
        kernel = operations[operations.index(each) - 3]
        assert isinstance(kernel, Compute)
        assert kernel.writes == (each.buffers[-1],)
