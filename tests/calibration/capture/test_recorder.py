from collections import Counter
from functools import cache

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from calibration.capture.capture import CaptureDevice, capture
from tests.calibration.capture.programs import Language, Recurrent, ids, numbers, program, two_linears
from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import BufferKind, StepOperation
from vdnnsim.dnn.workload import Mode

CPU = CaptureDevice(compute_capability=None)


@cache
def linears() -> CapturedStep:
    return capture(program(two_linears, numbers, optimizer="sgd"), CPU)


def described(step: CapturedStep, operation: StepOperation) -> str:
    roles = " ".join(each.role.value for each in operation.operands)
    return f"{operation.phase.value} {operation.name.split('.')[1]} {step.modules[operation.module].path}: {roles}"


def test_operations_stand_in_their_order_with_what_their_operands_are() -> None:
    """Two linears with a ReLU: addmm has bias, X, W, Y.

    Backward of each has dX, unless its input needs no gradient, dW, and the sum for the bias; W and dW of each
    parameter meet in the update.
    """
    step = linears()
    seen = [described(step, each) for each in step.operations]
    assert seen[:4] == [
        "forward addmm 0: W X W Y",
        "forward relu 1: X Y",
        "forward addmm 2: W X W Y",
        "forward sum : X Y",
    ]
    assert seen[5:11] == [
        "backward mm 2: dY W dX",
        "backward mm 2: dY X dW",
        "backward sum 2: dY dW",
        "backward threshold_backward 1: dY Y dX",
        "backward mm 0: dY X dW",
        "backward sum 0: dY dW",
    ]
    assert seen[11:] == ["update add_ : W dW"] * 4
    assert [each.forward for each in step.operations[5:11]] == [2, 2, 2, 1, 0, 0]


def test_bytes_of_two_linears_are_those_by_hand() -> None:
    """Float32, batch 4, 10 to 20 to 5.

    Parameters are 200 + 20 + 100 + 5. Saved beside input and weights is the ReLU's output, 4 x 20. The peak is at the
    last operation of backward: parameters 1300 and input 160; the loss 4 and its gradient 4; gradients of all
    parameters, 1300; and that of the ReLU's input, 320.
    """
    step = linears()
    assert (step.parameters, step.parameter_bytes) == (325, 1300)
    assert step.saved_bytes == 4 * 20 * 4
    assert step.peak_live_bytes == step.live_bytes[10] == 1300 + 160 + 8 + 1300 + 320


def test_work_of_two_linears_is_that_by_hand() -> None:
    """The first product, 4 x 10 by 10 x 20, reads the bias 20, X 40 and W 200, and writes 80 numbers."""
    first, relu = linears().operations[:2]
    assert first.work == ProductWork(batch=1, m=4, n=20, k=10)
    assert first.flop == {Arithmetic.PRODUCT: 2 * 4 * 10 * 20}
    assert first.bytes_moved == 4 * (20 + 40 + 200 + 80)
    assert relu.flop == {Arithmetic.ELEMENTWISE: 80}
    assert relu.bytes_moved == 4 * (80 + 80)


@pytest.mark.parametrize(("mode", "reads"), [(Mode.TRAINING, 2), (Mode.INFERENCE, 1)])
def test_a_batch_normalization_reads_its_input_again_where_it_sums_first(mode: Mode, reads: int) -> None:
    """4 images of 3 channels of 5 x 5, 1200 B, are read and written; beside them weights and moments, below 200 B."""
    step = capture(program(lambda: nn.BatchNorm2d(3), lambda: torch.zeros(4, 3, 5, 5), mode=mode), CPU)
    (found,) = [each for each in step.operations if "batch_norm" in each.name and each.phase is Phase.FORWARD]
    assert (reads + 1) * 1200 <= found.bytes_moved < (reads + 1) * 1200 + 200


def test_a_convolution_has_its_shape_in_backward_too() -> None:
    """5 x 5 places of 3 x 3 x 2 weights for each of 4 channels, 2 images; backward for W and the bias alone."""

    def make_model() -> nn.Module:
        return nn.Conv2d(2, 4, 3, stride=2, padding=1)

    step = capture(program(make_model, lambda: torch.randn(2, 2, 9, 9), optimizer="none"), CPU)
    forward, backward = (each for each in step.operations if "convolution" in each.name)
    flop = {Arithmetic.PRODUCT: 2 * 2 * 25 * 18 * 4}
    assert (forward.flop, backward.flop) == (flop, flop)
    assert isinstance(backward.work, ConvolutionWork)
    assert (backward.work.input_size, backward.work.stride) == ((9, 9), (2, 2))
    assert backward.work.computes == ("weight", "bias")


def test_inference_saves_nothing_and_holds_its_output() -> None:
    """Parameters 1300 and input 160; maps of 80 numbers, one made of the other."""
    step = capture(program(two_linears, numbers, mode=Mode.INFERENCE), CPU)
    assert {each.phase for each in step.operations} == {Phase.FORWARD}
    assert step.saved_bytes == 0
    assert step.peak_live_bytes == 1300 + 160 + 2 * 320
    output = step.storages[step.tensors[step.operations[-1].operands[-1].memory].storage]
    assert output.freed_after is None


