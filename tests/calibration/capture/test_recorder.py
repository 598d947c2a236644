from collections import Counter
from functools import cache, partial
from itertools import groupby
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice
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


@cache
def language(reentrant: bool | None = None) -> CapturedStep:  # noqa: FBT001
    return capture(program(lambda: Language(reentrant), ids, lambda y: y[0], optimizer="none"), CPU)


def described(step: CapturedStep, operation: StepOperation) -> str:
    roles = " ".join(each.role.value for each in operation.operands)
    return f"{operation.phase.value} {operation.name.split('.')[1]} {step.modules[operation.module].path}: {roles}"


def test_operations_bytes_and_work_of_two_linears() -> None:
    """Operands of addmm are bias, X, W, Y; backward makes dX, unless the input needs no gradient, dW and a sum."""
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
    # Float32, batch 4, 10 to 20 to 5: parameters 200 + 20 + 100 + 5. Saved is the ReLU's output, 4 x 20. The peak is
    # at the last operation of backward: parameters 1300, input 160, the loss 4 and its gradient 4, gradients of
    # parameters 1300, and that of the ReLU's input, 320.
    assert (step.parameters, step.parameter_bytes) == (325, 1300)
    assert step.saved_bytes == 4 * 20 * 4
    assert step.peak_live_bytes == step.live_bytes[10] == 1300 + 160 + 8 + 1300 + 320
    # The first product, 4 x 10 by 10 x 20, reads the bias 20, X 40 and W 200, and writes 80 numbers.
    first, relu = linears().operations[:2]
    assert first.work == ProductWork(batch=1, m=4, n=20, k=10)
    assert first.flop == {Arithmetic.PRODUCT: 2 * 4 * 10 * 20}
    assert first.bytes_moved == 4 * (20 + 40 + 200 + 80)
    assert relu.flop == {Arithmetic.ELEMENTWISE: 80}
    assert relu.bytes_moved == 4 * (80 + 80)


def test_traffic_of_a_loss_over_classes() -> None:
    """Of 6 rows of 50 classes forward reads one number each, 24 B, and targets of 48 B; backward writes all, 1200 B.

    The loss, its gradient and the sum of weights are 4 B each.
    """
    targets = torch.zeros(6, dtype=torch.long)

    def loss(scores: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(scores, targets)

    step = capture(program(lambda: nn.Linear(8, 50), lambda: torch.zeros(6, 8), loss, optimizer="none"), CPU)
    found = {each.name: each.bytes_moved for each in step.operations if "nll_loss" in each.name}
    assert found == {
        "aten.nll_loss_forward.default": 24 + 48 + 4 + 4,
        "aten.nll_loss_backward.default": 1200 + 24 + 48 + 4 + 4,
    }


def test_fused_attention_multiplies_in_the_type_of_its_query() -> None:
    """Though the logarithms of its sums are in float32."""

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones((), dtype=torch.bfloat16))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            heads = x * self.scale
            return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    def heads() -> torch.Tensor:
        return torch.zeros(2, 4, 16, 8, dtype=torch.bfloat16)

    step = capture(program(Attention, heads, lambda y: y.float().sum(), optimizer="none"), CPU)
    found = [each.element_type for each in step.operations if "_scaled_dot_product" in each.name]
    assert found == ["bfloat16", "bfloat16"]


@pytest.mark.parametrize(("mode", "reads"), [(Mode.TRAINING, 2), (Mode.INFERENCE, 1)])
def test_traffic_of_batch_normalization(mode: Mode, reads: int) -> None:
    """4 images of 3 channels of 5 x 5, 1200 B, are read and written; weights and moments are below 200 B."""
    step = capture(program(lambda: nn.BatchNorm2d(3), lambda: torch.zeros(4, 3, 5, 5), mode=mode), CPU)
    (found,) = [each for each in step.operations if "batch_norm" in each.name and each.phase is Phase.FORWARD]
    assert (reads + 1) * 1200 <= found.bytes_moved < (reads + 1) * 1200 + 200


