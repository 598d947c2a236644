"""Captures that a notebook asks for."""

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import vdnnsim
from calibration.capture.object_capture import resized
from tests.refusals import refusal
from vdnnsim.api.captured import model_of
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.engine.host import Execution
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision

CAPTURE: Any = vdnnsim.capture


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 7))


@pytest.mark.parametrize("model", [net, net()], ids=["function", "module"])
def test_a_model_is_captured_and_printed(model: nn.Module, tmp_path: Path) -> None:
    """Weights 3 x 5 + 5 + 2 x 5 + 5 x 7 + 7 = 72 of 4 bytes."""
    step = vdnnsim.capture(model, torch.ones(8, 3))
    assert (step.batch_size, step.parameters, step.parameter_bytes) == (8, 72, 288)
    assert 0 < step.saved_bytes < step.peak_live_bytes
    assert "8 samples, training, float32, adamw, as cuda 8.9, torch " in str(step)
    assert "saved for backward" in str(step)
    step.write(tmp_path / "net.step.json")
    read, _ = read_captured_step(tmp_path / "net.step.json")
    assert read.operations == step.operations


@pytest.mark.parametrize("real", [False, True])
def test_a_model_stays_as_it_is(real: bool) -> None:  # noqa: FBT001  # as pytest gives it
    model = net()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    vdnnsim.capture(model, torch.ones(8, 3), real=real)
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert all(each.grad is None for each in model.parameters())


class Keeping(nn.Module):
    """Keeps results, as attention its weights, which PyTorch does not copy while they are of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 5)
        self.kept: dict[str, torch.Tensor] = {}

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.kept["result"] = self.linear(batch).softmax(-1)
        return self.kept["result"]


def test_a_model_that_keeps_results_is_captured_after_a_step_as_before() -> None:
    model, batch = Keeping(), torch.ones(8, 3)
    before = vdnnsim.capture(model, batch, loss=torch.sum)
    result = model(batch)
    assert vdnnsim.capture(model, batch, loss=torch.sum) == before
    assert model.kept["result"] is result


def test_tied_and_frozen_parameters_of_a_module_stay_so() -> None:
    """5 x 5 weights, once, and two biases of 5 of which the second is frozen: two states of 25 + 5 floats."""
    model = nn.Sequential(nn.Linear(5, 5), nn.Linear(5, 5))
    model[1].weight = model[0].weight
    model[1].bias.requires_grad = False
    step = vdnnsim.capture(model, torch.ones(8, 5))
    assert step.parameters == 35
    assert sum(each.nbytes for each in step.storages if each.kind.value == "optimizer states") == 2 * 30 * 4


def test_a_loss_of_the_users_is_taken() -> None:
    """The mean of nothing but the output: no labels, and nothing is assumed."""
    step = vdnnsim.capture(net, {"input": torch.ones(8, 3)}, loss=lambda output: output.mean(), optimizer="none")
    assert step.notes == ()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((net,), "inputs are missing, expected a tensor"),
        ((net, 3), "inputs: found an int, expected a tensor"),
        ((net, np.ones((8, 3))), "inputs: found a ndarray, expected a torch.Tensor, which torch.from_numpy makes"),
        (
            (3, torch.ones(8, 3)),
            "model: found an int, expected a torch.nn.Module, a function that makes one, or a name",
        ),
        ((lambda: 3, torch.ones(8, 3)), "returns an int, expected a torch.nn.Module"),
        ((lambda width: net(), torch.ones(8, 3)), "model: missing a required argument: 'width', expected a function"),  # noqa: ARG005
        ((nn.Linear, torch.ones(8, 3)), "expected a function without arguments, or a torch.nn.Module"),
        (
            (net, (8, 3)),
            "inputs: found (8, 3), which may be a shape; expected the inputs themselves, as torch.zeros(8, 3)",
        ),
        (("net.py:make", torch.ones(8, 3)), "inputs: found Tensor for net.py:make, a model by name or file, expected"),
        (("timm:resnet18",), "batch: timm:resnet18 has none by default, expected an integer from 1 on"),
        (("resnet18",), "batch: resnet18 has none by default"),
    ],
)
def test_arguments_that_make_no_model_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    assert message in refusal(CaptureError, vdnnsim.capture, *arguments)


@pytest.mark.parametrize("ask", [vdnnsim.capture, partial(vdnnsim.plan, hardware="rtx_4090")])
def test_a_failure_shows_frames_of_the_model_alone(ask: Callable[..., object]) -> None:
    """Its cause is what PyTorch raised, at `forward`; between the caller and the error is the function that was called.

    An argument that stands beside an option in the message of the command stands alone.
    """

    class Reading(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = super().forward(x)
            return y if y.sum().item() > 0 else -y

    with pytest.raises(CaptureError, match="looks into computed values") as caught:
        ask(Reading(3, 5), torch.ones(8, 3))
    cause = caught.value.__cause__
    assert cause is not None
    assert [each.name for each in traceback.extract_tb(cause.__traceback__)] == ["forward"]
    assert len(traceback.extract_tb(caught.value.__traceback__)) <= 3
    if ask is vdnnsim.capture:
        assert str(caught.value).endswith("; `real=True` runs the model with real tensors")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"mode": "train"}, "mode: 'train' is not a mode; did you mean 'training'?"),
        ({"precision": "fp8"}, "precision: 'fp8' is not a precision"),
        (
            {"precision": torch.bfloat16},
            "precision: found torch.bfloat16, expected 'bfloat16' or, under autocast, 'amp_bfloat16'",
        ),
        ({"precision": torch.float64}, "precision: found torch.float64, expected a precision: "),
        ({"optimizer": torch.optim.AdamW([torch.ones(1)])}, "found an object of AdamW, expected its name, 'adamw'"),
        ({"optimizer": torch.optim.AdamW([torch.ones(1)], fused=True)}, "expected its name, 'adamw_fused'"),
        ({"optimizer": "adamv"}, "optimizer: 'adamv' is not an optimizer; did you mean 'adam"),
        ({"accumulate": 0}, "accumulate: found 0, expected an integer from 1 on"),
        ({"tokens": 3}, "image and tokens: found for a model in Python"),
    ],
)
def test_words_that_make_no_sense_are_refused(words: dict[str, Any], message: str) -> None:
    assert message in refusal(CaptureError, vdnnsim.capture, net, torch.ones(8, 3), **words)


@pytest.mark.usefixtures("in_a_fork")
def test_words_are_captured_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """3 x 5 weights and 5 biases."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "a_net.py"
    path.write_text("from torch import nn\ndef make():\n    return nn.Linear(3, 5)\n", encoding="utf-8")
    assert vdnnsim.capture(f"{path}:make", batch=8, image=(3,)).parameters == 20
    with pytest.raises(CaptureError, match="expected a model that has its loss"):
        vdnnsim.capture(f"{path}:make", batch=8, image=(3,), loss=lambda output: output)


