"""Fig. 9 of the vDNN paper, span by span."""

from tests.toy import replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.operations import Compute, Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace, StallCause
from vdnnsim.policies.vdnn import VdnnAll

F, D, W = Phase.FORWARD, Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
_SHORT = {F: "FWD", D: "BWD data", W: "BWD weights"}


def story(trace: IterationTrace) -> list[tuple[str, float, float]]:
    """Name every span as the figure does: FWD(n), OFF(n), PRE(n), where n is the layer whose X is copied."""
    layers, buffers = trace.plan.layers, trace.plan.buffer_names
    lines = []
    for span in trace.spans:
        match trace.plan.operations[span.operation]:
            case Compute(layer=layer, phase=phase):
                name = f"{_SHORT[phase]}({layers[layer]})"
            case Offload(buffer=buffer):
                name = f"OFF({buffers[buffer]})"
            case Prefetch(buffer=buffer):
                name = f"PRE({buffers[buffer]})"
            case _:
                raise AssertionError(span)
        lines.append((name, span.start_s, span.end_s))
    return lines


def test_offload_stalls_the_next_layer_only_where_it_outlasts_its_own() -> None:
    """Three CONV layers whose X hold 10 B each, an FC layer and the loss; the link moves 1 B/s, so a copy takes 10 s.

    Forward. FWD(1) takes 4 s from 0, OFF(1) runs from 0 to 10: FWD(2) is stalled from 4 to 10. FWD(2) takes 15 s and
    hides OFF(2), from 10 to 20: no stall, FWD(3) starts at 25. FWD(3) takes 12 s and hides OFF(3), from 25 to 35; it
    ends at 37. The FC layer and the loss take 1 s each, to 39. The classifier's input is not offloaded.

    Backward. The loss launches nothing: 39 to 40. The FC layer's backward, 5 s + 5 s, launches PRE(3) at 40; both end
    at 50. BWD(3), 6 s + 6 s, hides PRE(2), 50 to 60, and ends at 62. BWD(2), 2 s + 2 s, ends at 66, but PRE(1) runs
    from 62 to 72: BWD(1) is stalled from 66 to 72. It has only weight gradients, 3 s, and ends the iteration at 75.
    """
    workload = toy_workload(toy_chain(3))
    backward = {("fc", D): 5.0, ("fc", W): 5.0, ("conv3", D): 6.0, ("conv3", W): 6.0}
    backward |= {("conv2", D): 2.0, ("conv2", W): 2.0, ("conv1", W): 3.0}
    costs = toy_costs(workload, {("conv1", F): 4.0, ("conv2", F): 15.0, ("conv3", F): 12.0, **backward})
    trace = replay(VdnnAll().plan(toy_setting(workload, costs)), costs)
    assert story(trace) == [
        *(("FWD(conv1)", 0, 4), ("OFF(map input)", 0, 10), ("FWD(conv2)", 10, 25), ("OFF(map conv1)", 10, 20)),
        *(("FWD(conv3)", 25, 37), ("OFF(map conv2)", 25, 35), ("FWD(fc)", 37, 38), ("FWD(loss)", 38, 39)),
        *(("BWD data(loss)", 39, 40), ("PRE(map conv2)", 40, 50), ("BWD data(fc)", 40, 45)),
        *(
            ("BWD weights(fc)", 45, 50),
            ("PRE(map conv1)", 50, 60),
            ("BWD data(conv3)", 50, 56),
            ("BWD weights(conv3)", 56, 62),
        ),
        *(("PRE(map input)", 62, 72), ("BWD data(conv2)", 62, 64), ("BWD weights(conv2)", 64, 66)),
        ("BWD weights(conv1)", 72, 75),
    ]
    assert [(stall.start_s, stall.end_s, stall.cause) for stall in trace.stalls] == [
        (4, 10, StallCause.OFFLOAD),
        (66, 72, StallCause.PREFETCH),
    ]
    assert trace.iteration_s == 75
    assert trace.host_bytes == 30, "the three X are on the host at once"
