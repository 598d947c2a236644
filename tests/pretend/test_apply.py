"""Plans in live loops on a pretended GPU: PyTorch's allocator, its streams and the addresses are real there."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vdnnsim.api.live import Planned, plan

pytestmark = pytest.mark.pretend

Inputs = tuple[nn.Module, Tensor]


def perceptron() -> Inputs:
    layers = [each for _ in range(8) for each in (nn.Linear(256, 256), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(256, 8)), torch.zeros(4096, 256)


def convolutional() -> Inputs:
    blocks = [
        nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)) for _ in range(6)
    ]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks), torch.zeros(8, 3, 64, 64)


def encoder() -> Inputs:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.zeros(8, 256, 256)


def torchvision(name: str, batch: int) -> Callable[[], Inputs]:
    def make() -> Inputs:
        library = pytest.importorskip("torchvision")
        return library.models.get_model(name), torch.zeros(batch, 3, 224, 224)

    return make


def timm(name: str, batch: int) -> Callable[[], Inputs]:
    def make() -> Inputs:
        library = pytest.importorskip("timm")
        return library.create_model(name), torch.zeros(batch, 3, 224, 224)

    return make


def loss(output: Tensor) -> Tensor:
    return output.float().square().mean()


def no_plan(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def train(
    model: nn.Module, batch: Tensor, steps: int, applied: Callable[[nn.Module], AbstractContextManager[Any]] = no_plan
) -> list[int]:
    """Return the most bytes that PyTorch had allocated in each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    peaks = []
    for _ in range(steps):
        torch.cuda.reset_peak_memory_stats()
        given = torch.zeros_like(batch, device="cuda")
        with applied(model):
            result = loss(model(given))
            result.backward()  # type: ignore[no-untyped-call]
        del given, result
        optimizer.step()
        optimizer.zero_grad()
        peaks.append(torch.cuda.max_memory_allocated())
    return peaks


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    """Let no other test hold memory of the GPU."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # there is no public way
    gc.collect()
    torch.cuda.empty_cache()
    yield
    gc.collect()
    torch.cuda.empty_cache()


def planned(model: nn.Module, batch: Tensor, memory_bytes: int) -> Planned:
    """Plan within bytes that are allocated, whatever gaps the allocator leaves between them."""
    memory = f"{memory_bytes} B"
    return plan(model, batch, hardware="rtx_4090", memory=memory, loss=loss, optimizer="sgd", memory_model="ideal")


MODELS: dict[str, tuple[Callable[[], Inputs], float]] = {
    "perceptron": (perceptron, 0.6),
    "convolutional": (convolutional, 0.6),
    "encoder": (encoder, 0.6),
    "resnet18": (torchvision("resnet18", 16), 0.75),
    "resnet50": (torchvision("resnet50", 16), 0.6),
    "vgg11": (torchvision("vgg11", 16), 0.9),
    "vit_small": (timm("vit_small_patch16_224", 16), 0.6),
    "convnext_tiny": (timm("convnext_tiny", 16), 0.6),
}
"""Models, and the part of what the plain loop allocates that a plan has to do with."""


@pytest.mark.parametrize("name", MODELS)
def test_a_planned_loop_allocates_what_was_promised(name: str) -> None:
    """Within 1 % in each of the ten steps but the first two, which the plain loop cannot run in that memory."""
    make, part = MODELS[name]
    model, batch = make()
    model.cuda()
    limit = int(max(train(model, batch, 2)) * part)
    made = planned(model, batch, limit)
    promised = made.predicted.metrics.max_memory_bytes
    peaks = train(model, batch, 10, made.apply)
    print(f"{name}: limit {limit}, promised {promised}, found {max(peaks)}, ratio {max(peaks) / promised:.5f}")
    assert made.loop.steps[-1].offloaded_bytes == made.loop.agenda.offloaded_bytes
    assert [each.departure for each in made.loop.steps] == [""] * 10
    assert promised <= limit
    assert max(peaks) == pytest.approx(promised, rel=0.01)
