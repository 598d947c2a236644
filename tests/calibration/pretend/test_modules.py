"""Labels of the memory history, read on the CPU, whose autograd runs in the thread that calls it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from calibration.pretend.inside.modules import ModuleLabels


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    texts: list[str] = []

    def listen(text: str) -> None:
        texts.append(text.partition(" from ")[0])

    monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", listen)
    labels = ModuleLabels()
    yield texts
    labels.remove()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 2))
        self.head = nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.head(self.body(x))
        return made


def test_forward_enters_and_leaves_modules_and_backward_reaches_them_in_reverse(labels: list[str]) -> None:
    """Net, its body, the layer in that, out again, the head; back the head first, whose output is that of Net too."""
    loss = Net()(torch.ones(1, 2)).sum()
    assert labels == [
        "pass 1, forward of Net",
        "pass 1, forward of Net.body",
        "pass 1, forward of Net.body.0",
        "pass 1, forward of Net.body",
        "pass 1, forward of Net",
        "pass 1, forward of Net.head",
        "pass 1, forward of Net",
        "pass 1",
    ]
    labels.clear()
    loss.backward()
    assert labels == ["pass 1, backward of Net.head", "pass 1, backward of Net.body.0"]


def test_each_call_of_an_outermost_module_is_a_pass(labels: list[str]) -> None:
    layer = nn.Linear(2, 2)
    layer(layer(torch.ones(1, 2)))
    assert labels == ["pass 1, forward of Linear", "pass 1", "pass 2, forward of Linear", "pass 2"]


def test_recomputation_in_backward_is_labelled(labels: list[str]) -> None:
    layer = nn.Linear(2, 2)
    made = checkpoint(layer, torch.ones(1, 2, requires_grad=True), use_reentrant=False)
    labels.clear()
    made.sum().backward()
    assert labels[:2] == ["pass 1, backward of Linear", "pass 1, recomputation of Linear"]
    assert "pass 2" not in " ".join(labels)


def test_optimizer_step_is_labelled(labels: list[str]) -> None:
    weight = nn.Parameter(torch.ones(1))
    weight.sum().backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD([weight]).step()
    assert labels == ["pass 0, optimizer", "pass 0"]


def test_a_module_that_fails_is_left(labels: list[str]) -> None:
    """Else the next module would count as a part of it."""

    class Fails(nn.Module):
        def forward(self, _x: torch.Tensor) -> torch.Tensor:
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        Fails()(torch.ones(1))
    labels.clear()
    nn.Identity()(torch.ones(1))
    assert labels == ["pass 2, forward of Identity", "pass 2"]


def test_backward_is_labelled_with_the_line_that_called_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[str] = []
    monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", texts.append)
    labels = ModuleLabels()
    made = nn.Linear(2, 2)(torch.ones(1, 2))
    made.sum().backward()
    labels.remove()
    line = next(
        number
        for number, text in enumerate(Path(__file__).read_text().splitlines(), 1)
        if text.startswith("    made = nn")
    )
    assert texts[-1] == f"pass 1, backward of Linear from {__file__}:{line}"
