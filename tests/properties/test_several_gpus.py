"""Invariants of several GPUs that copy and exchange over random trees of links, and of DDP's buckets."""

from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.random_plans import ROOMY, cost_tables, servers, vdnn_policies, workloads
from tests.toy import placement_of, toy_setting
from tests.unit.plans.hand_written import script
from vdnnsim.dnn.workload import Mode
from vdnnsim.engine.simulate import simulate, simulate_server
from vdnnsim.hardware.topology import Hop, Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.buckets import BUCKET_BYTES, FIRST_BUCKET_BYTES
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Allocate, AllReduce, Compute, Operation, Release, Stream
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan

MOST_GPUS = 4
_RATES = st.sampled_from((0.5, 1.0, 3.0, 64.0))


@st.composite
def links(draw: st.DrawFn, name: str) -> TopologyLink:
    kept = draw(st.sampled_from((0.5, 0.875))), draw(st.sampled_from((0.5, 0.875)))
    latency_s = draw(st.sampled_from((0.0, 0.25)))
    return TopologyLink(name, draw(_RATES), draw(_RATES), latency_s, draw(st.sampled_from(Sharing)), *kept)


@st.composite
def trees(draw: st.DrawFn) -> Topology:
    """A socket, up to two switches below it, GPUs on any of these, and now and then a peer link."""
    nodes = [
        Node("memory", NodeKind.HOST_MEMORY, None, None),
        Node("socket", NodeKind.SOCKET, "memory", draw(links("dram"))),
    ]
    parents = ["socket"]
    for number in range(draw(st.integers(0, 2))):
        name = f"switch{number}"
        nodes.append(Node(name, NodeKind.SWITCH, draw(st.sampled_from(parents)), draw(links(f"to {name}"))))
        parents.append(name)
    gpus = [f"gpu{number}" for number in range(draw(st.integers(2, MOST_GPUS)))]
    nodes += [Node(gpu, NodeKind.GPU, draw(st.sampled_from(parents)), draw(links(f"to {gpu}"))) for gpu in gpus]
    peers = (PeerLink(gpus[0], gpus[1], draw(links("peer"))),) if draw(st.booleans()) else ()
    return Topology(tuple(nodes), peers)


@dataclass(frozen=True)
class Together:
    """One iteration of several GPUs, and the tree on which it ran."""

    trace: ServerTrace
    topology: Topology


def placed(plan: TrainingPlan) -> tuple[TrainingPlan, Placement]:
    check_plan(plan)
    placement = placement_of(plan, ROOMY)
    return plan, placement


@st.composite
def iterations(draw: st.DrawFn) -> Together:
    """Each GPU trains the same network under a policy of its own, gradients exchanged in any way."""
    workload = replace(draw(workloads()), mode=Mode.TRAINING)
    costs = draw(cost_tables(workload))
    topology, aggregation = draw(trees()), draw(st.sampled_from(Aggregation))
    server = replace(draw(servers()), topology=topology)
    plans = [draw(vdnn_policies()).plan(toy_setting(workload, costs, ROOMY)) for _ in topology.gpus]
    work = [placed(aggregate_gradients(plan, aggregation)) for plan in plans]
    return Together(simulate_server(work, costs, server, draw(st.sampled_from(PinnedMemory))), topology)


def carries(link: TopologyLink, up: float, down: float) -> bool:
    slack = 1 + 1e-9
    if link.sharing is Sharing.SHARED:
        return up + down <= max(link.up_bytes_per_s, link.down_bytes_per_s) * slack
    lossy = link.sharing is Sharing.LOSSY_DUPLEX and up > 0 and down > 0
    kept_up, kept_down = (link.kept_up, link.kept_down) if lossy else (1.0, 1.0)
    return up <= link.up_bytes_per_s * kept_up * slack and down <= link.down_bytes_per_s * kept_down * slack


@settings(max_examples=25)
@given(iterations())
def test_rates_on_a_link_never_exceed_its_bandwidth(together: Together) -> None:
    """At any time, by the last change of each direction; in the end nothing is carried."""
    carried: defaultdict[Hop, float] = defaultdict(float)
    loads = together.trace.loads
    for number, load in enumerate(loads):
        carried[load.hop] = load.bytes_per_s
        if number + 1 < len(loads) and loads[number + 1].time_s == load.time_s:
            continue
        for name, link in together.topology.links.items():
            assert carries(link, carried[Hop(name, Way.UP)], carried[Hop(name, Way.DOWN)])
    assert all(rate == 0 for rate in carried.values())


@settings(max_examples=20)
@given(iterations())
def test_an_exchange_ends_for_all_gpus_at_once_and_begins_when_all_have_come(together: Together) -> None:
    spans = [gpu.spans_on(Stream.COMMUNICATION) for gpu in together.trace.gpus]

    assert len({len(each) for each in spans}) == 1
    for joint in zip(*spans, strict=True):
        assert len({span.end_s for span in joint}) == 1
        assert joint[0].end_s >= max(span.start_s for span in joint)


@settings(max_examples=20)
@given(st.data())
def test_one_gpu_on_a_tree_is_as_fast_as_on_its_own_link(data: st.DataObject) -> None:
    """Split duplex links without latency, the narrowest of which is as fast in each direction as `link`."""
    workload = data.draw(workloads())
    costs = data.draw(cost_tables(workload))
    server = data.draw(servers())
    server = replace(server, link=replace(server.link, latency_s=0.0))
    h2d, d2h = server.link.h2d_bytes_per_s, server.link.d2h_bytes_per_s
    wider = st.sampled_from((1.0, 1.5, 8.0))

    def link(name: str, down: float, up: float) -> TopologyLink:
        return TopologyLink(name, h2d * down, d2h * up, 0.0, Sharing.SPLIT_DUPLEX)

    nodes = (
        Node("memory", NodeKind.HOST_MEMORY, None, None),
        Node("socket", NodeKind.SOCKET, "memory", link("dram", data.draw(wider), 1.0)),
        Node("gpu0", NodeKind.GPU, "socket", link("to gpu0", 1.0, data.draw(wider))),
    )
    plan, placement = placed(data.draw(vdnn_policies()).plan(toy_setting(workload, costs, ROOMY)))
    pinned = data.draw(st.sampled_from(PinnedMemory))

    alone = simulate(plan, costs, server, placement, pinned)
    tree = simulate(plan, costs, replace(server, topology=Topology(nodes)), placement, pinned)

    assert tree.iteration_s == pytest.approx(alone.iteration_s, rel=1e-9, abs=1e-9)


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
