"""What torch.compile makes of a model: kernels, saved tensors, lifetimes; no GPU and no Triton is needed."""

import msgspec
import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import vdnnsim
from calibration.capture.capture import capture
from calibration.capture.program import CaptureDevice
from calibration.capture.request import Request
from tests.calibration.capture.ranks import program
from vdnnsim.api.captured import Captured
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import ConvolutionWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import CaptureError, ScenarioError, StudyError

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported


class TwoPieces(nn.Module):
    """Two layers, between which torch.compile cannot trace, so that it makes two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.norm(self.first(x)))
        torch._dynamo.graph_break()  # noqa: SLF001
        total: torch.Tensor = self.second(x).sum()
        return total


@pytest.fixture(scope="module")
def step() -> Captured:
    return vdnnsim.capture(TwoPieces(), torch.ones(4, 8), loss=lambda y: y, optimizer="sgd", compile=True)


def test_kernels_are_those_of_inductor(step: Captured) -> None:
    """A product; mean and deviation; normalization with GELU; the count of batches; behind the break a product, a sum.

    PyTorch dispatches addmm, native_batch_norm, gelu, addmm and sum. Inductor unrolls sums of four rows, so moments
    are found point by point, `poi`; the last sum is a persistent reduction, `per`.
    """
    forward = [each for each in step.operations if each.phase is Phase.FORWARD and each.bytes_moved]
    kinds = ["product" if each.work else each.name.split("_")[1] for each in forward]
    assert kinds == ["product", "poi", "poi", "poi", "product", "per"]
    assert "batch_norm" in forward[2].name
    assert "gelu" in forward[2].name
    assert forward[-1].name.endswith("sum_0")


def test_a_kernel_moves_what_it_touches(step: Captured) -> None:
    """Normalization with GELU reads 4 x 16 floats, four times 16 of channels, and writes 4 x 16 in place of a buffer.

    Inductor counts what is written in place twice.
    """
    (found,) = (each for each in step.operations if each.name.endswith("functional_gelu_1"))
    assert found.bytes_moved == 256 + 4 * 64 + 2 * 256


def test_saved_tensors_are_those_of_the_partition(step: Captured) -> None:
    """The product and GELU's result, 4 x 16 floats, of which backward of each graph computes all else again.

    Eagerly what normalization returns is saved too, and mean and deviation of 16 channels.
    """
    eager = vdnnsim.capture(TwoPieces(), torch.ones(4, 8), loss=lambda y: y, optimizer="sgd")
    assert step.saved_bytes == 2 * 4 * 16 * 4
    assert eager.saved_bytes == 3 * 4 * 16 * 4 + 2 * 16 * 4


def test_buffers_are_freed_where_the_program_drops_them(step: Captured) -> None:
    """GELU's result lives from its kernel to the product that reads it last, the gradient of the second weight."""
    made = next(at for at, each in enumerate(step.operations) if "gelu" in each.name)
    written = {step.tensors[each.memory].storage for each in step.operations[made].operands if each.access.writes}
    products = [at for at, each in enumerate(step.operations) if each.work and each.phase is Phase.BACKWARD]
    (result,) = (each for each in written if step.storages[each].nbytes == 4 * 16 * 4)
    assert step.storages[result].freed_after in products


def test_a_kernel_that_writes_what_it_reads_updates_it(step: Captured) -> None:
    """Running statistics have an argument to be read and one to be written."""
    accesses = {
        step.storages[step.tensors[operand.memory].storage].name: operand.access
        for each in step.operations
        for operand in each.operands
    }
    assert accesses["norm.running_mean"].reads
    assert accesses["norm.running_mean"].writes


@pytest.mark.thorough
def test_a_model_is_compiled_once() -> None:
    """Two graphs, one on each side of the break, though an iteration warms up before one is recorded.

    Behind many other captures in one process Dynamo was seen to compile one of them again, which costs time alone.
    """
    counters.clear()
    vdnnsim.capture(TwoPieces(), torch.ones(4, 8), loss=lambda y: y, optimizer="sgd", compile=True)
    assert counters["stats"]["unique_graphs"] == 2


def test_operators_are_rewritten_as_on_cuda() -> None:
    """On CUDA Inductor sums the gradient of a bias itself, in two kernels here; the CPU's convolution returns it."""
    step = vdnnsim.capture(nn.Conv2d(3, 8, 3), torch.ones(4, 3, 64, 64), optimizer="sgd", compile=True)
    backward = [each.name for each in step.operations if each.phase is Phase.BACKWARD]
    assert sum("convolution_backward" in name and name.startswith("triton::triton_red") for name in backward) == 1


def test_stochastic_depth_is_compiled() -> None:
    """On CUDA Inductor draws whom to keep as random numbers below the rate; on the CPU it leaves that to PyTorch."""

    class Sometimes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.branch = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = x + self.branch(x) * x.new_empty(x.shape[0], 1).bernoulli_(0.9)
            return y

    step = vdnnsim.capture(Sometimes(), torch.ones(4, 8), optimizer="sgd", compile=True)
    assert any(
        each.name.startswith("triton::triton_poi_fused") and "bernoulli" in each.name for each in step.operations
    )


