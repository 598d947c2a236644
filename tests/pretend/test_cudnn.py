"""cuDNN on the pretended GPU: workspaces, plans, reserves and durations."""

import json
import os
from collections.abc import Callable

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from calibration.kernels.cudnn_graphs import PlanFinder, Target, described_device
from calibration.kernels.cudnn_plans import ConvolutionProblem
from tests.pretend.controls import seconds
from tests.pretended_gpu import setting
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import MIB, ElementType

pytestmark = pytest.mark.pretend


RESNET_CONVOLUTION = ConvolutionShape(n=8, c=64, k=64, input_size=(56, 56), kernel=(3, 3), padding=(1, 1), bias=False)


def _asked(work: Callable[[], object]) -> list[tuple[str, int]]:
    """Return what work asks of the allocator, MiB or more, and what it gives back to the GPU."""
    torch.cuda.memory._record_memory_history(clear_history=True)  # noqa: SLF001 - PyTorch has no other way
    work()
    events = torch.cuda.memory._snapshot()["device_traces"][0]  # noqa: SLF001
    torch.cuda.memory._record_memory_history(enabled=None)  # noqa: SLF001
    told = ("alloc", "free_completed", "segment_free")
    return [(each["action"], each["size"]) for each in events if each["action"] in told and each["size"] >= MIB]


def test_a_backward_takes_the_workspaces_of_its_gradients_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """dX, a workspace for it, given back, dW, a workspace for that; as `vdnnsim.cost.pytorch_workspace` has it."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", False)
    x, w = torch.empty(32, 256, 32, 32, device="cuda"), torch.empty(512, 256, 3, 3, device="cuda")
    dy = torch.empty(32, 512, 32, 32, device="cuda")
    both = (None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
    torch.ops.aten.convolution_backward(dy, x, w, *both)
    actions = _asked(lambda: torch.ops.aten.convolution_backward(dy, x, w, *both))

    assert [action for action, _ in actions[:6]] == 2 * ["alloc", "alloc", "free_completed"]
    (_, dx_bytes), data, given, (_, dw_bytes), weights, _ = actions[:6]
    assert (dx_bytes, dw_bytes) == (x.nbytes, w.nbytes)
    assert data[1] == given[1] >= dy.nbytes
    assert weights[1] >= x.nbytes + dy.nbytes


def test_a_search_empties_the_pool_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first convolution of its sizes takes one workspace for all trials, and gives back all that is free."""
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    torch.cuda.empty_cache()
    x, w = torch.empty(24, 192, 24, 24, device="cuda"), torch.empty(320, 192, 3, 3, device="cuda")
    y_bytes = 24 * 320 * 24 * 24 * 4

    def convolve() -> object:
        kept = torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
        del kept
        return torch.nn.functional.conv2d(x, w, padding=1)

    searched, known = _asked(convolve), _asked(convolve)
    first = [each for each in searched if each[0] != "segment_free"]

    assert ("segment_free", 300 * MIB) in searched
    assert not any(action == "segment_free" for action, _ in known)
    assert first[2] == ("alloc", y_bytes)
    assert first[3][0] == "alloc"
    assert first[4] == ("free_completed", first[3][1])
    assert first[3][1] >= x.nbytes + y_bytes


def test_cudnn_offers_a_handle_what_it_offers_the_described_card() -> None:
    """The stand-in for a handle tells cuDNN of the card, so its plans and workspaces are those of the description."""
    cudnn = pytest.importorskip("cudnn")
    handle = cudnn.create_handle()
    card = described_device(json.loads(os.environ["VDNNSIM_PRETEND_CUDNN"]))
    problem = ConvolutionProblem(RESNET_CONVOLUTION, Phase.FORWARD, ElementType.FLOAT32, channels_last=False, tf32=True)
    told = [PlanFinder(target).find(problem).plans for target in (Target(handle=handle), Target(properties=card))]
    assert len(told[0]) > 1
    assert told[0] == told[1]
    cudnn.destroy_handle(handle)


def test_cudnn_answers_for_the_described_card() -> None:
    """A Volta, compute capability 7.0, multiplies no bfloat16, for which cuDNN therefore has no plan."""
    pytest.importorskip("cudnn")
    card = json.loads(os.environ["VDNNSIM_PRETEND_CUDNN"])
    problem = ConvolutionProblem(RESNET_CONVOLUTION, Phase.FORWARD, ElementType.BFLOAT16, channels_last=True, tf32=True)

    def plans(version: int) -> int:
        described = described_device({**card, "deviceVer": version})
        return len(PlanFinder(Target(properties=described)).find(problem).plans)

    assert plans(800) > 0
    assert plans(700) == 0


