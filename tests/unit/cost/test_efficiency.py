"""The cost model of modern GPUs: layers, kernels of which the work is known, and tables beside it."""

from dataclasses import replace

import pytest

from tests.machines import shipped_server
from tests.toy import TOY_SERVER
from tests.unit.cost.test_efficiency_time import GPU, HALF, VALUES
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency import EfficiencyCosts
from vdnnsim.cost.model import ServerCosts, StatedWorkspaces
from vdnnsim.cost.table import ONLY, CostModel, KernelCost, KernelWork, MachineCosts
from vdnnsim.dnn.convolutional import FullyConnected
from vdnnsim.dnn.elementwise import Cast
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.kernel_work import ConvolutionWork, Sectors
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import Origin
from vdnnsim.units import ElementType, Precision


def costs(dram_bytes_per_s: float = 2048.0, l2_bytes: int = 0) -> EfficiencyCosts:
    """Of a server that computes in float32 and float16."""
    rates = dict(GPU.flop_per_s)
    gpu = replace(TOY_SERVER.gpu, flop_per_s=rates, dram_bytes_per_s=dram_bytes_per_s, l2_bytes=l2_bytes)
    gpu = replace(gpu, multiprocessors=2)
    return EfficiencyCosts(replace(TOY_SERVER, gpu=gpu, cost_model=VALUES, cost_model_kind="efficiency"))


def test_a_network_is_timed_layer_by_layer() -> None:
    """Every phase of every layer has one kernel, which moves what its operation moves; an update streams."""
    workload = Workload(build_network("tiny_residual"), 2, HALF, Optimizer.SGD)
    table = costs().table(workload)
    for (index, phase), (only,) in table.kernels.items():
        operation = workload.step.operation(index, phase)
        assert (only.algorithm, only.workspace_bytes, only.dram_bytes) == (ONLY, 0, operation.bytes_moved)
        assert only.seconds > 1.0
        if phase is Phase.UPDATE:
            assert only.seconds == 1 + operation.bytes_moved / 1024
    assert table.gap == "the model of efficiencies knows no workspaces, so none count"


def test_kernels_of_which_only_the_work_is_known() -> None:
    """A product by its sizes; attention by 8192 FLOPs at half the rate, 2 s; a normalization by channels."""
    model = costs()
    product = model.kernel(KernelWork("product", HALF, {Arithmetic.PRODUCT: 409600}, 1, (1, 32, 64, 100)))
    assert product.seconds == 101.0
    assert model.kernel(KernelWork("attention", HALF, {Arithmetic.PRODUCT: 8192}, 1)).seconds == 3.0
    streamed = model.kernel(KernelWork("batch_norm", HALF, {Arithmetic.ELEMENTWISE: 1}, 2048, (1, 3, 4, 4))).seconds
    assert streamed == pytest.approx(1 + 8 / 3)
    last = model.laid_out(channels_last=True)
    assert last.kernel(KernelWork("batch_norm", HALF, {Arithmetic.ELEMENTWISE: 1}, 2048, (1, 4, 4, 4))).seconds == 3.0
    assert model.laid_out(channels_last=False) is model
    # A type without a peak is refused.
    with pytest.raises(ProfileError, match="peak for 'bfloat16'"):
        costs().kernel(KernelWork("attention", ElementType.BFLOAT16, {Arithmetic.PRODUCT: 1}, 1))


