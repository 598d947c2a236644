"""`accumulate` on a chain of four images, every second and byte worked out by hand.

conv1, conv2, fc, loss: of each image the input and the maps of the CONV layers hold 10 B, those of fc and the loss 2 B.
Kernels take 1 s for the batch of four and a second a quarter for an image. W are 2 x 30 + 6 elements, 132 B, and so are
dW: 264 B. Forward has 4 kernels, backward 6. Most is held in the weight gradient of fc, or in the data gradient of
conv2: there the input, conv1, and the gradients of conv2 and conv1, 40 B an image; before it the input, conv1, conv2,
and the gradient of conv2, 40 B, and that of fc, 2 B. So 42 B an image.
"""

from collections import Counter
from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, TOY_SERVER, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.analysis.metrics import measure
from vdnnsim.claims.vdnn2016.power import kernel_bytes, power_curve
from vdnnsim.cost.table import AdjustedCosts, KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Power
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.descriptions import describe
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Compute
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Resident
from vdnnsim.policies.interface import make_plan
from vdnnsim.units import ElementType

CHAIN = replace(toy_workload(toy_chain(2)), batch_size=4)


def plan_of(policy: Accumulate, workload: Workload = CHAIN, device_bytes: int = 1000) -> TrainingPlan:
    limits = replace(TOY_LIMITS, device_bytes=device_bytes)
    plan = make_plan(policy, toy_setting(workload, toy_costs(workload, {}), limits))
    check_plan(plan)
    return plan


def kernels(plan: TrainingPlan) -> list[Compute]:
    return [op for op in plan.operations if isinstance(op, Compute)]


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_memory_shrinks_with_the_part_and_time_does_not_change(steps: int) -> None:
    """Kernels that cost by the image take 10 s for all; the rate is that of four images."""
    costs = toy_costs(CHAIN, {})
    trace = replay(plan_of(Accumulate(steps=steps)), costs)

    assert maximum_bytes(trace) == 264 + 42 * 4 // steps
    assert trace.iteration_s == 10
    assert measure(trace, CHAIN.batch_size).samples_per_s == 0.4
    assert Counter(op.phase for op in kernels(trace.plan)) == {
        Phase.FORWARD: 4 * steps,
        Phase.BACKWARD_DATA: 3 * steps,
        Phase.BACKWARD_WEIGHTS: 3 * steps,
    }


def test_kernels_name_their_part_and_accumulate_weight_gradients() -> None:
    plan = plan_of(Accumulate(steps=2))
    sums = [i for i, each in enumerate(plan.buffers) if each.kind is BufferKind.WEIGHT_GRADIENT]
    first, second = (kernels(plan)[:10], kernels(plan)[10:])
    assert {op.part for op in first} == {1}
    assert {op.part for op in second} == {2}
    assert plan.workload.part_size == 2
    assert not [op for op in first if set(op.reads) & set(sums)]
    assert [op.phase for op in second if set(op.reads) & set(sums)] == [Phase.BACKWARD_WEIGHTS] * 3
    assert describe(second[0], plan.buffer_names, plan.layers) == "forward of conv1 (only, part 2 of the batch)"
    # One step is training without parts.
    setting = toy_setting(CHAIN, toy_costs(CHAIN, {}))
    assert kernels(plan_of(Accumulate(steps=1))) == kernels(Resident().plan(setting))


def test_energy_and_traffic_are_those_of_the_parts() -> None:
    """At 1 J a FLOP and nothing else a batch takes the same energy in parts; a part moves what its cost says."""
    server = replace(TOY_SERVER, power=Power(0.0, 1.0, 0.0, 0.0))
    server = replace(server, gpu=replace(server.gpu, flop_per_s={ElementType.FLOAT16: 1e9}))
    costs = toy_costs(CHAIN, {})
    traces = [replay(plan_of(Accumulate(steps=steps)), costs) for steps in (1, 2)]
    model = AdjustedCosts(
        costs,
        lambda workload, _layer, _phase, options: tuple(
            replace(each, dram_bytes=workload.part_size + 5) for each in options
        ),
    )

    whole, halves = (power_curve(trace, costs, server).energy_joules for trace in traces)
    assert halves == whole
    assert kernel_bytes(model.table(traces[1].plan.workload), kernels(traces[1].plan)[0]) == 7


