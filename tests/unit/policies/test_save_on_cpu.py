"""`save_on_cpu` on a chain, every second and byte worked out by hand.

conv1, conv2, fc, loss: the input and the maps of the CONV layers hold 10 B, those of fc and the loss 2 B. Kernels take
10 s; a copy takes a second a byte. W are 2 x 30 + 6 elements, 132 B, and so are dW: 264 B. Saved are the input by
conv1, conv1 by conv2, conv2 by fc and the loss by itself: 32 B. Forward has 4 kernels, backward 6: conv1 has no data
gradient, the loss no weight gradient. A label has 8 B and stays.

dW are made in backward and held to its end. In the last kernel, the weight gradient of conv1, all of them are there,
the label, the input and the gradient of conv1: 264 + 28 B. In that of conv2 there are 60 B less, and of maps at most
20 B more.
"""

import pytest

from tests.toy import replayed, toy_chain, toy_costs, toy_graph, toy_setting, toy_workload
from tests.unit.policies.copies import timed
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Offload, Prefetch
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import Buffer, BufferKind
from vdnnsim.policies.save_on_cpu import SaveOnCpu

CHAIN = toy_workload(toy_chain(2))


def trace_of(policy: SaveOnCpu, workload: Workload = CHAIN) -> IterationTrace:
    """An iteration with kernels of 10 s."""
    costs = toy_costs(workload, {}, default_s=10.0)
    return replayed(policy, workload, costs)


def of_maps(buffer: Buffer) -> bool:
    return buffer.kind in (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)


Moved = tuple[str, str, float, float]
"""(buffer, layer, start, end) of a copy."""


def moved(trace: IterationTrace, kind: type[Offload | Prefetch]) -> list[Moved]:
    return [each[1:] for each in timed(trace) if each[0] == kind.__name__]


@pytest.mark.parametrize(
    ("overlap", "offloads", "prefetches", "iteration_s", "of_maps_bytes"),
    [
        # Kernels wait for every copy: 40 s and 32 s of copies forward, 32 s and 60 s back. Most of maps is held in the
        # data gradient of conv2: conv1, and the gradients of conv2 and conv1.
        (
            False,
            [("input", "conv1", 10, 20), ("conv1", "conv2", 30, 40), ("conv2", "fc", 50, 60), ("loss", "loss", 70, 72)],
            [
                *(("loss", "loss", 72, 74), ("conv2", "fc", 84, 94)),
                *(("conv1", "conv2", 114, 124), ("input", "conv1", 144, 154)),
            ],
            164,
            30,
        ),
        # Copies overlap with the neighbouring layers: only the loss, 2 B, is waited for, out at 40 and back at 42;
        # backward of 60 s begins at 44. In the data gradient of conv2 the input is there, too.
        (
            True,
            [("input", "conv1", 10, 20), ("conv1", "conv2", 20, 30), ("conv2", "fc", 30, 40), ("loss", "loss", 40, 42)],
            [("loss", "loss", 42, 44), ("conv2", "loss", 44, 54), ("conv1", "fc", 54, 64), ("input", "conv2", 74, 84)],
            104,
            40,
        ),
    ],
)
def test_what_is_saved_is_copied(
    *, overlap: bool, offloads: list[Moved], prefetches: list[Moved], iteration_s: float, of_maps_bytes: int
) -> None:
    trace = trace_of(SaveOnCpu(overlap=overlap))
    for kind, expected in ((Offload, offloads), (Prefetch, prefetches)):
        assert moved(trace, kind) == [(f"map {name}", *times) for name, *times in expected]
    assert trace.iteration_s == iteration_s
    assert maximum_bytes(trace, of_maps) == of_maps_bytes
    assert maximum_bytes(trace) == 264 + 28
    assert trace.host_bytes == 32


@pytest.mark.parametrize(("overlap", "copied"), [(False, 2), (True, 1)])
def test_a_tensor_saved_twice_is_copied_twice_unless_copies_overlap(*, overlap: bool, copied: int) -> None:
    """A rectifier saves its output, which the convolution behind it saves again: 42 B on the host, or 32 B."""
    trace = trace_of(SaveOnCpu(overlap=overlap), toy_workload(toy_graph("conv1 conv relu; conv2 conv")))

    for kind in (Offload, Prefetch):
        assert [name for name, *_ in moved(trace, kind)].count("map conv1") == copied
    assert trace.host_bytes == 22 + 10 * copied


@pytest.mark.parametrize("overlap", [False, True])
def test_statistics_are_saved_like_maps(*, overlap: bool) -> None:
    """Mean and inverse deviation of 5 channels in float32, 40 B; they are copied with their layer."""
    trace = trace_of(SaveOnCpu(overlap=overlap), toy_workload(toy_graph("conv1 conv; bn bn")))

    assert ("statistics of bn", "bn") in [each[:2] for each in moved(trace, Offload)]
    assert ("statistics of bn", "fc" if overlap else "bn") in [each[:2] for each in moved(trace, Prefetch)]


def test_a_dropout_behind_a_rectifier_saves_nothing_of_it() -> None:
    """The network has it in place over what the rectifier saves, which autograd would refuse: its map is its own.

    The rectifier saves its output, the dropout its mask, the convolution behind it what the dropout wrote.
    """
    trace = trace_of(SaveOnCpu(), toy_workload(toy_graph("conv1 conv relu; dropout dropout; conv2 conv")))

    assert [each[:2] for each in moved(trace, Offload)] == [
        ("map input", "conv1"),
        ("map conv1", "conv1/relu"),
        ("statistics of dropout", "dropout"),
        ("map dropout", "conv2"),
        ("map conv2", "fc"),
        ("map loss", "loss"),
    ]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_layer_without_backward_saves_nothing(*, overlap: bool) -> None:
    """The pool over the input batch computes no gradient; conv1 saves what it reads, the pool's output."""
    trace = trace_of(SaveOnCpu(overlap=overlap), toy_workload(toy_graph("pool pool; conv1 conv")))

    assert [name for name, *_ in moved(trace, Offload)] == ["map pool", "map conv1", "map loss"]


def test_the_saved_indices_of_an_embedding_are_back_for_its_backward() -> None:
    """GPT-2 numbers its tokens: its embedding saves the numbers, and only its weight gradient reads them."""
    workload = Workload(build_network("gpt2_small"), 1)
    plan = SaveOnCpu(overlap=True).plan(toy_setting(workload, toy_costs(workload, {})))

    check_plan(plan)
