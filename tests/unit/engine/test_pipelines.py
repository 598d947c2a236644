"""Two stages of a pipeline on two hosts with two GPUs each; every kernel takes 1 s, a network card carries 10 B/s.

A stage has one product, and ranks 0 and 1, or 2 and 3. Activations and their gradients are 8 B, which take 0.8 s over
the cards of their ranks.
"""

from dataclasses import replace

import pytest

from tests.captured_steps import DW, DX, DY, GRADIENT, MAP, WEIGHTS, Recording, W, X, Y
from tests.toy import server_with
from tests.two_gpus import SERVER as TWO
from tests.unit.engine.test_collectives import HOSTS
from vdnnsim.analysis.several_gpus import exchanges, waits_s
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.errors import SimulationDeadlock
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.trace import ServerTrace, StallCause
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.simulator import Simulator

SERVER = server_with({"launch_overhead_s": 1.0})
SERVER = replace(
    SERVER,
    gpu=replace(TWO.gpu, dram_bytes_per_s=1e9, flop_per_s=dict.fromkeys(SERVER.gpu.flop_per_s, 1e9)),
    topology=HOSTS,
)
F, B = Phase.FORWARD, Phase.BACKWARD
PRODUCT = ProductWork(1, 1, 1, 1)


def peer(kind: CollectiveKind, stride: int) -> Collective:
    return Collective(kind, 8, "float32", 2, stride)


def first_stage(sends: int = 1, gathers: int = 0) -> CapturedStep:
    """It multiplies and sends the result; then receives the gradient and multiplies twice less one.

    Before that it may gather its weight.
    """
    r = Recording("first", 1, ("fc1",))
    w, x = r.memory("w", WEIGHTS, (2,), given=True), r.memory("x", MAP, (2,), given=True)
    y, d_y = r.memory("y", MAP, (2,), held=True), r.memory("dy", GRADIENT, (2,))
    d_w = r.memory("dw", BufferKind.WEIGHT_GRADIENT, (2,), held=True)
    for _ in range(gathers):
        gather = Collective(CollectiveKind.ALL_GATHER, 8, "float32", ranks=2)
        r.run("all_gather", "fc1", F, updates=[(W, w)], collective=gather, aside=True)
    product = r.run("mm", "fc1", F, reads=[(X, x), (W, w)], writes=[(Y, y)], saves=[x], work=PRODUCT)
    for _ in range(sends):
        r.run("send", "fc1", F, reads=[(Y, y)], collective=peer(CollectiveKind.SEND, 2), aside=True)
    r.run("recv", "fc1", B, writes=[(DY, d_y)], collective=peer(CollectiveKind.RECEIVE, 2), aside=True)
    r.run("mm", "fc1", B, reads=[(DY, d_y), (X, x)], writes=[(DW, d_w)], forward=product, work=PRODUCT)
    return r.step()


def last_stage() -> CapturedStep:
    """It receives, multiplies, and sends back what it makes of the result."""
    r = Recording("last", 1, ("fc2",))
    w, x = r.memory("w", WEIGHTS, (2,), given=True), r.memory("x", MAP, (2,))
    y, d_x = r.memory("y", MAP, (2,), held=True), r.memory("dx", GRADIENT, (2,))
    r.run("recv", "fc2", F, writes=[(X, x)], collective=peer(CollectiveKind.RECEIVE, -2), aside=True)
    r.run("mm", "fc2", F, reads=[(X, x), (W, w)], writes=[(Y, y)], work=PRODUCT)
    r.run("mm", "fc2", B, reads=[(Y, y), (W, w)], writes=[(DX, d_x)], forward=1, work=PRODUCT)
    r.run("send", "fc2", B, reads=[(DX, d_x)], collective=peer(CollectiveKind.SEND, -2), aside=True)
    return r.step()


def replay(*steps: CapturedStep) -> ServerTrace:
    work = []
    for step in steps:
        simulator = Simulator.of(CapturedWorkload.of(step), SERVER, MemoryModel.IDEAL, PinnedMemory.ARENA)
        (plan,) = simulator.planned(PyTorch()).plans
        work.append((plan, simulator.place_unlimited(plan)))
    return simulate_server(work, simulator.cost_model, SERVER, PinnedMemory.ARENA, ranks=[(0, 1), (2, 3)])


def test_stages_wait_for_each_other() -> None:
    """Forward of the first ends at 1 s, its result arrives at 1.8; the last is through at 3.8, and its gradient at 4.6.

    So the first waits from 1 to 4.6 s and ends at 5.6, the last waits for 1.8 s.
    """
    first, last = replay(first_stage(), last_stage()).gpus

    def ends(stage: int, stream: Stream) -> list[float]:
        return [round(span.end_s, 3) for span in (first, last)[stage].spans_on(stream)]

    assert [ends(0, each) for each in (Stream.COMPUTE, Stream.SEND, Stream.RECEIVE)] == [[1.0, 5.6], [1.8], [4.6]]
    assert [ends(1, each) for each in (Stream.RECEIVE, Stream.COMPUTE, Stream.SEND)] == [[1.8], [2.8, 3.8], [4.6]]
    waits = [[(each.cause, round(each.end_s - each.start_s, 2)) for each in stage.stalls] for stage in (first, last)]
    assert waits == [[(StallCause.PIPELINE, 3.6)], [(StallCause.PIPELINE, 1.8)]]


def test_a_send_that_nobody_receives_ends_in_a_message() -> None:
    with pytest.raises(SimulationDeadlock, match="send stream at operation") as caught:
        replay(first_stage(sends=2), last_stage())
    assert "send of 2 ranks in forward of fc1" in str(caught.value)


def test_a_collective_within_a_stage_is_no_exchange_of_all() -> None:
    trace = replay(first_stage(gathers=1), last_stage())
    assert [len(each.spans_on(Stream.COMMUNICATION)) for each in trace.gpus] == [1, 0]
    assert exchanges(trace) == ()
    assert waits_s(trace) == ((0.0, 0.0), (0.0, 0.0))
