from dataclasses import replace
from pathlib import Path

import pytest

from tests.machines import shipped_server
from tests.toy import TOY_LIMITS, overflow_of, replay, replayed, toy_chain, toy_costs, toy_setting, toy_workload
from tests.unit.policies.copies import issued
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Offload, Prefetch, Stream
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import make_plan
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.scenario.simulator import Simulator

F = Phase.FORWARD
WORKLOAD = toy_workload(toy_chain(2))
COSTS = toy_costs(WORKLOAD, {})
ROOT = Path(__file__).parents[3]


def replay_within(capacity_bytes: int, policy: PageMigration, workload: Workload = WORKLOAD) -> IterationTrace:
    limits = replace(TOY_LIMITS, device_bytes=capacity_bytes)
    return replayed(policy, workload, COSTS, limits=limits)


def test_the_least_recently_used_is_paged_out() -> None:
    """100 B for two CONV layers and an FC layer; maps of 10 B, W and dW of 60 B, in FC 12 B, maps of FC and loss 2 B.

    Each line: operands of the kernel, bytes that it lacks of those free, buffers paged out (* copied) and paged in.

        conv1 F   input W1 conv1      80 of 100
        conv2 F   conv1 W2 conv2      70 of  20   input* W1*
        fc F      conv2 Wf fc         14 of  20
        loss F    fc loss              2 of   6
        loss D    loss dfc             2 of   4
        fc D      dfc Wf dconv2       10 of   2   conv1*
        fc W      conv2 dfc dWf       12 of   2   W2*; dfc ends
        conv2 D   dconv2 W2 dconv1    70 of  52   fc* loss* Wf* conv2*          W2
        conv2 W   conv1 dconv2 dW2    70 of   8   dWf*, W2 unchanged; dconv2 ends    conv1
        conv1 W   input dconv1 dW1    70 of  20   conv1 unchanged, dW2*         input

    The pager does not know that the maps of fc and loss are dead. 10 pages are copied out, 3 in, 20 us each, and
    10 kernels take 1 s each.
    """
    trace = replay_within(100, PageMigration(page_latency="20 us"))

    assert issued(trace.plan, Offload) == [
        *(("map input", "conv2"), ("weights of conv1", "conv2")),
        *(("map conv1", "fc"), ("weights of conv2", "fc")),
        *(("map fc", "conv2"), ("map loss", "conv2"), ("weights of fc", "conv2"), ("map conv2", "conv2")),
        *(("weight gradient of fc", "conv2"), ("weight gradient of conv2", "conv1")),
    ]
    assert issued(trace.plan, Prefetch) == [
        ("weights of conv2", "conv2"),
        ("map conv1", "conv2"),
        ("map input", "conv1"),
    ]
    assert trace.iteration_s == pytest.approx(10 + 13 * 20e-6, rel=1e-12)
    stalled_s = sum(stall.end_s - stall.start_s for stall in trace.stalls)
    assert stalled_s == pytest.approx(13 * 20e-6, rel=1e-9), "the kernels wait for every page"
    assert {stall.cause for stall in trace.stalls} == {StallCause.OFFLOAD, StallCause.ON_DEMAND}


def test_where_everything_fits_nothing_is_paged() -> None:
    setting = toy_setting(WORKLOAD, COSTS)
    trace = replay(PageMigration().plan(setting), COSTS)
    assert trace.spans_on(Stream.MEMORY) == ()
    assert trace.iteration_s == replay(Base().plan(setting), COSTS).iteration_s
    # In 100 B conv2 finds 20 B free and wants W2 and its Y, 70 B: input and W1 are paged out, nothing is paged in.
    trace = replay_within(100, PageMigration(), replace(WORKLOAD, mode=Mode.INFERENCE))
    assert issued(trace.plan, Offload) == [("map input", "conv2"), ("weights of conv1", "conv2")]
    assert issued(trace.plan, Prefetch) == []