class Attention(nn.Module):
    """Attention of two heads, whose queries, keys and values are slices of one product."""

    def __init__(self) -> None:
        super().__init__()
        self.stacked = nn.Linear(16, 48, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = self.stacked(x).view(4, 32, 3, 2, 8).permute(2, 0, 3, 1, 4)
        total: torch.Tensor = nn.functional.scaled_dot_product_attention(query, key, value).sum()
        return total


def test_gradients_of_slices_are_written_into_one_tensor() -> None:
    """That of the product, 3 x 4 x 2 x 32 x 8 floats, into which a pass of Inductor scatters three gradients."""
    step = vdnnsim.capture(Attention(), torch.ones(4, 32, 16), loss=lambda y: y, optimizer="sgd", compile=True)
    (gradient,) = (each for each in step.operations if each.phase is Phase.BACKWARD and each.work and "mm" in each.name)
    read = {step.storages[step.tensors[each.memory].storage].nbytes for each in gradient.operands if each.access.reads}
    assert 3 * 4 * 2 * 32 * 8 * 4 in read


def test_recurrent_layers_are_those_of_cudnn() -> None:
    """Its reserve for backward is among what is saved."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.head = nn.GRU(8, 16, 2), nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = self.head(self.layers(x)[0])
            return y

    step = vdnnsim.capture(Recurrent(), torch.ones(5, 4, 8), optimizer="sgd", compile=True)
    names = [each.name for each in step.operations]
    assert names.count("aten._cudnn_rnn.default") == names.count("aten._cudnn_rnn_backward.default") == 1
    # Six values a unit and step in each of two layers, the state between them, and a header.
    saved = {step.storages[each].nbytes for operation in step.operations for each in operation.saves}
    assert (2 * 6 + 1) * 5 * 4 * 16 * 4 + 256 in saved


def test_autocast_of_the_caller_stays_as_it_was() -> None:
    """A script that captures its model may train it eagerly afterwards."""
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    vdnnsim.capture(nn.Linear(8, 16), torch.ones(4, 8), optimizer="sgd", compile=True, precision="amp_bfloat16")
    assert (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")) == before


def test_it_is_replayed_compiled_alone(step: Captured) -> None:
    found = vdnnsim.simulate(step, "rtx_4090")
    assert found.to_pandas().equals(vdnnsim.simulate(step, "rtx_4090", execution="compiled").to_pandas())
    assert not vdnnsim.machines(step, "rtx_4090", "t4").to_pandas().empty
    with pytest.raises(ScenarioError, match="expected 'compiled'"):
        vdnnsim.simulate(step, "rtx_4090", execution="eager")


def test_eager_and_compiled_are_one_question(step: Captured) -> None:
    """Captured once more, either way round; a step from a file is compiled by rule, and not eager again."""
    eager = vdnnsim.capture(TwoPieces(), torch.ones(4, 8), loss=lambda y: y, optimizer="sgd")
    there = vdnnsim.whatif(eager, "execution=compiled", hardware="rtx_4090").to_pandas()["iteration_s"]
    back = vdnnsim.whatif(step, "execution=eager", hardware="rtx_4090").to_pandas()["iteration_s"]
    assert list(there) == list(back)[::-1]
    alone = CapturedStep(**msgspec.structs.asdict(step))
    with pytest.raises(StudyError, match="expected 'compiled'"):
        vdnnsim.whatif(alone, "execution=eager", hardware="rtx_4090")
    kept = CapturedStep(**msgspec.structs.asdict(eager))
    by_rule = vdnnsim.whatif(kept, "execution=compiled", hardware="rtx_4090")
    assert "- after: compiled: 4 of 16 operators run as 2 kernels" in str(by_rule)


def test_what_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(CaptureError, match="was compiled by"):
        vdnnsim.capture(torch.compile(nn.Linear(3, 5)), torch.ones(4, 3), compile=True)
    with pytest.raises(CaptureError, match="real tensors"):
        vdnnsim.capture(nn.Linear(3, 5), torch.ones(4, 3), compile=True, real=True)
    with pytest.raises(CaptureError, match="real tensors"):
        Request(model="resnet50", batch_size=1, compiled=True, real=True).check()


def test_blocks_of_a_rank_are_compiled_each_and_nothing_else() -> None:
    """Collectives are those of the eager rank; of a block a product, ReLU, a product, and the sum with its input.

    The head and the loss run eagerly.
    """
    eager, step = (capture(program("fsdp=4"), CaptureDevice(compiled=each)) for each in (False, True))
    assert [each.collective for each in step.operations if each.collective] == [
        each.collective for each in eager.operations if each.collective
    ]
    names = [each.name for each in step.operations if each.phase is Phase.FORWARD and each.flop]
    block = [
        "aten.mm.out",
        "triton::triton_poi_fused_addmm_relu_0",
        "aten.mm.out",
        "triton::triton_poi_fused_add_addmm_1",
    ]
    assert names == [*block * 2, "aten.addmm.default", "aten.sum.default"]


class OverTokens(nn.Module):
    """A convolution over tokens, as of Mamba, whose operand lies transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(8, 8, 4, groups=8, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.convolution((x + x).transpose(1, 2))[..., : x.shape[1]].sum()
        return total


def test_a_convolution_in_one_dimension_takes_an_operand_that_lies_otherwise() -> None:
    """The same as eager, forward and backward; on CUDA PyTorch would copy the operand to learn its shape."""
    works = []
    for is_compiled in (False, True):
        found = vdnnsim.capture(OverTokens(), torch.ones(2, 5, 8), loss=lambda y: y, compile=is_compiled)
        works.append([each.work.flop for each in found.operations if isinstance(each.work, ConvolutionWork)])
    assert works[0] == works[1]
    # 2 sequences, 5 + 2 x 3 - 3 places, 8 channels of 4 weights.
    assert works[0][0] == 2 * 2 * 8 * 8 * 4
