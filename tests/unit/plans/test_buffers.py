"""Buffers that an operation touches where the program keeps references to more than it reads."""

from dataclasses import replace

from msgspec import structs

from tests.captured_ranks import gathering, sharded
from tests.captured_steps import Recording, X, Y
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.schedule import Run, by_operation, iteration


def test_an_operation_does_not_read_what_it_writes_and_holds() -> None:
    """Of a and b in a row, a holds what both write: its own map is no operand to read, that of b is.

    A recomputation holds nothing: else a map could not be recomputed by its own writer.
    """
    note = Recording("two", 1, ["a", "b"])
    first, second = (note.memory(name, BufferKind.FEATURE_MAP, (4,), held=True) for name in ("first", "second"))
    note.run("a", "a", Phase.FORWARD, writes=[(Y, first)])
    note.run("b", "b", Phase.FORWARD, reads=[(X, first)], writes=[(Y, second)])
    workload = CapturedWorkload.of(CapturedModel(note.step(Mode.INFERENCE)).base)
    a, b = workload.step.operations
    step = structs.replace(workload.step, operations=(structs.replace(a, holds=(first, second)), b))
    held = replace(workload, step=step)
    run = _runs(held)[0]

    assert IterationBuffers(held).touched(run) == ([second], [first])
    assert IterationBuffers(held).touched(replace(run, repeat=1)) == ([], [first])


def test_weights_that_backward_gathers_again_are_those_of_forward() -> None:
    """Backward's 8 and 9 are made of the same shard as forward's 2 and 3; activations and sums are made otherwise.

    A recomputation of the product, operation 3, then reads 9 in place of 3. Nothing is gathered twice in `sharded`.
    """
    workload = CapturedWorkload.of(gathering())
    buffers = IterationBuffers(workload)
    run = next(each for each in _runs(workload) if each.of(workload.step).name == "aten.mm.default")

    assert buffers.gathered_again == {2: 8, 3: 9}
    assert buffers.touched(replace(run, repeat=1)) == ([1, 3], [4])
    assert buffers.touched(replace(run, repeat=1, gathered=True)) == ([1, 9], [4])
    assert IterationBuffers(CapturedWorkload.of(sharded())).gathered_again == {}


def _runs(workload: CapturedWorkload) -> list[Run]:
    return [each for each in by_operation(iteration(workload), workload.step) if isinstance(each, Run)]