def test_traffic_of_group_normalization() -> None:
    """4 images of 4 channels of 5 x 5, 1600 B: forward reads them twice, backward them and dY; the rest is small."""

    def make_model() -> nn.Module:
        return nn.Sequential(nn.Conv2d(4, 4, 1), nn.GroupNorm(2, 4))

    step = capture(program(make_model, lambda: torch.zeros(4, 4, 5, 5), lambda y: y.square().sum()), CPU)
    found = [each.bytes_moved // 1600 for each in step.operations if "group_norm" in each.name]
    assert found == [3, 5]


def test_operands_that_lie_otherwise_are_copied_on_a_gpu() -> None:
    """4 images of 3 channels of 5 x 5, 1200 B, whose pixels are normalized: PyTorch copies them, in backward too.

    The sum's gradient is one number throughout, expanded, of which backward makes a copy as large.
    """

    class Pixels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.norm(x.permute(0, 2, 3, 1))
            return y

    copied = [
        [each.copied_bytes for each in capture(program(Pixels, pixels), device).operations if "_norm" in each.name]
        for device in (CaptureDevice(), CPU)
    ]
    assert copied == [[1200, 2400], [0, 0]]


def test_what_lies_otherwise_behind_a_softmax_and_before_filters_of_one_pixel() -> None:
    """2 x 8 x 4 x 4 floats are copied twice: turned scores by a softmax, and its result, which is contiguous.

    Filters of 1 x 1 lie with their channels last, as `.to(memory_format=...)` leaves them, so maps must.
    """

    class Turned(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scores = nn.Linear(4, 4)
            self.convolve = nn.Conv2d(8, 8, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            scored = self.scores(x).transpose(2, 3).softmax(-1)
            assert scored.is_contiguous()
            return self.convolve(scored)  # type: ignore[no-any-return]

    def inputs() -> torch.Tensor:
        return torch.zeros(2, 8, 4, 4)

    for device, expected in ((CaptureDevice(), [1024, 1024]), (CPU, [0, 0])):
        step = capture(program(Turned, inputs, batch_size=2, channels_last=True), device)
        forward = [
            each for each in step.operations if each.name in ("aten._softmax.default", "aten.convolution.default")
        ]
        assert [each.copied_bytes for each in forward] == expected


def pixels() -> torch.Tensor:
    return torch.zeros(4, 3, 5, 5, requires_grad=True)


def test_work_of_a_convolution() -> None:
    """5 x 5 places of 3 x 3 x 2 weights for each of 4 channels, 2 images; backward for W and the bias alone."""
    make_model = partial(nn.Conv2d, 2, 4, 3, stride=2, padding=1)
    step = capture(program(make_model, lambda: torch.randn(2, 2, 9, 9), optimizer="none"), CPU)
    forward, backward = (each for each in step.operations if "convolution" in each.name)
    flop = {Arithmetic.PRODUCT: 2 * 2 * 25 * 18 * 4}
    assert (forward.flop, backward.flop) == (flop, flop)
    assert isinstance(backward.work, ConvolutionWork)
    assert (backward.work.input_size, backward.work.stride) == ((9, 9), (2, 2))
    assert backward.work.computes == ("weight", "bias")


def test_inference_saves_nothing_and_keeps_its_output() -> None:
    """Parameters 1300, input 160, and two activations of 80 numbers."""
    step = capture(program(two_linears, numbers, mode=Mode.INFERENCE), CPU)
    assert {each.phase for each in step.operations} == {Phase.FORWARD}
    assert step.saved_bytes == 0
    assert step.peak_live_bytes == 1300 + 160 + 2 * 320
    output = step.storages[step.tensors[step.operations[-1].operands[-1].memory].storage]
    assert output.freed_after is None


def test_micro_batches_repeat_forward_and_backward_before_one_update() -> None:
    step = capture(program(two_linears, numbers, accumulate=2, optimizer="sgd"), CPU)
    phases = [phase for phase, _ in groupby(each.phase for each in step.operations)]
    assert phases == [Phase.FORWARD, Phase.BACKWARD, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    assert step.saved_bytes == 320


def test_recomputed_operations_name_their_forward() -> None:
    """So does the backward of a recomputed operation."""
    step = language(reentrant=False)
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
    assert step.saved_bytes < language().saved_bytes / 3
    # 4 x 10 numbers, and the mask of 10.
    step = capture(program(Masked, numbers, optimizer="none"), CPU)
    check_captured_step(step, "masked")
    assert step.saved_bytes == (4 * 10 + 10) * 4


def test_tied_weights_are_one_storage_with_one_gradient() -> None:
    """The table of 50 x 16 is that of the embedding and of the head."""
    tables = [each for each in language().storages if each.nbytes == 50 * 16 * 4]
    assert Counter(each.kind for each in tables if each.given) == {BufferKind.WEIGHTS: 1}
    assert BufferKind.WEIGHT_GRADIENT in {each.kind for each in tables}
    # Tied ones stay one.
    step = capture(program(lambda: two_linears().to(torch.float64), lambda: numbers().double(), optimizer="none"), CPU)
    assert step.parameter_bytes == 325 * 8
    step = capture(program(lambda: Language().bfloat16(), ids, lambda y: y[0], optimizer="none"), CPU)
    assert step.parameter_bytes == 2 * step.parameters


def test_optimizer_states_are_given() -> None:
    step = capture(program(two_linears, numbers, optimizer="momentum"), CPU)
    states = [each for each in step.storages if each.kind is BufferKind.OPTIMIZER_STATE]
    assert sum(each.nbytes for each in states) == 1300
    assert all(each.given for each in states)
    # Two moments for each of 325 parameters.
    step = capture(program(two_linears, numbers, optimizer="adamw"), CaptureDevice())
    assert sum(each.nbytes for each in step.storages if each.kind is BufferKind.OPTIMIZER_STATE) == 2 * 1300
    names = {each.name.split(".")[1] for each in step.operations if each.phase is Phase.UPDATE}
    assert all(name.startswith("_foreach_") for name in names)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
def test_a_compiled_module_runs_eagerly_with_a_note() -> None:
    def make_model() -> Any:  # noqa: ANN401 - PyTorch says that it is a function
        return torch.compile(two_linears())

    step = capture(program(make_model, numbers, optimizer="none"), CPU)
    assert step.saved_bytes == linears().saved_bytes
    assert any("torch.compile" in note for note in step.notes)


def test_workspaces_of_onednn_are_noted_as_missing() -> None:
    step = capture(program(Recurrent, lambda: torch.randn(4, 5, 6), optimizer="none"), CPU)
    assert any("oneDNN" in note for note in step.notes)


class Masked(nn.Module):
    """A checkpointed linear of a sum with a mask, which is made outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 10), nn.Linear(10, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mapped = self.first(x)
        mask = torch.full((10,), 1.0).add(1.0)
        found: torch.Tensor = checkpoint(lambda y, z: self.second(y + z), mapped, mask, use_reentrant=False)
        return found