def test_a_model_is_captured_at_other_batches() -> None:
    """A model of shifted tokens: both inputs stay views of one storage, 5 x 4 integers for a batch of 5."""
    tokens = torch.zeros(8, 4, dtype=torch.int64)
    first, second, scale = resized((tokens[:, :-1], tokens[:, 1:], torch.ones(())), 5)
    assert first.shape == second.shape == (5, 3)
    assert first.stride() == (4, 1)
    assert first.data_ptr() + 8 == second.data_ptr()
    assert scale.shape == ()
    step = vdnnsim.capture(net, torch.ones(8, 3))
    assert step.at_batch is not None
    assert step.at_batch(5).batch_size == 5
    assert vdnnsim.capture(net, torch.ones(8, 3), real=True).at_batch is None
    model = model_of(step, Execution.EAGER)
    assert model.workload(1000).batch_size == 1000
    assert "between which all sizes grow linearly" in model.batches


def test_a_model_that_does_not_fit_is_captured_in_other_loops() -> None:
    """Weights of 12 GiB, gradients and states of 24 do not fit in 23.6; states of 8 bits are tried.

    A loss of the user's own cannot be cut, so that loop is none.
    """

    def wide() -> nn.Module:
        return nn.Sequential(*(nn.Linear(32768, 32768) for _ in range(3)))

    found = vdnnsim.simulate(vdnnsim.capture(wide, torch.zeros(64, 32768)), "rtx_4090", time_limit="20 s")
    assert any("with adamw8bit in backward" in each and " a step" in each for each in found.advice)
    assert not any("was not captured so" in each for each in found.advice)
    # An eighth of 64 samples; no command finds a function of this test.
    assert "Not tried: several GPUs, `vdnnsim.parallel(step, 'rtx_4090_x8')` of a step at a batch of 8" in found.advice
    step = vdnnsim.capture(net, torch.ones(8, 3))
    model = model_of(step, Execution.EAGER).in_loop(Loop(precision="amp_bfloat16"))
    assert model is not None
    assert {each.precision for each in (model.base, model.workload(5).captured)} == {Precision.AMP_BFLOAT16}
    own = vdnnsim.capture(net, torch.ones(8, 3), loss=torch.sum)
    assert model_of(own, Execution.EAGER).in_loop(Loop(loss_chunks=4)) is None


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_plan_says_what_is_searched_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, is_terminal: bool
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", str(int(is_terminal)))
    vdnnsim.plan(net(), torch.ones(8, 3), hardware="rtx_4090", policy="pytorch")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert ("operations under pytorch" in printed.err) is is_terminal