def test_updates_run_once_and_inference_in_parts() -> None:
    """Three layers with W; 10 s for the parts, 3 s for the updates."""
    workload = replace(CHAIN, optimizer=Optimizer.SGD)
    trace = replay(plan_of(Accumulate(steps=2), workload), toy_costs(workload, {}))
    assert [op.part for op in kernels(trace.plan) if op.phase is Phase.UPDATE] == [0, 0, 0]
    assert trace.iteration_s == 13
    # Two maps of two images, 40 B, above 132 B of W.
    workload = replace(CHAIN, mode=Mode.INFERENCE)
    trace = replay(plan_of(Accumulate(steps=2), workload), toy_costs(workload, {}))
    assert trace.iteration_s == 4
    # The input of the next part takes the place of the last one's, which is held until then.
    assert maximum_bytes(trace) == 132 + 60


@pytest.mark.parametrize(
    ("device_bytes", "parts"),
    [(264 + 168, 1), (264 + 167, 2), (264 + 84, 2), (264 + 83, 4), (264 + 42, 4), (264 + 41, 4)],
)
def test_by_default_it_takes_the_fewest_steps_that_fit(device_bytes: int, parts: int) -> None:
    """In the least of these memories not even single images do."""
    plan = plan_of(Accumulate(), device_bytes=device_bytes)

    assert sum(op.phase is Phase.FORWARD for op in kernels(plan)) == 4 * parts


@pytest.mark.parametrize("steps", [3, 8])
def test_unequal_parts_are_refused(steps: int) -> None:
    with pytest.raises(PolicyError, match=f"found {steps}, expected a divisor of the batch, 512 at most: 1, 2, 4$"):
        plan_of(Accumulate(steps=steps))


@pytest.mark.parametrize(
    ("batch_size", "device_bytes", "parts"),
    [
        # A part of one image fits, and one of two does not.
        (512, 264 + 83, 512),
        # No image fits: of at most 512 parts the most.
        (1026, 264 + 41, 342),
    ],
)
def test_a_plan_has_at_most_512_parts(batch_size: int, device_bytes: int, parts: int) -> None:
    plan = plan_of(Accumulate(), replace(CHAIN, batch_size=batch_size), device_bytes=device_bytes)
    assert sum(op.phase is Phase.FORWARD for op in kernels(plan)) == 4 * parts


@pytest.mark.parametrize("images", [514, 521, 1026])
def test_a_batch_that_needs_more_parts_is_refused(images: int) -> None:
    """Parts of a single image alone fit: 514 are twice 257, 521 is prime, 1026 could be 342 parts of three."""
    with pytest.raises(PolicyError, match=f"found a batch of {images} that fits only in more than 512 equal parts"):
        plan_of(Accumulate(), replace(CHAIN, batch_size=images), device_bytes=264 + 83)


def test_more_parts_may_need_more_memory_than_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of four parts fit into 264 + 84 B; where a memory model left gaps and four did not, eight would be next."""

    def place(plan: TrainingPlan, limits: MemoryLimits) -> Placement | DoesNotFit:
        parts = sum(op.phase is Phase.FORWARD for op in kernels(plan)) // 4
        return place_plan(plan, replace(limits, device_bytes=0) if parts == 4 else limits)

    monkeypatch.setattr("vdnnsim.policies.accumulate.place_plan", place)
    plan = plan_of(Accumulate(), replace(CHAIN, batch_size=8), device_bytes=264 + 84)
    assert sum(op.phase is Phase.FORWARD for op in kernels(plan)) == 4 * 8


def test_algorithms_are_chosen_by_their_costs_for_a_part() -> None:
    """Each kernel has two algorithms: one is the faster for four images, the other for two."""

    def options(
        workload: Workload, _layer: Layer, _phase: Phase, only: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        names = ("whole", "part") if workload.part_size == 4 else ("part", "whole")
        return tuple(replace(only[0], algorithm=name, seconds=1.0 + rank) for rank, name in enumerate(names))

    setting = toy_setting(CHAIN, AdjustedCosts(toy_costs(CHAIN, {}), options))
    chosen = [{op.algorithm for op in kernels(Accumulate(steps=steps).plan(setting))} for steps in (1, 2)]

    assert chosen == [{"whole"}, {"part"}]
