"""Droppable buffers and orders with recomputation, on networks of a few kernels."""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from tests.captured_ranks import gathering
from tests.captured_steps import DX, DY, Recording, X, Y
from tests.toy import toy_chain, toy_costs, toy_graph, toy_workload
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Step
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.plans.schedule import Run, iteration


def recomputation(graph: LayerGraph, seconds: dict[tuple[str, Phase], float] | None = None) -> Recomputation:
    workload = toy_workload(graph)
    return Recomputation(iteration(workload), workload, toy_costs(workload, seconds or {}).table(workload))


def of_captured(captured: CapturedStep) -> tuple[Recomputation, Step]:
    workload = CapturedWorkload.of(captured)
    costs = toy_costs(workload, {}).table(workload)
    return Recomputation(iteration(workload), workload, costs), workload.step


def named(graph: LayerGraph, buffers: Sequence[int]) -> list[str]:
    names = [each.name for each in toy_workload(graph).step.storages]
    return [names[each] for each in buffers]


def again(runs: Sequence[Run]) -> list[str]:
    """The kernels of backward by layer, `+` before recomputations."""
    behind = [each for each in runs if each.repeat or each.phase.is_backward]
    return [f"+{each.layer.name}" if each.repeat else each.layer.name for each in behind]


def test_maps_that_forward_writes_and_backward_reads_are_droppable() -> None:
    """The input is given, and backward reads the output of the loss, not the logits."""
    graph = toy_chain(3)
    assert named(graph, recomputation(graph).droppable) == ["map conv1", "map conv2", "map conv3", "map loss"]
    # The map of conv3 is read by dW of fc; restored from the input on, those of conv1 and conv2 stay for the rest.
    found = recomputation(graph)
    assert again(found.order(found.droppable[:3])) == [
        *("loss", "fc", "+conv1", "+conv2", "+conv3", "fc"),
        *("conv3", "conv3", "conv2", "conv2", "conv1"),
    ]


def test_without_drops_the_order_is_unchanged() -> None:
    graph = toy_chain(2)
    found = recomputation(graph)
    assert found.order(()) == found.runs
    # The map of conv1 is read by dW of conv2, behind its dX.
    (conv1, *_) = found.droppable
    assert again(found.order({conv1})) == ["loss", "fc", "fc", "conv2", "+conv1", "conv2", "conv1"]


def test_maps_that_only_forward_reads_are_restored_for_their_readers() -> None:
    """Backward of the sum reads nothing, so the maps of both branches are freed; recomputing the sum needs them."""
    graph = toy_graph("conv1 conv; left conv; right conv conv1; sum add left right")
    found = recomputation(graph)
    conv1, summed, _ = found.droppable

    assert named(graph, found.droppable) == ["map conv1", "map sum", "map loss"]
    assert again(found.order({summed}))[:6] == ["loss", "fc", "+right", "+left", "+sum", "fc"]
    assert again(found.order({conv1, summed}))[:7] == ["loss", "fc", "+conv1", "+right", "+left", "+sum", "fc"]


def test_the_price_of_a_buffer_is_that_of_the_kernels_which_write_it() -> None:
    """A map of 10 B, made in 4 s by a convolution and in 1 s by the rectifier that writes it over."""
    found = recomputation(toy_graph("conv1 conv relu"), {("conv1", Phase.FORWARD): 4.0})
    (conv1, _) = found.droppable

    assert found.nbytes(conv1) == 10
    assert found.price(conv1) == 0.5
    assert again(found.order({conv1}))[:5] == ["loss", "fc", "+conv1", "+conv1/relu", "fc"]


def test_equal_buffers_of_equal_blocks_are_alike() -> None:
    """A map is not alike another of the same size and price where a kernel that reads it takes longer."""
    graph = toy_chain(3)
    equal, other = recomputation(graph), recomputation(graph, {("conv3", Phase.BACKWARD_WEIGHTS): 2.0})
    conv1, conv2, *_ = equal.droppable
    assert equal.alike(conv1) == equal.alike(conv2) == other.alike(conv1) != other.alike(conv2)


def test_a_shared_input_is_restored_once() -> None:
    """The sum is of the map of conv1 and of that of conv2, which is made of the former; backward reads all three."""
    found = recomputation(toy_graph("conv1 conv; conv2 conv relu; sum add conv1 conv2"))

    assert again(found.order(found.droppable[:3]))[:7] == [
        *("loss", "fc", "+conv1", "+conv2", "+conv2/relu", "+sum"),
        "fc",
    ]