def test_micro_batches_repeat_forward_and_backward_before_one_update() -> None:
    step = capture(program(two_linears, numbers, accumulate=2, optimizer="sgd"), CPU)
    phases = [each.phase for each in step.operations]
    assert [now for before, now in zip([None, *phases], phases, strict=False) if now is not before] == [
        Phase.FORWARD,
        Phase.BACKWARD,
        Phase.FORWARD,
        Phase.BACKWARD,
        Phase.UPDATE,
    ]
    assert step.saved_bytes == 320


def test_checkpointed_blocks_are_run_again_in_backward_as_what_they_were() -> None:
    """Each operation of a block's forward comes once more; it and its backward are of the one in forward."""
    step = capture(program(lambda: Language(reentrant=False), ids, lambda y: y[0], optimizer="none"), CPU)
    paths = [each.path for each in step.modules]
    position = paths.index("blocks.1.norm")
    of_norm = [(index, each) for index, each in enumerate(step.operations) if each.module == position]
    names = [(each.name, each.phase) for _, each in of_norm]
    assert names[:3] == [
        ("aten.native_layer_norm.default", Phase.FORWARD),
        ("aten.native_layer_norm.default", Phase.BACKWARD),
        ("aten.native_layer_norm_backward.default", Phase.BACKWARD),
    ]
    assert {each.forward for _, each in of_norm[1:]} == {of_norm[0][0]}
    plain = capture(program(Language, ids, lambda y: y[0], optimizer="none"), CPU)
    assert step.saved_bytes < plain.saved_bytes / 3


def test_tied_weights_are_one_storage_with_one_gradient() -> None:
    """The embedding's table, 50 x 16, is the head's too: backward makes two gradients, and adds one to the other."""
    step = capture(program(Language, ids, lambda y: y[0], optimizer="none"), CPU)
    tables = [each for each in step.storages if each.nbytes == 50 * 16 * 4]
    assert Counter(each.kind for each in tables if each.given) == {BufferKind.WEIGHTS: 1}
    assert BufferKind.WEIGHT_GRADIENT in {each.kind for each in tables}


def test_states_of_an_optimizer_are_there_before_the_iteration() -> None:
    step = capture(program(two_linears, numbers, optimizer="momentum"), CPU)
    states = [each for each in step.storages if each.kind is BufferKind.OPTIMIZER_STATE]
    assert sum(each.nbytes for each in states) == 1300
    assert all(each.given for each in states)


def test_as_cuda_an_optimizer_counts_its_steps_on_the_host_and_works_on_lists() -> None:
    """Two moments for each of 325 parameters."""
    step = capture(program(two_linears, numbers, optimizer="adamw"), CaptureDevice())
    states = [each.nbytes for each in step.storages if each.kind is BufferKind.OPTIMIZER_STATE]
    assert sum(states) == 2 * 1300
    names = {each.name.split(".")[1] for each in step.operations if each.phase is Phase.UPDATE}
    assert all(name.startswith("_foreach_") for name in names)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
def test_a_compiled_module_is_run_as_it_was_and_a_note_says_so() -> None:

    def make_model() -> nn.Module:
        compiled: nn.Module = torch.compile(two_linears())  # type: ignore[assignment]
        return compiled

    step = capture(program(make_model, numbers, optimizer="none"), CPU)
    assert step.saved_bytes == linears().saved_bytes
    assert any("torch.compile" in note for note in step.notes)


def test_what_onednn_keeps_of_recurrent_layers_is_said_to_be_left_out() -> None:
    step = capture(program(Recurrent, lambda: torch.randn(4, 5, 6), optimizer="none"), CPU)
    assert any("oneDNN" in note for note in step.notes)


def test_a_model_may_convert_itself_where_it_is_made() -> None:
    """Weights of two bytes, and tied ones stay one: 325 parameters, and those of a table once."""
    step = capture(program(lambda: two_linears().to(torch.float64), lambda: numbers().double(), optimizer="none"), CPU)
    assert step.parameter_bytes == 325 * 8
    step = capture(program(lambda: Language().bfloat16(), ids, lambda y: y[0], optimizer="none"), CPU)
    assert step.parameter_bytes == 2 * step.parameters


class Masked(nn.Module):
    """A checkpointed linear of what a mask was added to, which is made outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute it."""
        mapped = self.first(x)
        mask = torch.full((10,), 1.0).add(1.0)
        found: torch.Tensor = checkpoint(lambda y, z: self.second(y + z), mapped, mask, use_reentrant=False)
        return found


def test_nothing_is_saved_before_it_is_made() -> None:
    """What checkpointing keeps are its arguments: the map, 4 x 10 numbers, and the mask of 10, which nobody trains."""
    step = capture(program(Masked, numbers, optimizer="none"), CPU)
    check_captured_step(step, "masked")
    assert step.saved_bytes == (4 * 10 + 10) * 4
