"""Plans in live loops on a pretended GPU, with PyTorch's real allocator, streams and addresses."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from calibration.apply import copy_stream
from reports.promises import Sentences, loss
from tests.pretended_gpu import free_cache
from vdnnsim.api.planning import Planned, plan

pytestmark = pytest.mark.pretend

Inputs = tuple[nn.Module, Tensor]


def perceptron() -> Inputs:
    layers = [each for _ in range(8) for each in (nn.Linear(1024, 1024), nn.GELU())]
    return nn.Sequential(*layers, nn.Linear(1024, 8)), torch.zeros(4096, 1024)


def convolutional() -> Inputs:
    blocks = [
        nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True)) for _ in range(6)
    ]
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks), torch.zeros(32, 3, 128, 128)


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


class Attention(nn.Module):
    """Attention with dropout in float32: a kernel whose random state PyTorch keeps on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.taken = nn.Linear(256, 768), nn.Linear(256, 256)

    def forward(self, batch: Tensor) -> Tensor:
        query, key, value = (each.unflatten(-1, (4, 64)).transpose(1, 2) for each in self.given(batch).chunk(3, -1))
        found = nn.functional.scaled_dot_product_attention(query, key, value, dropout_p=0.1)
        result: Tensor = batch + self.taken(found.transpose(1, 2).flatten(2))
        return result


def attentive() -> Inputs:
    return nn.Sequential(*(Attention() for _ in range(4))), torch.zeros(8, 256, 256)


def recurrent() -> Inputs:
    return Sentences(256), torch.zeros(32, 128, 256)


def no_plan(_: nn.Module) -> AbstractContextManager[None]:
    return nullcontext()


def train(
    model: nn.Module, batch: Tensor, steps: int, applied: Callable[[nn.Module], AbstractContextManager[Any]] = no_plan
) -> list[int]:
    """Return the peak of allocated bytes in each step."""
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


def part_of_plain(model: nn.Module, batch: Tensor, part: float) -> int:
    """Return a part of the plain loop's peak on this card, in bytes."""
    return int(max(train(model, batch, 2)) * part)


@contextmanager
def reserving_at_most(nbytes: int) -> Iterator[None]:
    """Let PyTorch reserve so many bytes, as on a smaller GPU."""
    torch.cuda.set_per_process_memory_fraction(nbytes / torch.cuda.get_device_properties(0).total_memory)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


@pytest.fixture(autouse=True)
def nothing_else() -> Iterator[None]:
    free_cache()
    yield
    free_cache()


def planned(
    model: nn.Module,
    batch: Tensor,
    memory_bytes: int,
    memory_model: str = "pytorch",
    policy: str = "optimal(time_limit=5 s)",
) -> Planned:
    """Plan within bytes that PyTorch may reserve, gaps included."""
    return plan(
        *(model, batch),
        hardware="rtx_4090",
        memory=f"{memory_bytes} B",
        policy=policy,
        loss=loss,
        optimizer="sgd",
        memory_model=memory_model,
    )


MODELS: dict[str, tuple[Callable[[], Inputs], float]] = {
    "perceptron": (perceptron, 0.6),
    "convolutional": (convolutional, 0.7),
    "encoder": (encoder, 0.6),
    "resnet18": (torchvision("resnet18", 16), 0.9),
    "resnet50": (torchvision("resnet50", 16), 0.6),
    "vgg11": (torchvision("vgg11", 16), 0.98),
    "vit_small": (timm("vit_small_patch16_224", 16), 0.6),
    "convnext_tiny": (timm("convnext_tiny", 16), 0.7),
    "mobilenet_v2": (torchvision("mobilenet_v2", 16), 0.7),
    "recurrent": (recurrent, 0.8),
}
"""Models, and the limit of memory as a part of the plain loop's peak."""


@pytest.mark.parametrize("name", MODELS)
def test_a_planned_loop_allocates_what_was_promised(name: str) -> None:
    """Within 1 % over ten steps, in less than the plain loop allocates; PyTorch reserves no more than was stated."""
    make, part = MODELS[name]
    model, batch = make()
    model.cuda()
    limit = part_of_plain(model, batch, part)
    made = planned(model, batch, limit)
    model.zero_grad()
    free_cache()
    keeps_promise(made, train(model, batch, 10, made.apply), limit)
    assert torch.cuda.memory_reserved() <= limit