def test_a_workspace_needs_room_like_a_map() -> None:
    """conv1 forward touches 80 B. With 21 B of workspace it needs 101 B, of which 100 B are there.

    With 20 B it has room; nothing lies on the GPU that could go.
    """
    limits = replace(TOY_LIMITS, device_bytes=100)
    plans = [
        PageMigration().plan(toy_setting(WORKLOAD, costs, limits))
        for costs in (toy_costs(WORKLOAD, {}, workspace_bytes={("conv1", F): nbytes}) for nbytes in (20, 21))
    ]

    for plan in plans:
        check_plan(plan)
    assert not isinstance(place_plan(plans[0], limits), DoesNotFit)
    refusal = overflow_of(plans[1], limits)
    assert (refusal.requested_bytes, refusal.free_bytes) == (21, 20)
    assert refusal.plan.buffers[refusal.buffer].name == "workspace of conv1"


def test_a_host_that_is_too_small_is_named_with_the_phase_that_wanted_room() -> None:
    """The host takes input, W1 and conv1, 80 B; at fc's weight gradient W2 with its 60 B is too much for 100 B."""
    limits = replace(TOY_LIMITS, device_bytes=100, host_bytes=100)
    refusal = overflow_of(PageMigration().plan(toy_setting(WORKLOAD, COSTS, limits)), limits)
    assert refusal.explain().startswith(
        "backward weights of fc asked for 60 B (weights of conv2) of pinned host memory"
    )


@pytest.mark.parametrize(
    ("latency", "message"),
    [
        ("10 us", "found '10 us', expected from 20 us to 50 us"),
        ("0.051 ms", "found '0.051 ms', expected from 20 us to 50 us"),
        ("35", "found '35', expected a number with one of the units"),
        (35, "found 35, expected text, as '35 us'"),
    ],
)
def test_a_wrong_latency_is_refused(latency: object, message: str) -> None:
    with pytest.raises(PolicyError, match=f"^page_migration: page_latency: {message}"):
        resolve_policy({"policy": "page_migration", "page_latency": latency}, known_policies())


@pytest.mark.parametrize(("latency", "bytes_per_s"), [("20 us", 204.8e6), ("35 us", 4096 / 35e-6), ("50 us", 81.92e6)])
def test_vgg16_pages_at_the_rate_of_the_paper(latency: str, bytes_per_s: float) -> None:
    """II-C: a page of 4 KB in 20 to 50 us makes 80 to 200 MB/s; with 4 KiB, 81.9 to 204.8 MB/s.

    base(p) of VGG-16 (256) takes 28 GiB of the 12 GiB, so that it pages, and all of its maps are whole pages.
    """
    workload = Workload(build_network("vgg16"), 256)
    server = shipped_server("titan_x_maxwell")
    simulator = Simulator.of(workload, server, MemoryModel.IDEAL, PinnedMemory.ARENA)

    trace = simulator.run(PageMigration(page_latency=latency), simulator.oracle())[0].trace

    rates = {
        trace.plan.buffers[copy.buffer].nbytes / (span.end_s - span.start_s)
        for span in trace.spans_on(Stream.MEMORY)
        if isinstance(copy := trace.plan.operations[span.operation], Offload | Prefetch)
        and trace.plan.buffers[copy.buffer].name in ("map conv1_1", "map conv2_2", "map pool1")
    }
    assert rates
    assert all(rate == pytest.approx(bytes_per_s, rel=1e-6) for rate in rates)


def test_a_memory_model_with_addresses_is_refused() -> None:
    """A model that places buffers in one piece would refuse plans that paging can run."""
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})
    placed = replace(TOY_LIMITS, model=MemoryModel.BEST_FIT)

    with pytest.raises(PolicyError, match="memory_model: found 'best_fit', expected 'ideal'"):
        make_plan(PageMigration(), toy_setting(workload, costs, placed))
