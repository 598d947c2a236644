"""Faults in the order of a toy iteration under vdnn_all."""

from dataclasses import replace

import pytest

from tests.toy import ToyCosts, toy_chain, toy_costs, toy_trace, toy_workload
from tests.unit.validation.fake_device import FakeLaboratory, slowed
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.plans.operations import Offload, Prefetch, Stream
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.vdnn import VdnnAll
from vdnnsim.validation.method import FREE_GPU
from vdnnsim.validation.run.comparison import stated_workspaces
from vdnnsim.validation.run.runs import order_fault


@pytest.fixture
def trace() -> IterationTrace:
    return toy_trace(VdnnAll(), 3)


def moved(trace: IterationTrace, operation: int, delay_s: float) -> IterationTrace:
    delays = [delay_s if span.operation == operation else 0.0 for span in trace.spans]
    pairs = zip(trace.spans, delays, strict=True)
    return replace(trace, spans=tuple(replace(one, start_s=one.start_s + s, end_s=one.end_s + s) for one, s in pairs))


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_uniformly_slower_trace_keeps_the_order(trace: IterationTrace, factor: float) -> None:
    assert order_fault(slowed(trace, factor), trace, 0.0) is None


def test_operations_out_of_order(trace: IterationTrace) -> None:
    """Forward of conv1 and conv2 are the first two kernels."""
    first, second, *rest = trace.spans_on(Stream.COMPUTE)
    swapped = replace(trace, spans=(second, first, *rest, *trace.spans_on(Stream.MEMORY)))
    assert order_fault(swapped, trace, 0.0) == (
        "forward of conv2 (only) ran as number 1 of its stream, expected forward of conv1 (only)"
    )
    # A copy that is missing.
    copies = trace.spans_on(Stream.MEMORY)
    short = replace(trace, spans=(*trace.spans_on(Stream.COMPUTE), *copies[:-1]))
    assert order_fault(short, trace, 0.0) == (f"{len(copies) - 1} spans on the memory stream, expected {len(copies)}")
    # Both streams are synchronized at the end of conv1, so its offload of 10 s ends before that of conv2 is issued.
    offload = [span for span in trace.spans if isinstance(trace.plan.operations[span.operation], Offload)][1]
    early = moved(trace, offload.operation, -0.5)
    former, latter = "offload of map input during forward of conv1", "offload of map conv1 during forward of conv2"
    assert order_fault(early, trace, 0.0) == f"{latter} started before {former} had ended"
    assert order_fault(early, trace, 0.5) is None
    # A kernel that starts before the prefetch that it reads.
    position = next(number for number, operation in enumerate(trace.plan.operations) if isinstance(operation, Prefetch))
    fault = order_fault(moved(trace, position, 1000.0), trace, 0.0)
    assert fault is not None
    assert "started before" in fault


FAST, LEAN = (KernelCost(name, 1.0, 100, Origin.FITTED) for name in ("fast", "lean"))


MEASURED = replace(FAST, origin=Origin.MEASURED)


@pytest.mark.parametrize(
    ("options", "stated", "expected"),
    [
        ((FAST, LEAN), {"fast": 7, "lean": 0}, (replace(FAST, workspace_bytes=7), replace(LEAN, workspace_bytes=0))),
        ((FAST, LEAN), {"lean": 3}, (replace(LEAN, workspace_bytes=3),)),
        ((FAST, LEAN), {"other": 3}, (FAST, LEAN)),
        ((MEASURED, LEAN), {"fast": 7, "lean": 3}, (MEASURED, replace(LEAN, workspace_bytes=3))),
        ((MEASURED,), {}, (MEASURED,)),
    ],
    ids=["unmeasured", "one that the device lacks", "all that the device lacks", "measured", "nothing stated"],
)
def test_workspaces_of_unmeasured_kernels_are_those_that_the_device_states(
    options: tuple[KernelCost, ...], stated: dict[str, int], expected: tuple[KernelCost, ...]
) -> None:
    workload = toy_workload(toy_chain(1))
    costs = ToyCosts({**toy_costs(workload, {}).kernels, (0, Phase.FORWARD): options})
    executor = FakeLaboratory(FREE_GPU, stated={("conv1", Phase.FORWARD): stated}).executor(workload)
    assert stated_workspaces(costs, executor).table(workload).options(0, Phase.FORWARD) == expected