def test_pytorchs_own_batch_normalization_waits_for_its_loads() -> None:
    """Not cuDNN's: 2048 B, a third for the moments, the rest for Y, take 2 s and two launches; channels last 2 s.

    A channel of 5.12e9 elements is 10^7 loads for each of 512 threads, 690 cycles at 1.83 GHz each: 3.770 s, in
    backward, which sums before it writes dX, twice. Y, an element at a time, takes two multiprocessors 5.12 / 5.6 s.
    So does one that we build, of two channels, throughout in float16 or in mixed bfloat16: 792 B; under autocast in
    float16 cuDNN's takes 1568 B. Inference sums nothing.
    """
    model, name, wait_s = costs(), "aten.native_batch_norm.default", 1e7 * 690 / 1.83e9
    few, many = (1, 3, 4, 4), (5120, 1, 1000, 1000)
    assert model.kernel(KernelWork(name, HALF, {}, 2048, few)).seconds == pytest.approx(2 + 2)
    large = model.kernel(KernelWork(name, HALF, {}, 3, many)).seconds
    assert large == pytest.approx(2 + wait_s + 1 / 1024 + 5.12 / 5.6)
    backward = model.kernel(KernelWork("aten.native_batch_norm_backward.default", HALF, {}, 1024, many)).seconds
    assert backward == pytest.approx(1 + 2 * wait_s + 1)
    last = model.laid_out(channels_last=True)
    assert last.kernel(KernelWork(name, HALF, {}, 2048, few)).seconds == 3.0
    assert model.kernel(KernelWork(name, HALF, {}, 2048)).seconds == 3.0
    net = GraphBuilder("normalized", MapShape(2, 8, 8))
    graph = net.build(net.batch_norm("norm", 0, relu=False))
    for precision, nbytes, launches in ((Precision.FLOAT16, 792, 2), (Precision.AMP_FLOAT16, 1568, 1)):
        (kernel,) = model.table(Workload.in_precision(graph, 1, precision)).options(0, Phase.FORWARD)
        assert kernel.seconds == pytest.approx(launches + nbytes / 1024)


def test_kernels_that_take_one_element_at_a_time_and_sums_of_several_blocks() -> None:
    """2048 B take 2 s; 33.6e9 elements, 2.8e9 a second on each of two multiprocessors, 6 s; 8 parts of a sum 2 us more.

    Autocast's copy of a map to float32 takes its elements so, in backward the gradient of a copy to float16.
    """
    model = costs()
    assert model.kernel(KernelWork("aten.add.Tensor", HALF, {}, 2048, elements=33_600_000_000)).seconds == 7.0
    assert model.kernel(KernelWork("aten.add.Tensor", HALF, {}, 2048, elements=1)).seconds == 3.0
    summed = model.kernel(KernelWork("aten.sum.dim_IntList", HALF, {}, 2048, summed_parts=8)).seconds
    assert summed == pytest.approx(3 + 2e-6, abs=1e-9)
    net = GraphBuilder("wide", MapShape(28_000_000, 10, 10))
    narrow = net.append("narrow", Cast(HALF), (net.batch_norm("below", 0, relu=False),)).output
    graph = net.build(net.append("wide", Cast(ElementType.FLOAT32), (narrow,)).output)
    table = costs(1e15).table(Workload.in_precision(graph, 2, Precision.FLOAT32))
    taken = {key: round(only.seconds, 3) for key, (only,) in table.kernels.items() if key[0] in (1, 2)}
    forward, backward = Phase.FORWARD, Phase.BACKWARD_DATA
    assert taken == {(1, forward): 1.0, (2, forward): 2.0, (1, backward): 2.0, (2, backward): 1.0}


def test_kernels_that_move_sectors() -> None:
    """Of 216e9 B each of two multiprocessors moves 27e9 B a second, 4 s; 2048 B of DRAM take 2 s, 4096 B 4 s.

    DRAM moves all sectors where the L2 has no room for a window of 1000 B; without a figure of it, it has.
    """

    def seconds(sectors: Sectors, l2_bytes: int) -> float:
        return costs(l2_bytes=l2_bytes).kernel(KernelWork("aten.add.Tensor", HALF, {}, 2048, sectors=sectors)).seconds

    assert seconds(Sectors(216_000_000_000, 1000), 1000) == 5.0
    assert [seconds(Sectors(4096, 1000), l2_bytes) for l2_bytes in (0, 999, 1000)] == [3.0, 5.0, 3.0]