def test_cudnn_frontend_executes_a_plan_on_its_stream() -> None:
    """From 16 to 32 images of 256 x 56 x 56 by 512 filters of 3 x 3, as above, without a word of PyTorch's."""
    cudnn = pytest.importorskip("cudnn")
    handle = cudnn.create_handle()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    cudnn.set_stream(handle=handle, stream=stream.cuda_stream)
    kind = cudnn.data_type.FLOAT

    def execution(batch: int) -> Callable[[], object]:
        x = torch.empty(batch, 256, 56, 56, device="cuda")
        w = torch.empty(512, 256, 3, 3, device="cuda")
        y = torch.empty(batch, 512, 56, 56, device="cuda")
        graph = cudnn.pygraph(io_data_type=kind, intermediate_data_type=kind, compute_data_type=kind, handle=handle)
        left, right = graph.tensor_like(x), graph.tensor_like(w)
        result = graph.conv_fprop(image=left, weight=right, padding=[1, 1], stride=[1, 1], dilation=[1, 1])
        result.set_output(True).set_dim(list(y.shape)).set_stride(list(y.stride()))
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A])
        graph.build_plans()
        workspace = torch.empty(graph.get_workspace_size(), dtype=torch.uint8, device="cuda")
        return lambda: graph.execute({left: x, right: w, result: y}, workspace, handle=handle)

    few, many = execution(16), execution(32)
    with torch.cuda.stream(stream):
        took = seconds(many) - seconds(few)
    assert took == pytest.approx(2 * 16 * 512 * 56 * 56 * 256 * 9 / setting("FLOP_PER_S"), rel=1e-3)
    cudnn.destroy_handle(handle)


def test_recurrent_network_reserves_what_cudnn_asks_for() -> None:
    """Two layers of an LSTM, 35 steps of 64 sequences, 256 wide: maps of 35 x 64 x 256 x 4 B.

    A layer keeps its four gates, its cells and its output, the last one's output being the caller's: 11 maps, and 256 B
    beside them, as cuDNN 9.24 answers.
    """
    output, _ = torch.nn.LSTM(128, 256, 2).cuda()(torch.empty(35, 64, 128, device="cuda"))
    reserve = output.grad_fn._saved_result3  # noqa: SLF001 - PyTorch shows it to nobody else
    assert reserve.numel() == 11 * 35 * 64 * 256 * 4 + 256


def test_dropout_has_a_generator_for_each_thread_that_the_card_holds() -> None:
    """24 B for each thread of each multiprocessor: cuDNN reads both from the handle."""
    make = torch._cudnn_init_dropout_state  # noqa: SLF001 - what nn.LSTM calls
    states = make(0.5, train=True, dropout_seed=1, dtype=torch.uint8, device="cuda")
    assert states.numel() == 24 * setting("SMS") * setting("THREADS_PER_SM")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_batch_normalization_reserves_its_statistics_alone(dtype: torch.dtype, layout: torch.memory_format) -> None:
    """Without an activation or a sum to fuse there is no mask to keep for backward, and cuDNN says so: 0 B."""
    x = torch.empty(8, 64, 28, 28, dtype=dtype, device="cuda").contiguous(memory_format=layout)
    channels = [torch.zeros(64, device="cuda") for _ in range(4)]
    *_, reserve = torch.ops.aten.cudnn_batch_norm(
        x, *channels, training=True, exponential_average_factor=0.1, epsilon=1e-5
    )
    assert reserve.numel() == 0


def test_attention_of_cudnn_runs_and_lasts_as_long_as_its_products() -> None:
    """Queries by keys and those by values: 4 x 4 x 8 x 1024^2 x 64 operations forward; events tick in 0.5 us."""
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("cuDNN's attention is chosen on Hopper and later")
    q = torch.empty(4, 8, 1024, 64, dtype=torch.float16, device="cuda", requires_grad=True)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        took = seconds(lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q))
        torch.nn.functional.scaled_dot_product_attention(q, q, q).sum().backward()  # type: ignore[no-untyped-call]
    assert took == pytest.approx(4 * 4 * 8 * 1024**2 * 64 / setting("FLOP_PER_S"), abs=setting("LAUNCH_S") + 1e-6)
    assert q.grad is not None
