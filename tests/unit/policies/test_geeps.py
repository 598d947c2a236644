"""`geeps` on a chain, every second and byte worked out by hand.

conv1, conv2, fc, loss; the maps of the input, conv1 and conv2 and the gradients of the latter two hold 10 B, those of
fc and the loss 2 B; 264 B of W and dW. The largest access is backward of conv2, of conv1 and both gradients: 30 B, and
the pool has 60 B. Neither of the next two accesses reads the input after conv1, conv1 after conv2, conv2 after fc.
"""

from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, replayed, toy_chain, toy_costs, toy_graph, toy_setting, toy_workload
from tests.unit.policies.copies import timed
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Compute, Stream
from vdnnsim.plans.placement import Placement, place_plan
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.geeps import GeePS

CHAIN = toy_workload(toy_chain(2))


def trace_of(kernel_s: float, workload: Workload = CHAIN) -> IterationTrace:
    costs, limits = toy_costs(workload, {}, default_s=kernel_s), replace(TOY_LIMITS, device_bytes=2000)
    return replayed(GeePS(), workload, costs, limits=limits)


def test_copies_overlap_with_the_neighbouring_accesses() -> None:
    """Ten kernels of 10 s, each copy beside one of them: 100 s; conv2 is offloaded before the loss prefetches it."""
    trace = trace_of(10)
    assert timed(trace) == [
        ("Offload", "map input", "conv1", 10, 20),
        ("Offload", "map conv1", "conv2", 20, 30),
        ("Offload", "map conv2", "fc", 30, 40),
        ("Prefetch", "map conv2", "loss", 40, 50),
        ("Prefetch", "map conv1", "fc", 50, 60),
        ("Prefetch", "map input", "conv2", 70, 80),
    ]
    assert trace.iteration_s == 100
    assert trace.host_bytes == 30
    # 60 B from the first kernel to the last, whatever is in it.
    assert maximum_bytes(trace) == 264 + 60
    during = [span.start_s + 1 for span in trace.spans_on(Stream.COMPUTE)]
    held = [sum(change.delta_bytes for change in trace.memory if change.time_s <= moment) for moment in during]
    assert held == [264 + 60] * 10


def test_an_access_waits_for_the_offloads_of_the_one_before_the_last() -> None:
    """Kernels of 5 s: fc waits for the input till 15, forward of the loss for conv1 till 25, its backward for conv2.

    That ends at 35; conv2 is prefetched till 45, for which fc waits, conv1 till 55, as long as fc takes; the input is
    prefetched beside conv2, and conv1 ends at 70.
    """
    trace = trace_of(5)

    assert [span.start_s for span in trace.spans_on(Stream.COMPUTE)] == [0, 5, 15, 25, 35, 45, 50, 55, 60, 65]
    assert timed(trace)[3:] == [
        ("Prefetch", "map conv2", "loss", 35, 45),
        ("Prefetch", "map conv1", "fc", 45, 55),
        ("Prefetch", "map input", "conv2", 55, 65),
    ]
    assert trace.iteration_s == 70


def test_unchanged_data_are_offloaded_once() -> None:
    """Both branches read the output of bn, five layers apart: it is prefetched for the second and for both backwards.

    One branch begins the sum of its gradient, which is prefetched for the other. Statistics are copied as maps are.
    """
    left = "left1 conv; left2 conv; left3 conv; left4 conv"
    right = "right1 conv bn; right2 conv; right3 conv; right4 conv"
    trace = trace_of(10, toy_workload(toy_graph(f"stem conv; bn bn; {left}; {right}; join add left4 right4")))

    out = [name for kind, name, *_ in timed(trace) if kind == "Offload"]
    back = [name for kind, name, *_ in timed(trace) if kind == "Prefetch"]
    assert {name: (out.count(name), back.count(name)) for name in set(out)} == {
        "map input": (1, 1),
        "map stem": (1, 1),
        "statistics of bn": (1, 1),
        "map bn": (1, 3),
        **{f"map {side}{number}": (1, 1) for side in ("left", "right") for number in range(1, 4)},
        "map left4": (1, 1),
        "map join": (1, 1),
        "gradient of left4": (1, 1),
        "gradient of bn": (1, 1),
    }


def test_an_access_without_room_waits_for_offloads() -> None:
    """Forward alone, in a pool of 40 B; an access is of 20 B; q reads p, s reads r, three and four accesses later.

    x and y are offloaded from 40 to 50 and to 60 s; q at 40 s needs 10 B, and r ahead of s 10 B, beside p: q waits
    for x. Then r is prefetched from 60 to 70 s, after y, and s waits for it.
    """
    interleaved = "p conv; r conv input; x conv input; y conv x; q conv p; s conv r"
    ends = "end0 conv 1 x; end1 conv 1 y; end2 conv 1 q; end3 conv 1 s"
    sums = "sum0 add end0 end1; sum1 add sum0 end2; sum2 add sum1 end3"
    workload = toy_workload(toy_graph(f"{interleaved}; {ends}; {sums}"))
    trace = trace_of(10, replace(workload, mode=Mode.INFERENCE))

    assert [span.start_s for span in trace.spans_on(Stream.COMPUTE)][:6] == [0, 10, 20, 30, 50, 70]
    assert timed(trace)[:6] == [
        ("Offload", "map p", "p", 10, 20),
        ("Offload", "map r", "r", 20, 30),
        ("Prefetch", "map p", "y", 30, 40),
        ("Offload", "map x", "y", 40, 50),
        ("Offload", "map y", "y", 50, 60),
        ("Prefetch", "map r", "q", 60, 70),
    ]


@pytest.mark.parametrize("network", ["tiny_forked", "tiny_residual", "googlenet"])
@pytest.mark.parametrize("mode", list(Mode))
def test_no_access_needs_more_than_the_pool(network: str, mode: Mode) -> None:
    """Without workspaces the maximum is what is held throughout and twice the largest access, to the byte."""
    workload = Workload(build_network(network), 2, mode=mode)
    limits = replace(TOY_LIMITS, device_bytes=2**40, host_bytes=2**40, granule_bytes=512)
    policy = GeePS()
    plan = policy.plan(toy_setting(workload, toy_costs(workload, {}), limits))
    placement = place_plan(plan, limits)

    def rounded(buffers: set[int]) -> int:
        return sum(-(-plan.buffers[buffer].nbytes // 512) * 512 for buffer in buffers)

    check_plan(plan)
    assert isinstance(placement, Placement)
    local = {each for each, buffer in enumerate(plan.buffers) if buffer.kind.value.endswith(("maps", "statistics"))}
    if mode is Mode.INFERENCE:
        local = {each for each in local if plan.buffers[each].kind.value.endswith("maps")}
    accesses: dict[tuple[int, bool], set[int]] = {}
    for op in plan.operations:
        if isinstance(op, Compute):
            key = op.layer, op.phase.value.startswith("backward")
            accesses.setdefault(key, set()).update(local.intersection((*op.reads, *op.writes)))
    others = {each for each, buffer in enumerate(plan.buffers) if each not in local and buffer.nbytes}
    assert placement.pool_bytes == rounded(others) + 2 * max(map(rounded, accesses.values()))


def test_a_workspace_lies_beside_the_pool() -> None:
    conv2 = next(layer for layer in CHAIN.graph.layers if layer.name == "conv2")
    costs = toy_costs(CHAIN, {}, workspace_bytes={("conv2", conv2.backward_phases[0]): 100})

    assert maximum_bytes(replayed(GeePS(), CHAIN, costs)) == 264 + 60 + 100