def test_batch_normalization_of_cudnn_waits_for_its_loads_where_channels_lie_apart() -> None:
    """3072 B take 3 s; a channel of 5.12e9 elements is 10^7 loads of 690 cycles at 1.83 GHz, in backward twice.

    Two channels of two multiprocessors keep both busy. Channels last nothing waits.
    """
    model, many, wait_s = costs(), (5120, 2, 1000, 1000), 1e7 * 690 / 1.83e9
    times = {
        name: model.kernel(KernelWork(f"aten.{name}.default", HALF, {}, 3072, many)).seconds
        for name in ("cudnn_batch_norm", "cudnn_batch_norm_backward")
    }
    assert times == pytest.approx({"cudnn_batch_norm": 1 + wait_s, "cudnn_batch_norm_backward": 1 + 2 * wait_s})
    even = (5120, 4, 1000, 1000)
    last = model.laid_out(channels_last=True).kernel(KernelWork("aten.cudnn_batch_norm.default", HALF, {}, 3072, even))
    assert last.seconds == 1 + 3


@pytest.mark.parametrize(
    ("operator", "elements", "first_s", "last_s"),
    [
        ("avg_pool2d", 46e9, 5.0, 46 / 5.6),
        ("max_pool2d_with_indices", 46e9, 5.0, 46 / 5.6),
        ("avg_pool2d_backward", 2.7e9, 5.0, 5.0),
        ("max_pool2d_with_indices_backward", 6.8e9, 5.0, 5.0),
        ("upsample_nearest2d_backward", 6e9, 5.0, 5.0),
        ("upsample_nearest2d", 28e9, 5.0, 5.0),
        ("_fused_adamw_", 12e9, 5.0, 5.0),
        ("_adaptive_avg_pool2d", 0, 2.0, 2.0),
    ],
)
def test_pooling_takes_the_elements_of_its_windows_and_others_single_ones(
    operator: str, elements: float, first_s: float, last_s: float
) -> None:
    """2048 B take 2 s; two multiprocessors take, in 5 s, 46e9 elements of windows, 2.8 in place of 4.6 channels last.

    Of gradients they take 2.7e9, 6.8e9 and 6e9 elements in 5 s, of others, as of upsampling, 28e9, and 12e9 parameters.
    """
    is_windowed = not operator.endswith("backward") and "pool2d" in operator
    flop = {Arithmetic.ELEMENTWISE: int(elements)} if is_windowed else {}
    work = KernelWork(f"aten.{operator}.default", HALF, flop, 2048, elements=0 if is_windowed else int(elements))
    model = costs()
    found = [model.laid_out(channels_last=last).kernel(work).seconds for last in (False, True)]
    assert found == pytest.approx([1 + first_s, 1 + last_s])


def test_a_group_normalization_sums_and_then_broadcasts() -> None:
    """3072 B of X, X and Y: 1 s for sums at half of 2048 B/s, 2 s for Y; 5120 B of backward are 2 s and 3 s.

    Backward sums over X and dY, and reads both again to write dX. Each has two launches. 16.8e9 elements take two
    multiprocessors 3 s for Y, and 16.8e9 / 4096 loads of each thread, 690 cycles at 1.83 GHz, before that.
    """
    model, name = costs(), "aten.native_group_norm"
    assert model.kernel(KernelWork(f"{name}.default", HALF, {}, 3072)).seconds == 2 + 1 + 2
    assert model.kernel(KernelWork(f"{name}_backward.default", HALF, {}, 5120)).seconds == 2 + 2 + 3
    large = model.kernel(KernelWork(f"{name}.default", HALF, {}, 3072, elements=16_800_000_000)).seconds
    assert large == pytest.approx(2 + 1 + 16.8e9 / 4096 * 690 / 1.83e9 + 3)


