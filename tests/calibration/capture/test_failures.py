"""What cannot be captured: failures with their line, and models that are wrapped already, with what to give instead."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import vdnnsim
from calibration.capture.capture import capture
from calibration.capture.failures import about_split, failure_outside
from calibration.capture.program import CaptureDevice
from tests.calibration.capture.programs import numbers, program, two_linears
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.errors import CaptureError

CPU = CaptureDevice(compute_capability=None)


class _Then(nn.Module):
    """A linear, and then what a test asks for."""

    def __init__(self, then: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.then = nn.Linear(10, 10), then

    def forward(self, x: Tensor) -> Any:  # noqa: ANN401
        return self.then(self.linear(x))


def captured(then: Callable[[Tensor], Any]) -> None:
    capture(program(lambda: _Then(then), numbers, optimizer="none"), CPU)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        (lambda y: y if y.sum() > 0 else -y, "looks into computed values"),
        (lambda y: y * float(y.detach().max()), "looks into computed values"),
        (lambda y: y[y > 0], "returns as many values as the data has"),
        (lambda y: y + torch.from_numpy(y.detach().numpy()), "--real"),
        (lambda y: y @ torch.ones(3, 3), "RuntimeError"),
        (lambda y: y.no_such_method(), "AttributeError"),
        (lambda y: nn.functional.embedding(y, y), "expected inputs of integers"),
        (lambda y: torch.nested.nested_tensor_from_jagged(y, torch.tensor([0, 1, 4])), "expected padded tensors"),
        (lambda y: y * torch.func.grad(torch.sum)(y), r"expected torch\.autograd\.grad in place"),
        pytest.param(
            lambda y: y.cuda(),
            r"device=x\.device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_failures_name_file_line_and_reason(then: Callable[[Tensor], Any], why: str) -> None:
    with pytest.raises(CaptureError, match=rf"model: .*test_failures\.py:\d+.*{why}") as caught:
        captured(then)
    assert "\n" not in str(caught.value)


def test_a_failed_import_is_what_made_it_fail() -> None:
    """As transformers says of any model where torchvision was built for another PyTorch."""
    failure = ModuleNotFoundError("Could not import module 'GPT2LMHeadModel'.")
    failure.__cause__ = RuntimeError("operator torchvision::nms does not exist")
    assert str(failure_outside(failure, "gpt2")).endswith(": RuntimeError: operator torchvision::nms does not exist")


def test_products_in_float8_are_refused_by_their_module() -> None:
    def product(y: Tensor) -> Tensor:
        narrow, one = torch.zeros(16, 16, device=y.device).to(torch.float8_e4m3fn), torch.ones(())
        return y + torch._scaled_mm(narrow, narrow.t(), one, one, out_dtype=torch.bfloat16).sum()  # noqa: SLF001

    with pytest.raises(CaptureError, match=r"aten\._scaled_mm.* before torchao's convert_to_float8_training"):
        captured(product)


def test_sparse_gradients_are_refused_with_what_makes_them_dense() -> None:
    bags = program(lambda: nn.EmbeddingBag(10, 4, sparse=True), lambda: torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(CaptureError, match=r"expected dense tensors: .*sparse=False"):
        capture(bags, CPU)


def test_pytorch_logs_no_failure_beside() -> None:
    """It logs failures of shapes, as of a matrix and a cube in `torch.cat`, with a stack of many lines."""
    said: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = said.append  # type: ignore[assignment,method-assign]
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(handler)
    try:
        with pytest.raises(CaptureError, match="RuntimeError"):
            captured(lambda y: torch.cat([y, torch.ones(2, 3, 4)]))
        assert said == []
        assert not logger.disabled
    finally:
        logger.removeHandler(handler)


def test_the_module_that_fails_is_named() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _Then(lambda y: y[y > 0])

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)  # type: ignore[no-any-return]

    with pytest.raises(CaptureError, match=r"in module inner: aten\.\w+"):
        capture(program(Outer, numbers), CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"loss": lambda _: 1.0}, "the loss is a float"),
        ({"loss": lambda y: y}, r"the loss has the shape \(4, 5\)"),
        ({"loss": lambda y: y.detach().sum()}, "the loss has no gradient"),
        ({"loss": lambda _: nn.Identity().kept}, "runs a copy of the model; of a loss, expected one of what forward"),
        ({"optimizer": "sdg"}, "'sdg'"),
    ],
)
def test_a_program_that_cannot_be_trained_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        capture(program(two_linears, numbers, **changes), CPU)


def test_a_caught_exception_does_not_stop_a_capture() -> None:
    def then(y: Tensor) -> Tensor:
        try:
            return y.reshape(7)
        except RuntimeError:
            return y

    captured(then)


def test_values_that_depend_on_no_data_are_computed() -> None:
    def then(y: Tensor) -> Tensor:
        mask = torch.arange(len(y)) > 1
        assert not mask.all()
        assert mask.tolist() == [False, False, True, True]
        assert y[mask].shape == (2, 10)
        return y[mask] * mask.sum().item()

    captured(then)

    # A constant that data was written to is unknown.
    def counted(y: Tensor) -> Tensor:
        counts = torch.zeros(10)
        counts.copy_(y[0].detach())
        return y * float(counts.sum())

    with pytest.raises(CaptureError, match="looks into computed values"):
        captured(counted)


@pytest.mark.parametrize(
    ("view", "layout", "said"),
    [
        # 4 heads of 64 over 8 ranks: 32 features each, 32,768 in 8 x 128 tokens; over 3, of 6 heads in 2 x 4 tokens.
        (("8, 128, -1, 64", 32_768), "tp=8", "4 heads cannot be split over 8 ranks, expected tp=4 at most"),
        (("8, 128, 4, 64", 32_768), "tp=8", "4 heads cannot be split over 8 ranks, expected tp=4 at most"),
        (("2, 4, 6, 8", 2 * 4 * 12), "tp=4", "6 heads cannot be split over 4 ranks, expected tp=3 at most"),
        (("2, 4, 7, 8", 2 * 4 * 28), "tp=2", "7 heads cannot be split over 2 ranks, expected no tp"),
        # 4 heads of 8 are divided; the user's code has all of them. A view of something else says nothing of heads.
        (("2, 4, 4, 8", 2 * 4 * 16), "tp=2", "expected -1 for them"),
        (("2, 0, 4, 8", 16), "tp=2", "expected -1 for them"),
        (("5, 7", 36), "tp=2", "expected -1 for them"),
        (("2, 4, 6, 8", 2 * 4 * 12), "fsdp=4", ""),
    ],
)
def test_heads_that_ranks_cannot_share(view: tuple[str, int], layout: str, said: str) -> None:
    failure = RuntimeError("shape '[{}]' is invalid for input of size {}".format(*view))
    assert said in (found := about_split(failure, parse_layout(layout)))
    assert bool(found) is bool(said)
    assert not about_split(RuntimeError("another"), parse_layout(layout))


@pytest.mark.parametrize(("layout", "said"), [("tp=2", "or sp=never"), ("tp=2,sp=never", ""), ("fsdp=4", "")])
def test_tokens_that_ranks_share(layout: str, said: str) -> None:
    failure = RuntimeError("a and b must have same reduction dim, but got [8192, 2048] X [1024, 1024].")
    assert said in (found := about_split(failure, parse_layout(layout)))
    assert bool(found) is bool(said)


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 7))


def sharded() -> nn.Module:
    model = net()
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    return model


def compiled_in_place() -> nn.Module:
    model = net()
    model.compile()
    return model


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: nn.parallel.DistributedDataParallel(net()), "within, `model.module`"),
        (lambda: nn.Sequential(nn.DataParallel(net())), "within, `model.0.module`"),
        (sharded, "expected the model before `fully_shard`"),
    ],
)
def test_a_model_for_several_gpus_is_refused(make: Callable[[], nn.Module], why: str) -> None:
    model = make()
    for ask in (vdnnsim.capture, planned):
        with pytest.raises(CaptureError, match=why):
            ask(model, torch.ones(4, 3))


@pytest.mark.usefixtures("one_process")
def test_a_function_that_shards_its_model_is_refused() -> None:
    """Without memory PyTorch's own sharding fails before the model is there."""
    with pytest.raises(CaptureError, match="expected a model that is made without sharding it"):
        vdnnsim.capture(sharded, torch.ones(4, 3))


def planned(model: nn.Module, inputs: torch.Tensor) -> Any:  # noqa: ANN401  # as of the API
    return vdnnsim.plan(model, inputs, hardware="rtx_4090", policy="save_on_cpu")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
@pytest.mark.parametrize("make", [lambda: torch.compile(net()), compiled_in_place])
def test_a_compiled_model_is_captured_eagerly_and_gets_no_plan(make: Callable[[], nn.Module]) -> None:
    step = vdnnsim.capture(make(), torch.ones(4, 3))
    assert [note for note in step.notes if "`--execution compiled`" in note] == [step.notes[0]]
    with pytest.raises(CaptureError, match=r"was compiled by torch\.compile"):
        planned(make(), torch.ones(4, 3))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of PyTorch's own compiler, when it is imported
def test_a_compiled_function_in_forward_is_captured_eagerly() -> None:
    """The layer, and both operators of the function behind it."""

    def scaled(hidden: Tensor) -> Tensor:
        return hidden.sin() * 2

    step = capture(program(lambda: _Then(torch.compile(scaled)), numbers, optimizer="none"), CPU)
    assert [each.name for each in step.operations][:3] == ["aten.addmm.default", "aten.sin.default", "aten.mul.Tensor"]