def test_a_temporary_of_forward_is_recomputed_and_not_kept() -> None:
    """One layer computes a temporary of its input, and from it the map that backward reads, as GELU its tanh.

    A counter that it updates is given, so that it cannot be restored.
    """
    note = Recording("gelu", 1, ["act", "next"])
    given = note.memory("input", BufferKind.FEATURE_MAP, (4,), given=True)
    counter = note.memory("counter", BufferKind.STATISTICS, (1,), given=True)
    names = ("cube", "tanh", "y", "dx")
    cube, tanh, output, gradient = (note.memory(each, BufferKind.FEATURE_MAP, (4,)) for each in names)
    note.run("mul", "act", Phase.FORWARD, reads=[(X, given)], writes=[(Y, cube)], updates=[(Y, counter)])
    second = note.run("tanh", "act", Phase.FORWARD, reads=[(X, cube)], writes=[(Y, tanh)], saves=[tanh])
    third = note.run("mul", "next", Phase.FORWARD, reads=[(X, tanh)], writes=[(Y, output)])
    note.run("mul", "next", Phase.BACKWARD, reads=[(DY, output), (X, counter)], writes=[(DX, gradient)], forward=third)
    note.run("tanh", "act", Phase.BACKWARD, reads=[(DY, gradient), (X, tanh)], writes=[(DX, output)], forward=second)
    workload = CapturedWorkload.of(CapturedModel(note.step()).base)
    found = Recomputation(iteration(workload), workload, toy_costs(workload, {}).table(workload))

    assert workload.step.storages[cube].kind is BufferKind.WORKSPACE
    assert found.droppable == [tanh, output]
    assert [each.operation for each in found.order({tanh}) if each.repeat] == [0, 1]

    # Cube and tanh are not repeatable.
    kept = tuple(structs.replace(each, repeatable=number > 1) for number, each in enumerate(workload.step.operations))
    workload = replace(workload, step=structs.replace(workload.step, operations=kept))
    found = Recomputation(iteration(workload), workload, toy_costs(workload, {}).table(workload))
    assert found.droppable == [output]


def test_recomputations_read_weights_as_backward_gathered_them_once_it_has() -> None:
    """Backward reads the result of the exponential (5) before it gathers, and that of the product (4) behind.

    So the product is recomputed from the weight gathered for backward (9), and forward's (3) need not be kept; for the
    result it is recomputed before, from a new copy of what forward gathered (2).
    """
    found, step = of_captured(gathering())

    def restored(*dropped: int) -> list[tuple[str, bool]]:
        return [(each.of(step).name, each.gathered) for each in found.order(dropped) if each.repeat]

    assert found.droppable == [4, 5]
    assert restored(4) == [("aten.mm.default", True)]
    assert restored(5) == [("aten.exp.default", False)]
    names = "fsdp.split_with_sizes_copy", "aten.mm.default", "aten.exp.default"
    assert restored(4, 5) == [(each, False) for each in names]


def test_what_is_restored_only_from_as_many_bytes_is_kept() -> None:
    """Without a second gathering backward reads forward's weight (3): to drop it, what was gathered (2) would be kept.

    Both have 16 B. Of half as many gathered bytes, in a narrower type, dropping it saves the other half.
    """
    equal = gathering(again=False)
    halves = (structs.replace(each, nbytes=8) if at == 2 else each for at, each in enumerate(equal.storages))
    narrow = structs.replace(equal, storages=tuple(halves))

    assert of_captured(equal)[0].droppable == [4, 5]
    assert of_captured(narrow)[0].droppable == [3, 4, 5]


def test_segments_keep_their_outputs_and_the_last_keeps_all() -> None:
    """Maps of 10, 30, 10, 30 and 10 B in a chain and a loss of 2 B: each of three segments writes some 31 B of 92 B.

    The first has the map of conv0. The second has those of conv1 and conv2 and ends after the narrower one, so that
    that of conv1 is dropped; the next segments read the other two. All else is in the last. A single segment drops
    nothing.
    """
    graph = toy_graph("conv0 conv; conv1 conv 15; conv2 conv; conv3 conv 15; conv4 conv")
    found = recomputation(graph)

    assert named(graph, found.segmented(3)) == ["map conv1"]
    assert named(graph, found.checkpoints(3)) == ["map conv0", "map conv2"]
    assert found.segmented(1) == found.checkpoints(1) == []