class Stated(MachineCosts):
    """Of every kernel two algorithms, of 2 s without and 3 s with a workspace, or one of a given time."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self._seconds = seconds

    def kernel(self, *_: object) -> KernelCost:
        return KernelCost(ONLY, self._seconds, 0, Origin.FITTED)

    def _options(self, *_: object) -> tuple[KernelCost, ...]:
        options = (KernelCost("a", 2.0, 0, Origin.DATASHEET), KernelCost("b", 3.0, 7, Origin.DATASHEET))
        return (self.kernel(),) if self._seconds else options


def test_algorithms_of_a_table_take_the_time_of_the_model() -> None:
    """The faster takes the 10 s of the model, the other 3 / 2 of them; of another layout nothing is stated."""
    model: CostModel = StatedWorkspaces(ten := Stated(10.0), Stated(), channels_last=False)
    workload = Workload(build_network("tiny_linear"), 2)
    first, second = model.table(workload).options(0, Phase.FORWARD)
    assert (first.algorithm, first.seconds, first.workspace_bytes, first.origin) == ("a", 10.0, 0, Origin.FITTED)
    assert (second.algorithm, second.seconds, second.workspace_bytes) == ("b", 15.0, 7)
    assert isinstance(model, StatedWorkspaces)
    assert model.kernel(KernelWork("add", HALF, {}, 1)).seconds == 10.0
    assert model.laid_out(channels_last=False) is model
    assert model.laid_out(channels_last=True) is ten


def test_float32_convolves_in_tf32_and_multiplies_matrices_in_float32() -> None:
    """As PyTorch by default: on an A100 a large product takes peak times fraction longer, a convolution as long."""
    server = shipped_server("a100_40gb")
    costs, rates, peaks = ServerCosts(server), server.cost_model, server.gpu.flop_per_s
    net = GraphBuilder("one", MapShape(16384))
    net.begin_classifier()
    net.append("fc", FullyConnected(16384), (0,))
    for graph, batch, ratio in (
        (build_network("tiny_residual"), 2, 1.0),
        (
            net.build(1),
            16384,
            (peaks[ElementType.TF32] * rates["tensor_flop_fraction"])
            / (peaks[ElementType.FLOAT32] * rates["cuda_flop_fraction"]),
        ),
    ):
        wide, narrow = (
            costs.table(Workload(graph, batch, each)).fastest(0, Phase.FORWARD).seconds
            for each in (ElementType.FLOAT32, ElementType.TF32)
        )
        assert wide / narrow == pytest.approx(ratio, rel=0.1)


def test_a_weight_gradient_of_one_tile_is_split_among_multiprocessors() -> None:
    """128 x 128 over a million images is one tile, whose depth 64 multiprocessors share; 129 x 128 is two, unsplit.

    What is left of it are both operands in float16, 512 MB, at what products reach of the 936 GB/s of an RTX 3090.
    """
    server = shipped_server("rtx_3090")
    machine = ServerCosts(server)

    def seconds(outputs: int) -> float:
        net = GraphBuilder("one", MapShape(128))
        net.begin_classifier()
        layer = net.append("fc", FullyConnected(outputs), (0,))
        table = machine.table(Workload(net.build(layer.output), 1_000_000, HALF))
        return table.fastest(layer.index, Phase.BACKWARD_WEIGHTS).seconds

    operands_s = 512e6 / (936e9 * server.cost_model["product_dram_fraction"])
    assert seconds(128) == pytest.approx(operands_s, rel=0.05)
    assert seconds(129) > 5 * seconds(128)


def test_a_transposed_convolution_takes_what_the_gradients_of_another_take() -> None:
    """One image of 8 channels of 8 x 8 to as many of 16 x 16, forward and all gradients, as of the other's shape.

    Its bias is read and written with Y, 2 x 2048 elements of 2 B at half of 2048 B/s, and a launch; backward reads dY.
    """
    sizes = (1, 8, 8, (8, 8), (2, 2), (2, 2), (0, 0), (1, 1), 1)
    other = ConvolutionShape(1, 8, 8, (16, 16), (2, 2), (2, 2), bias=False)
    model, flop = costs(), {Arithmetic.PRODUCT: 1}

    def seconds(*computes: str, bias: bool = False) -> float:
        work = ConvolutionWork(*sizes, transposed=True, bias=bias, computes=computes)
        return model.kernel(KernelWork("convolution", HALF, flop, 1, convolution=work)).seconds

    forward = GPU.convolution_s(HALF, other, Phase.BACKWARD_DATA)
    assert seconds() == pytest.approx(forward)
    assert seconds(bias=True) == pytest.approx(forward + 2 * 2048 * 2 / 1024 + 1)
    gradients = sum(GPU.convolution_s(HALF, other, each) for each in (Phase.FORWARD, Phase.BACKWARD_WEIGHTS))
    assert seconds("input", "weight") == pytest.approx(gradients)
    biased = seconds("input", "weight", "bias", bias=True)
    assert biased == pytest.approx(gradients + 2048 * 2 / 1024 + 1)
