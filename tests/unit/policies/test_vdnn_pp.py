"""`vdnn_pp` on a chain, beside vDNN, every second and byte worked out by hand.

conv1, conv2, fc, loss; maps of 10 B but for those of fc and the loss, 2 B; 264 B of W and dW. Kernels take 5 s, a map
is copied in 10 s. The input and the map of conv1 are offloaded.

vDNN waits at the end of conv1 and of conv2 for their copies, 20 s; forward ends at 30 s. Backward of the loss ends at
35; conv1 is prefetched beside fc, 10 s, and the input beside conv2, 10 s; conv1 ends at 60 s. Most is held in conv2:
two maps and two gradient maps, 40 B.
"""

from dataclasses import replace

import pytest

from tests.toy import (
    TOY_LIMITS,
    overflow_of,
    replayed,
    toy_chain,
    toy_costs,
    toy_graph,
    toy_setting,
    toy_workload,
)
from tests.unit.policies.copies import timed
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.policies.vdnn_pp import Offloaded, VdnnPlusPlus

CHAIN = toy_workload(toy_chain(2))


def trace_of(policy: Policy, workload: Workload = CHAIN, capacity_bytes: int = 1000) -> IterationTrace:
    """An iteration with kernels of 5 s."""
    costs, limits = toy_costs(workload, {}, default_s=5.0), replace(TOY_LIMITS, device_bytes=capacity_bytes)
    return replayed(policy, workload, costs, limits=limits)


def copies(trace: IterationTrace) -> list[tuple[str, str, float, float]]:
    """(kind, map, start, end) of all copies."""
    return [(kind, name.removeprefix("map "), start_s, end_s) for kind, name, _, start_s, end_s in timed(trace)]


def test_copies_run_on_beside_later_layers() -> None:
    """Forward takes 20 s without a wait; backward that of vDNN, 30 s, for both maps are prefetched in time.

    In fc the input, offloaded from 0 s on, would make 42 B; its copy is done by then, and nothing waits.
    """
    trace, vdnn = trace_of(VdnnPlusPlus()), trace_of(VdnnAll())
    assert copies(trace) == [
        ("Offload", "input", 0, 10),
        ("Offload", "conv1", 10, 20),
        ("Prefetch", "conv1", 25, 35),
        ("Prefetch", "input", 35, 45),
    ]
    assert (trace.iteration_s, vdnn.iteration_s) == (50, 60)
    assert maximum_bytes(trace) == maximum_bytes(vdnn) == 264 + 40


def test_a_request_beyond_vdnns_memory_waits_for_an_offload() -> None:
    """Five CONV layers, 40 B beside W under vDNN, whose every CONV layer takes 10 s forward: 120 s in all.

    conv4 gets the memory of the input, offloaded at 10 s, conv5 that of conv1 at 20 s. At 25 s fc needs 2 B more
    than there is: it waits for conv2, offloaded from 20 to 30 s. Backward of the loss ends at 45 s; conv4 is offloaded
    at 50 s and prefetched beside fc. Five layers of 10 s and conv1 of 5 s end at 105 s.
    """
    chain = toy_workload(toy_chain(5))
    trace, vdnn = trace_of(VdnnPlusPlus(), chain), trace_of(VdnnAll(), chain)

    assert [span.start_s for span in trace.spans_on(Stream.COMPUTE)][:8] == [0, 5, 10, 15, 20, 30, 35, 40]
    assert copies(trace)[4:6] == [("Offload", "conv4", 40, 50), ("Prefetch", "conv4", 50, 60)]
    assert (trace.iteration_s, vdnn.iteration_s) == (105, 120)
    assert maximum_bytes(trace) == maximum_bytes(vdnn) == 624 + 40


def test_there_may_be_less_memory_than_vdnn_wants() -> None:
    """With 302 B of the 304 B it does not fit, and asks for no more."""
    costs, limits = toy_costs(CHAIN, {}), replace(TOY_LIMITS, device_bytes=302)
    refusal = overflow_of(VdnnPlusPlus().plan(toy_setting(CHAIN, costs, limits)), limits)
    assert refusal.plan.buffers[refusal.buffer].name == "gradient of conv1"


@pytest.mark.parametrize(("maps", "expected"), [("all", ["input", "conv1", "pool"]), ("conv", ["input", "pool"])])
def test_which_maps_leave_is_an_option(maps: str, expected: list[str]) -> None:
    """The pool reads the map of conv1 and is no CONV layer."""
    workload = toy_workload(toy_graph("conv1 conv; pool pool; conv2 conv"))

    trace = trace_of(VdnnPlusPlus(maps=Offloaded(maps)), workload)

    assert [name for kind, name, *_ in copies(trace) if kind == "Offload"] == expected