@pytest.fixture
def growing() -> Iterator[None]:
    """Let segments grow, which leaves the fewest gaps."""
    torch._C._accelerator_setAllocatorSettings("expandable_segments:True")  # noqa: SLF001  # the public one is deprecated
    yield
    free_cache()
    torch._C._accelerator_setAllocatorSettings("expandable_segments:False")  # noqa: SLF001


@pytest.mark.usefixtures("growing")
@pytest.mark.parametrize("name", ["encoder", "resnet18", "vit_small"])
def test_a_planned_loop_trains_where_the_plain_one_runs_out(name: str) -> None:
    """PyTorch may reserve no more than the limit, fragmentation included; LIMITS.md says where that is not enough."""
    make, part = MODELS[name]
    model, batch = make()
    model.cuda()
    # What cuBLAS keeps on Hopper is half of what the smallest has.
    limit = part_of_plain(model, batch, max(part, 0.75))
    made = planned(model, batch, limit, memory_model="pytorch(expandable_segments:True)")
    free_cache()
    with reserving_at_most(limit):
        with pytest.raises(torch.OutOfMemoryError):
            train(model, batch, 2)
        model.zero_grad()
        free_cache()
        keeps_promise(made, train(model, batch, 10, made.apply), limit)


def keeps_promise(made: Planned, peaks: list[int], limit: int) -> None:
    """Assert that a loop followed its plan within its memory."""
    promised = made.predicted.metrics.allocated_bytes
    assert made.loop.steps[-1].offloaded_bytes == made.loop.schedule.offloaded_bytes
    assert {each.departure for each in made.loop.steps} == {""}
    assert promised <= limit
    assert max(peaks) == pytest.approx(promised, rel=0.01)


def test_attention_that_drops_scores_is_planned_with_its_random_state_on_the_host() -> None:
    """Two numbers of each of four attentions, read by backward on the host, are not offloaded.

    Both directions allocate in the dry run.
    """
    model, batch = attentive()
    model.cuda()
    made = planned(model, batch, part_of_plain(model, batch, 2), policy="save_on_cpu")
    asked = made._request  # noqa: SLF001
    states = [number for number, each in enumerate(asked.captured.storages) if each.nbytes == 8 and not each.given]
    saved = {each.storage for each in asked.tape.saves}
    assert len(states) == 8
    assert saved.issuperset(states)
    assert made.loop.schedule.offloaded
    assert made.loop.schedule.offloaded.isdisjoint(states)
    found = {each.name for number, each in enumerate(asked.captured.operations) if number in asked.requests}
    assert {f"aten._scaled_dot_product_efficient_attention{each}.default" for each in ("", "_backward")} <= found
    train(model, batch, 2, made.apply)
    assert [each.offloaded_bytes for each in made.loop.steps] == [made.loop.schedule.offloaded_bytes] * 2


def test_memory_does_not_grow_over_200_steps() -> None:
    model, batch = perceptron()
    model.cuda()
    made = planned(model, batch, part_of_plain(model, batch, 0.6))
    first = train(model, batch, 2, made.apply)[-1]
    left = torch.cuda.memory_allocated()
    peaks = train(model, batch, 198, made.apply)
    assert set(peaks) == {first}
    assert torch.cuda.memory_allocated() == left


def test_copies_run_on_a_stream_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = []
    whole = copy_stream._copy  # noqa: SLF001

    def noted(target: Tensor, source: Tensor) -> None:
        streams.append((torch.cuda.current_stream().cuda_stream, target.nbytes))
        whole(target, source)

    monkeypatch.setattr(copy_stream, "_copy", noted)
    model, batch = perceptron()
    model.cuda()
    made = planned(model, batch, part_of_plain(model, batch, 0.6))
    train(model, batch, 1, made.apply)
    assert sum(nbytes for _, nbytes in streams) == 2 * made.loop.schedule.offloaded_bytes > 0
    assert len({stream for stream, _ in streams}) == 1
    assert streams[0][0] != torch.cuda.current_stream().cuda_stream
