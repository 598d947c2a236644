"""Bytes that kernels hold, idle bytes and what can be offloaded, on networks whose memory is counted by hand.

Maps of conv layers, the input and their gradients hold 10 B, those of fc and of the loss 2 B. A CONV layer of the toy
network has 5 x 5 + 5 weights, so that W and dW of it hold 60 B each; fc has 5 + 1, 12 B each. All that is held
throughout is 2 x (60 + 60 + 12) = 264 B.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from msgspec.structs import replace as replace_struct

from tests.captured_steps import chain
from tests.toy import ToyCosts, toy_chain, toy_costs, toy_graph, toy_workload
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode
from vdnnsim.hardware.server import Origin
from vdnnsim.planning.problem import Problem, problem_of
from vdnnsim.plans.schedule import Offload, Run, ScheduleStep, iteration

CHAIN = toy_chain(2)


def problem(graph: LayerGraph = CHAIN, *, granule_bytes: int = 1) -> Problem:
    """The problem of an iteration in its own order, on 1000 B."""
    workload = toy_workload(graph)
    costs = toy_costs(workload, {}).table(workload)
    return problem_of(iteration(workload), workload, costs, 1000, granule_bytes)


def waits(found: Problem) -> list[tuple[str, int, int, int, int]]:
    names = [each.name for each in found.workload.step.storages]
    return [(names[each.buffer], each.nbytes, each.made, each.last, each.next) for each in found.idle]


def test_held_idle_and_offloadable_bytes() -> None:
    """By kernel, on top of 264 B, X and Y in forward, X or W and both gradients in backward.

    0 conv1: X 10, Y 10          1 conv2: 10 + 10; the input waits     2 fc: 10 + 2; so does conv1
    3 loss: 2 + 2; and conv2     4 loss, dX: Y 2, dX 2; the same 30 B   5 fc, dX: 2 + 10; the same 30 B
    6 fc, dW: X 10, dY 2; input, conv1 and the gradient of conv2: 30 B
    7 conv2, dX: 10 + 10; input and conv1        8 conv2, dW: 10 + 10; the input and the gradient of conv1
    9 conv1, dW: the last two
    """
    found = problem()
    assert [each.held_bytes - 264 for each in found.kernels] == [20, 20, 12, 4, 4, 12, 12, 20, 20, 20]
    assert [each.waiting_bytes for each in found.kernels] == [0, 10, 20, 30, 30, 30, 30, 20, 20, 0]
    assert [each.content_bytes for each in found.kernels] == [each.waiting_bytes for each in found.kernels]
    assert waits(found) == [
        ("map input", 10, -1, 0, 9),
        ("map conv1", 10, 0, 1, 8),
        ("map conv2", 10, 1, 2, 6),
        ("gradient of conv2", 10, 5, 5, 7),
        ("gradient of conv1", 10, 7, 7, 9),
    ]
    assert found.fastest_s == pytest.approx(10.0, rel=1e-15)
    # Buffers idle for more than the next kernel: of 50 B the input from the start, others once they are written. The
    # input until 7, before the kernel that reads it after the next one; conv1 from 1 to 6, conv2 from 2 to 4. The
    # gradient of conv2, written by 5, is idle over 6 alone, and that of conv1, by 7, over 8: only a stall can hide
    # them.
    found = problem()
    assert [each.sendable_bytes for each in found.kernels] == [10, 20, 30, 30, 30, 20, 20, 10, 0, 0]
    assert [each.fresh_bytes for each in found.kernels] == [0, 0, 0, 0, 0, 0, 10, 0, 10, 0]
    # In granules of 16 B a map takes 16 B, W 64 B and 16 B: 2 x (64 + 64 + 16) + 32 = 320 B in forward of conv1.
    found = problem(granule_bytes=16)
    assert found.kernels[0].held_bytes == 320
    assert (found.kernels[3].waiting_bytes, found.kernels[3].content_bytes) == (48, 30)
    assert {each.nbytes for each in found.idle} == {10}
    assert found.kernels[3].sendable_bytes == 30


@pytest.mark.parametrize(
    ("rounds", "crossing"), [(1, [("loss", 4, 7, 7, 17)]), (2, [])], ids=["one", "two micro-batches"]
)
def test_what_the_next_micro_batch_reads_is_not_idle_before_the_update(
    rounds: int, crossing: list[tuple[str, int, int, int, int]]
) -> None:
    """The program holds the images to the end, as a loop holds its batch, and the loss.

    Kernels: 0 to 7 forward, 0 conv and 7 the loss, 8 to 16 backward and 17 the update. So the loss is idle from 7 to
    17, the images from 0 to 16 (dW of conv) alone. Of the second of two micro-batches kernel 18 is dW of conv, behind
    a sum of gradients in pool's place, 19 adds its gradient and 20 is the update: between 18 and 20 the first
    micro-batch would read images that are away.
    """
    step = chain()
    held = (replace_struct(each, freed_after=None) if each.name == "input" else each for each in step.storages)
    workload = CapturedWorkload.of(replace_struct(step, storages=tuple(held)), rounds)
    found = problem_of(iteration(workload), workload, toy_costs(workload, {}).table(workload), 1000)

    update = len(found.kernels) - 1
    assert found.kernels[update].run.phase is Phase.UPDATE
    assert [each for each in waits(found) if each[-1] == update] == crossing
    assert ("input", 32, -1, 0, {1: 16, 2: 18}[rounds]) in waits(found)


@pytest.mark.parametrize(("rounds", "held_bytes"), [(1, 92), (2, 152)])
def test_gradients_of_the_first_micro_batch_are_there_in_forward_of_the_second(rounds: int, held_bytes: int) -> None:
    """The first convolution needs W 3 x 4 B, images 32 B, labels 16 B and Y 32 B: 92 B.

    In the second micro-batch also the 48 B of images and labels of the other and dW, 3 x 4 B: 152 B.
    """
    workload = CapturedWorkload.of(chain(), rounds)
    found = problem_of(iteration(workload), workload, toy_costs(workload, {}).table(workload), 1000)
    assert found.kernels[0].held_bytes == held_bytes


def test_a_map_of_several_readers_is_idle_between_them() -> None:
    """conv1 is read by conv2 to conv4, of which the last two take the same map, and by the sum: forward 1, 5.

    Kernels: 0 to 3 conv1 to conv4, 4 their sum, 5 the sum of all, 6 fc, 7 loss, 8 loss dX, 9 fc dX, 10 fc dW,
    11 and 12 backward of the sums, then dX and dW of conv4 (13, 14), conv3 (15, 16) and conv2 (17, 18), and dW of
    conv1 (19). The map of conv1 waits from 1 to 5, as its last reader in forward, and from there to dW of conv2.
    """
    text = "conv1 conv; conv2 conv; conv3 conv; conv4 conv conv2; branches add conv3 conv4; sum add branches conv1"
    found = problem(toy_graph(text))
    of = [each[2:] for each in waits(found) if each[0] == "map conv1"]
    assert of == [(0, 1, 5), (0, 5, 18)]
    # A content is offloaded once: the input, conv1 and conv2.
    assert found.kernels[2].sendable_bytes == 30
    # conv1 makes the map, the rectifier behind it writes it over (kernel 1); conv2 reads it then and in backward.
    found = problem(toy_graph("conv1 conv relu; conv2 conv"))
    (wait,) = (each for each in waits(found) if each[0] == "map conv1")
    assert wait[2:4] == (1, 2)
    # Only the input could be offloaded before the rectifier has run.
    assert [each.sendable_bytes for each in found.kernels[:3]] == [10, 10, 20]


def test_inference_frees_every_map_after_its_last_reader() -> None:
    workload = replace(toy_workload(CHAIN), mode=Mode.INFERENCE)
    found = problem_of(iteration(workload), workload, toy_costs(workload, {}).table(workload), 1000)
    assert found.idle == ()
    assert {each.waiting_bytes for each in found.kernels} == {0}
    # Copies of a schedule are no kernels.
    workload = toy_workload(CHAIN)
    runs: Sequence[Run] = iteration(workload)
    steps: list[ScheduleStep] = [*runs[:2], Offload((0,), runs[1].layer), *runs[2:]]
    found = problem_of(steps, workload, toy_costs(workload, {}).table(workload), 1000)
    assert [each.run for each in found.kernels] == list(runs)


def test_dominated_algorithms_are_left_out() -> None:
    """Of 1 s with 30 B, 2 s with 40 B, 3 s with 7 B and 4 s with 7 B, the second and the last are dominated."""
    workload = toy_workload(CHAIN)
    costs = toy_costs(workload, {})
    first = tuple(
        KernelCost(name, seconds, nbytes, Origin.ASSUMED)
        for name, seconds, nbytes in (("a", 1.0, 30), ("b", 2.0, 40), ("c", 3.0, 7), ("d", 4.0, 7))
    )
    table = ToyCosts({**costs.kernels, (0, Phase.FORWARD): first}).table(workload)
    (kernel, *_) = problem_of(iteration(workload), workload, table, 300, 8).kernels

    assert [(each.kernel.algorithm, each.workspace_bytes) for each in kernel.options] == [("a", 32), ("c", 8)]
    # It holds 2 x (64 + 64 + 16) of what is held throughout, and 2 x 16 of maps.
    assert [kernel.away_bytes(each, 300) for each in kernel.options] == [52, 28]
