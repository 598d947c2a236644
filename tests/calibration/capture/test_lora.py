"""Adapters of low rank around frozen linear layers."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import vdnnsim
from calibration.capture.capture import capture
from calibration.capture.lora import LoraLinear, add_adapters
from calibration.capture.losses import AssumedLoss
from calibration.capture.program import Arguments, CaptureDevice, Program
from calibration.capture.request_capture import compare
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


def net() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 6), nn.Tanh(), nn.Linear(6, 3))


def test_adapters_alone_are_trained() -> None:
    """Rank 2: 2 (6 + 10) at each of the two layers before the output, of 4 bytes; two states and a gradient of each."""
    step = vdnnsim.capture(net, torch.ones(8, 6), lora=2)
    frozen = 6 * 10 + 10 + 10 * 6 + 6 + 6 * 3 + 3
    assert step.parameters == frozen + 2 * 32
    of_kind = {kind: sum(each.nbytes for each in step.storages if each.kind is kind) for kind in BufferKind}
    assert of_kind[BufferKind.OPTIMIZER_STATE] == 2 * 4 * 64
    assert of_kind[BufferKind.WEIGHT_GRADIENT] == 4 * 64
    assert step.notes[0].startswith("LoRA of rank 2: ")


@pytest.mark.parametrize("precision", ["bfloat16", "amp_bfloat16"])
def test_adapters_are_wide(precision: str) -> None:
    """157 frozen weights in two bytes where the model is narrow; 64 of adapters in four."""
    step = vdnnsim.capture(net, torch.ones(8, 6), lora=2, precision=precision)
    frozen_bytes = 2 if precision == "bfloat16" else 4
    assert step.parameter_bytes == 157 * frozen_bytes + 64 * 4


def test_a_new_adapter_changes_no_result() -> None:
    """Its second product is with zeros."""
    model, given = net(), torch.randn(8, 6)
    before = model(given)
    add_adapters(model, 2)
    assert torch.equal(model(given), before)
    assert isinstance(model[0], LoraLinear)
    assert model[0].weight is model[0].base.weight
    assert model[0].bias is model[0].base.bias
    assert type(model[4]) is nn.Linear


class Named(nn.Module):
    """A model that names its output layer, which is not the last; its attention has a layer of its own arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.out, self.attention, self.hidden = nn.Linear(4, 7), nn.MultiheadAttention(4, 2), nn.Linear(4, 4)

    def get_output_embeddings(self) -> nn.Module:
        return self.out

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.out(self.hidden(self.attention(x, x, x)[0]))
        return result


def test_the_output_layer_and_parts_of_attention_are_left() -> None:
    model = Named()
    add_adapters(model, 2)
    assert [name for name, each in model.named_modules() if isinstance(each, LoraLinear)] == ["hidden"]
    assert model(torch.ones(3, 1, 4)).shape == (3, 1, 7)


def test_transposed_weights_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=9)
    step = vdnnsim.capture(lambda: transformers.GPT2LMHeadModel(config), {"input_ids": torch.ones(2, 4).long()}, lora=2)
    sizes = ((8, 24), (8, 8), (8, 32), (32, 8))
    trained = sum(each.nbytes for each in step.storages if each.kind is BufferKind.WEIGHT_GRADIENT)
    assert trained == 4 * sum(2 * (inputs + outputs) for inputs, outputs in sizes)


@pytest.mark.parametrize(("lora", "why"), [(0, "lora: found 0, expected an integer"), (2, "no linear layer beside")])
def test_what_cannot_be_adapted_is_refused(lora: int, why: str) -> None:
    with pytest.raises(CaptureError, match=why):
        vdnnsim.capture(lambda: nn.Sequential(nn.Linear(3, 4)), torch.ones(2, 3), lora=lora)


def captured(make: Callable[[], nn.Module], inputs: Callable[[], Arguments], precision: str, **changes: Any) -> Any:  # noqa: ANN401
    loss = AssumedLoss("model")
    program = Program(
        name="model",
        make_model=make,
        make_inputs=inputs,
        loss=loss,
        optimizer="adamw",
        mode=Mode.TRAINING,
        precision=Precision(precision),
        batch_size=2,
        labels=loss.labels,
        **changes,
    )
    return capture(program, CaptureDevice())


@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("precision", ["float32", "amp_bfloat16"])
def test_the_memory_is_that_of_peft(precision: str) -> None:
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(vocab_size=100, **sizes)

    def make() -> nn.Module:
        model: nn.Module = transformers.LlamaForCausalLM(config)
        return model

    def adapted() -> nn.Module:
        model: nn.Module = peft.get_peft_model(make(), peft.LoraConfig(r=4, target_modules="all-linear"))
        return model

    def inputs() -> Arguments:
        numbers = torch.zeros(2, 16, dtype=torch.int64)
        return (), {"input_ids": numbers, "labels": numbers.clone()}

    assert compare(captured(adapted, inputs, precision), captured(make, inputs, precision, lora=4)).is_equal
